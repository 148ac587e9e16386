#include "comm/launch_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "comm/host_list.h"
#include "core/socket_address.h"

namespace tutti::comm {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr int kCandidatePorts = 16;  // torchrun's own store sits on MASTER_PORT
constexpr std::uint64_t kFirstDerivedPort = 20000, kDerivedPorts = 10000;

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (char c : text) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3ull;
  return hash;
}

// The environment, and the first thing that was wrong with it.
class Reading {
 public:
  Reading(const ReadVariable& read, const std::vector<Ancestor>& ancestors) : read_(read), ancestors_(ancestors) {}

  std::string text(const char* name) const {
    const char* value = read_(name);
    return value ? value : "";
  }
  bool has(const char* name) const { return !text(name).empty(); }
  const char* first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (has(name)) return name;
    return *names.begin();
  }
  void fail(std::string why) {
    if (status_.ok()) status_ = Status(Code::invalid_argument, std::move(why));
  }
  const Status& status() const { return status_; }
  // From `low` on; -1 when unset or wrong. `because`: unset is wrong, since that is set.
  int number(const char* name, int low, const char* because = nullptr) {
    std::string value = text(name);
    if (value.empty()) {
      if (because) fail(fmt::format("{} is not set, although {}={} is", name, because, text(because)));
      return -1;
    }
    int out = -1;
    auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error == std::errc() && end == value.data() + value.size() && out >= low && out <= kMostRanks) return out;
    fail(fmt::format("{}={}: want a whole number from {} to {}", name, value, low, kMostRanks));
    return -1;
  }
  // Rank and count, checked against each other.
  void identity(Launch& launch, const char* rank, const char* count) {
    launch.rank = number(rank, 0, count);
    launch.rank_count = number(count, 1, rank);
    if (status_.ok() && launch.rank >= launch.rank_count)
      fail(fmt::format("{}={} with {}={}: ranks go from 0 to {}", rank, launch.rank, count, launch.rank_count,
                       launch.rank_count - 1));
  }
  void locality(Launch& launch, const char* rank, const char* count) {
    launch.local_rank = number(rank, 0);
    launch.local_rank_count = number(count, 1);
    if (launch.local_rank >= 0 && launch.local_rank_count >= 0 && launch.local_rank >= launch.local_rank_count)
      fail(fmt::format("{}={} with {}={}: ranks of a host go from 0 to {}", rank, launch.local_rank, count,
                       launch.local_rank_count, launch.local_rank_count - 1));
  }
  // The launcher's process, the same for all ranks of this host even when a shell stands between.
  std::string launcher_identity(std::string_view program) const {
    for (const Ancestor& a : ancestors_)
      if (a.program == program) return fmt::format("{}@{}", a.pid, a.started);
    return ancestors_.empty() ? "" : fmt::format("{}@{}", ancestors_[0].pid, ancestors_[0].started);
  }

 private:
  const ReadVariable& read_;
  const std::vector<Ancestor>& ancestors_;
  Status status_;
};

int derived_port(std::uint64_t number) { return int(kFirstDerivedPort + number % kDerivedPorts); }

// Steps of srun; the script of sbatch and salloc's shell have a step too, with numbers near the top.
bool is_srun_step(const Reading& env) {
  constexpr std::uint64_t kFirstSpecialStep = 0xfffffff0;
  std::string step = env.text("SLURM_STEP_ID");
  std::uint64_t number = 0;
  std::from_chars(step.data(), step.data() + step.size(), number);
  return number < kFirstSpecialStep;
}

