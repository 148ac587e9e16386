// See job.h.
#include "tools/job.h"
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <sys/random.h>
#include <unistd.h>

namespace tutti::tools {
namespace {

constexpr std::size_t kKeyBytes = 32;      // of HMAC-SHA-256

std::map<std::string, std::string> names_of_rank(const Job& job, int local_rank) {
  const auto text = [](int number) { return std::to_string(number); };
  std::map<std::string, std::string> names = {
      {"RANK", text(job.rank(local_rank))},
      {"WORLD_SIZE", text(job.rank_count())},
      {"LOCAL_RANK", text(local_rank)},
      {"LOCAL_WORLD_SIZE", text(job.local_ranks)},
      {"GROUP_RANK", text(job.host_rank)},
      {"GROUP_WORLD_SIZE", text(job.host_count)},
      {"NODE_RANK", text(job.host_rank)},
      {"MASTER_ADDR", job.master_address},
      {"MASTER_PORT", text(job.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", text(job.restart_count)},
      {"TUTTI_RANK", text(job.rank(local_rank))},
      {"TUTTI_RANK_COUNT", text(job.rank_count())},
      {"TUTTI_LOCAL_RANK", text(local_rank)},
      {"TUTTI_LOCAL_RANK_COUNT", text(job.local_ranks)},
      {"TUTTI_ADDRESS",
       job.tutti_address.empty() ? address_text(job.master_address, job.master_port) : job.tutti_address},
  };
  if (!job.job_key.empty()) names["TUTTI_JOB_KEY"] = job.job_key;
  if (job.threads > 0) names["OMP_NUM_THREADS"] = text(job.threads);
  return names;
}

}  // namespace

std::vector<std::string> rank_environment(const Job& job, int local_rank, const std::vector<std::string>& base) {
  const auto names = names_of_rank(job, local_rank);
  std::vector<std::string> environment;
  bool buffering_chosen = false;
  for (const std::string& entry : base) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!names.contains(name)) environment.push_back(entry);
    buffering_chosen |= name == "PYTHONUNBUFFERED";
  }
  for (const auto& [name, value] : names) environment.push_back(name + "=" + value);
  // Python holds back its output when it goes into a pipe, as it does here.
  if (!buffering_chosen) environment.emplace_back("PYTHONUNBUFFERED=1");
  return environment;
}

std::string address_text(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Result<std::string> random_key() {
  std::array<unsigned char, kKeyBytes> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Status(Code::out_of_resources, fmt::format("getrandom: {}", std::strerror(errno)));
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string rank_table(const Job& job, const std::string& host, const std::vector<int>& pids) {
  const std::size_t width = std::max<std::size_t>(host.size(), 4);
  std::string text = fmt::format("{:>5}  {:>10}  {:{}}  {:>8}\n", "rank", "local rank", "host", width, "pid");
  for (int local = 0; local < job.local_ranks; ++local) {
    text += fmt::format("{:>5}  {:>10}  {:{}}  {:>8}\n", job.rank(local), local, host, width,
                        pids[static_cast<std::size_t>(local)]);
  }
  return text +
         fmt::format("{} ranks in all, {} on this host (number {} of {}), meeting at {}\n", job.rank_count(),
                     job.local_ranks, job.host_rank, job.host_count,
                     job.tutti_address.empty() ? address_text(job.master_address, job.master_port) : job.tutti_address);
}

std::vector<std::string> own_environment() {
  std::vector<std::string> list;
  for (char** entry = environ; *entry; ++entry) list.emplace_back(*entry);
  return list;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "this host";
}

}  // namespace tutti::tools
