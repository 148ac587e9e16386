#include "tools/doctor/trial.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/config.h"

namespace tutti::tools::doctor {
namespace {

constexpr std::chrono::seconds kMeeting{15};
constexpr int kRounds = 5;
constexpr std::size_t kCount = 16384;  // 64 KiB of f32

// Element i of rank r: small whole numbers, so that sums are exact in any order.
float value_of(int rank, std::size_t i) { return float((std::size_t(rank) * 7 + i * 13) % 101); }

Status all_reduce(Communicator& comm, double& milliseconds) {
  std::vector<float> input(kCount), output(kCount), wanted(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    input[i] = value_of(comm.rank(), i);
    for (int rank = 0; rank < comm.rank_count(); ++rank) wanted[i] += value_of(rank, i);
  }
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    auto work = comm.all_reduce({.input = input.data(), .output = output.data(), .count = kCount});
    if (Status status = work.wait(); !status) return status;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    milliseconds = round == 0 ? took.count() : std::min(milliseconds, took.count());
    if (output != wanted) return {Code::internal, "the sums are wrong"};
  }
  return {};
}

Trial run(int rank, int rank_count, const UniqueId& id, const std::string& job_key) {
  Trial trial;
  auto comm = Communicator::create(rank, rank_count, id, {.init_timeout = kMeeting, .job_key = job_key});
  if (!comm) {
    trial.error = comm.status().to_string();
    return trial;
  }
  if (const Status status = all_reduce(*comm, trial.milliseconds); !status) trial.error = status.to_string();
  if (const auto choice = comm->explain(Collective::all_reduce, kCount, DataType::f32))
    trial.transport = choice->transport;
  return trial;
}

// Puts a variable of this process's environment back as it was.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name), before_(environment(name)) { setenv(name, value, 1); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() { before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

}  // namespace

Trial try_locally(const std::string& transport) {
  const Setting over("TUTTI_TRANSPORT", transport.c_str()), unmeasured("TUTTI_PROBE", "0"),
      unrecorded("TUTTI_RECORDER", "0");
  Trial trials[2];
  const auto id = Communicator::make_unique_id();
  if (id) {
    std::thread other([&] { trials[1] = run(1, 2, *id, ""); });
    trials[0] = run(0, 2, *id, "");
    other.join();
  } else {
    trials[0].error = id.status().to_string();
  }
  Trial& out = trials[0];
  if (out.error.empty()) out.error = trials[1].error;
  if (out.error.empty() && out.transport != transport) out.error = fmt::format("went over {} instead", out.transport);
  out.transport = transport;
  out.what = "2 ranks of this host";
  return out;
}

Trial try_together(int rank, int rank_count, const UniqueId& id, const std::string& job_key) {
  Trial out = run(rank, rank_count, id, job_key);
  out.what = fmt::format("{} ranks", rank_count);
  return out;
}

}  // namespace tutti::tools::doctor