const char* slurm_count(const Reading& env) {
  return env.first_of({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
}
const char* slurm_hosts(const Reading& env) {
  return env.first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
}
std::string slurm_job(const Reading& env) {
  return fmt::format("slurm {}.{}", env.text(env.first_of({"SLURM_JOB_ID", "SLURM_JOBID"})), env.text("SLURM_STEP_ID"));
}

void identify(Reading& env, Launch& launch) {
  if (env.has("TUTTI_RANK") || env.has("TUTTI_RANK_COUNT")) {
    launch.launcher = "tutti";
    env.identity(launch, "TUTTI_RANK", "TUTTI_RANK_COUNT");
    env.locality(launch, "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_RANK_COUNT");
  } else if (env.has("RANK")) {
    launch.launcher = "torchrun";
    env.identity(launch, "RANK", "WORLD_SIZE");
    env.locality(launch, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    launch.job = env.text("TORCHELASTIC_RUN_ID");
  } else if (env.has("OMPI_COMM_WORLD_RANK")) {
    launch.launcher = "openmpi";
    env.identity(launch, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    env.locality(launch, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    launch.job = env.text(env.first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}));
  } else if (env.has("PMI_RANK")) {
    launch.launcher = "mpich";
    env.identity(launch, "PMI_RANK", "PMI_SIZE");
    env.locality(launch, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
    launch.job = env.text("PMI_JOBID");
  } else if (env.has("PMIX_RANK")) {
    launch.launcher = "pmix";
    env.identity(launch, "PMIX_RANK",
                 env.first_of({"PMIX_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "WORLD_SIZE"}));
    env.locality(launch, env.first_of({"PMIX_LOCAL_RANK", "SLURM_LOCALID"}), "PMIX_LOCAL_SIZE");
    launch.job = env.text("PMIX_NAMESPACE");
  } else if (env.has("SLURM_PROCID") && is_srun_step(env)) {
    launch.launcher = "slurm";
    env.identity(launch, "SLURM_PROCID", slurm_count(env));
    launch.local_rank = env.number("SLURM_LOCALID", 0);
    launch.job = slurm_job(env);
  } else if (env.has("WORLD_SIZE") && env.text("WORLD_SIZE") != "1") {
    env.number("RANK", 0, "WORLD_SIZE");
  }
}

// Of this host, where Slurm says so by tasks per host.
void read_slurm_locality(Reading& env, Launch& launch) {
  if (!env.has("SLURM_STEP_TASKS_PER_NODE") || launch.local_rank_count >= 0) return;
  auto counts = expand_counts(env.text("SLURM_STEP_TASKS_PER_NODE"));
  if (!counts)
    return env.fail(
        fmt::format("SLURM_STEP_TASKS_PER_NODE={}: {}", env.text("SLURM_STEP_TASKS_PER_NODE"), counts.status().text()));
  std::size_t host =
      counts->size() == 1 ? 0 : std::size_t(std::max(0, env.number("SLURM_NODEID", 0, "SLURM_STEP_TASKS_PER_NODE")));
  if (host < counts->size()) launch.local_rank_count = (*counts)[host];
}

void meet_at_master(Reading& env, Launch& launch) {
  if (!env.has("MASTER_PORT"))
    return env.fail(fmt::format("MASTER_PORT is not set, although MASTER_ADDR={} is", env.text("MASTER_ADDR")));
  std::string address = join_address(env.text("MASTER_ADDR"), 0);
  address.resize(address.size() - 1);
  address += env.text("MASTER_PORT");
  auto split = split_address(address);
  if (!split || split->port == 0)
    return env.fail(fmt::format("MASTER_PORT={}: want a port from 1 to 65535", env.text("MASTER_PORT")));
  launch.addresses = {address};
  launch.ports = kCandidatePorts;
}

void meet_at_slurm_host(Reading& env, Launch& launch) {
  const char* name = slurm_hosts(env);
  auto hosts = expand_host_list(env.text(name));
  if (!hosts) return env.fail(fmt::format("{}={}: {}", name, env.text(name), hosts.status().text()));
  // 20000 + (job x 7 + step) mod 10000
  std::uint64_t job = 0, step = 0;
  std::string job_text = env.text(env.first_of({"SLURM_JOB_ID", "SLURM_JOBID"})), step_text = env.text("SLURM_STEP_ID");
  std::from_chars(job_text.data(), job_text.data() + job_text.size(), job);
  std::from_chars(step_text.data(), step_text.data() + step_text.size(), step);
  launch.addresses = {join_address(hosts->front(), derived_port(job * 7 + step))};
  launch.ports = kCandidatePorts;
  if (launch.job.empty()) launch.job = slurm_job(env);
}

void meet_on_this_host(Reading& env, Launch& launch) {
  std::string identity = launch.launcher == "mpich" ? env.launcher_identity("hydra_pmi_proxy") : launch.job;
  if (identity.empty()) return env.fail("TUTTI_ADDRESS is not set, and the launcher says nothing to derive it from");
  if (launch.job.empty()) launch.job = identity;
  launch.addresses = {fmt::format("@tutti-{}-{:016x}", ::getuid(), hash_of(launch.launcher + " " + identity))};
}

// "1234.0;tcp://10.0.0.5,172.17.0.1:50353;tcp6://[fd00::2]:45623": the hosts of mpirun.
void meet_at_open_mpi_host(Reading& env, Launch& launch) {
  int port = derived_port(hash_of(launch.job));
  std::istringstream parts(env.text("OMPI_MCA_orte_hnp_uri"));
  for (std::string part; std::getline(parts, part, ';');) {
    auto start = part.find("://");
    auto colon = part.rfind(':');
    if (start == std::string::npos || colon <= start + 3) continue;
    std::istringstream hosts(part.substr(start + 3, colon - start - 3));
    for (std::string host; std::getline(hosts, host, ',');) {
      host.erase(std::remove_if(host.begin(), host.end(), [](char c) { return c == '[' || c == ']'; }), host.end());
      if (!host.empty()) launch.addresses.push_back(join_address(host, port));
    }
  }
  launch.ports = kCandidatePorts;
}

void find_address(Reading& env, Launch& launch) {
  bool one_host = launch.local_rank_count == launch.rank_count;
  // srun runs this process itself, not a proxy of mpirun.
  bool by_srun = env.has("SLURM_PROCID") && is_srun_step(env) && env.has(slurm_hosts(env)) &&
                 env.text(slurm_count(env)) == std::to_string(launch.rank_count);
  if (env.has("TUTTI_ADDRESS")) {
    std::string address = env.text("TUTTI_ADDRESS");
    auto split = split_address(address);
    if (address[0] != '@' && (!split || split->port == 0))
      return env.fail(fmt::format(
          "TUTTI_ADDRESS={}: want \"host:port\", \"[v6]:port\" or \"@name\", such as node1:29500", address));
    launch.addresses = {address};
  } else if (env.has("MASTER_ADDR")) {
    meet_at_master(env, launch);
  } else if (launch.launcher == "torchrun") {
    env.fail(fmt::format("MASTER_ADDR is not set, although RANK={} is; set it, or TUTTI_ADDRESS, to where rank 0 runs",
                         launch.rank));
  } else if (launch.launcher == "tutti") {
    env.fail(fmt::format("TUTTI_ADDRESS is not set, although TUTTI_RANK={} is: want \"host:port\" of rank 0's host",
                         launch.rank));
  } else if (by_srun) {
    meet_at_slurm_host(env, launch);
  } else if (one_host) {
    meet_on_this_host(env, launch);
  } else {
    if (launch.launcher == "openmpi") meet_at_open_mpi_host(env, launch);
    if (launch.addresses.empty())
      env.fail(
          fmt::format("{} ranks on several hosts, and {} does not say where rank 0 runs: set TUTTI_ADDRESS to "
                      "\"host:port\" of rank 0's host",
                      launch.rank_count, launch.launcher));
  }
}

}  // namespace

std::vector<Ancestor> read_ancestors() {
  constexpr int kMost = 16;
  std::vector<Ancestor> out;
  for (int pid = ::getppid(); pid > 0 && int(out.size()) < kMost;) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line;
    if (!std::getline(file, line)) break;
    auto open = line.find('('), close = line.rfind(')');  // the program's name may hold anything
    if (open == std::string::npos || close == std::string::npos) break;
    std::istringstream words(line.substr(close + 1));
    std::vector<std::string> word(20);
    for (auto& w : word) words >> w;  // state, parent, ..., the 20th: start time
    out.push_back({pid, line.substr(open + 1, close - open - 1), word[19]});
    pid = 0;
    std::from_chars(word[1].data(), word[1].data() + word[1].size(), pid);
  }
  return out;
}

Result<Launch> read_launch(const ReadVariable& read, const std::vector<Ancestor>& ancestors) {
  Launch launch;
  Reading env(read, ancestors);
  identify(env, launch);
  if (!env.status()) return env.status();
  if (launch.launcher == "slurm" || launch.launcher == "pmix") read_slurm_locality(env, launch);
  if (env.status() && launch.rank_count > 1) find_address(env, launch);
  if (!env.status()) return env.status();
  return launch;
}

Result<Launch> read_launch() {
  std::string value;  // one at a time: every text is copied before the next is read
  return read_launch(
      [&](const char* name) -> const char* {
        value = environment(name);
        return value.empty() ? nullptr : value.c_str();
      },
      read_ancestors());
}

}  // namespace tutti::comm
