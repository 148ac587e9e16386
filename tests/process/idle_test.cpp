// What costs nothing: a communicator between operations, and a rank that waits for late ones. Processor time of whole
// processes, as the kernel counts it; the only clock here says for how long to look.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "tests/process/world.h"

namespace tutti::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr auto kWatched = std::chrono::seconds(2);
constexpr auto kAllowed = milliseconds(20);      // of a rank in that time: one per cent. Spinning would be all of it
constexpr int kFailed = 250;                     // above any number of milliseconds that a child reports

microseconds processor_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) { return std::chrono::seconds(t.tv_sec) + microseconds(t.tv_usec); };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// All connections and buffers come into being: small and large, all pairs, rooted.
Status use(Communicator& comm) {
  std::vector<float> x(300000, 1), y(x.size());
  for (const std::size_t count : {1, 300, 20000, 300000}) {
    if (Status status = comm.all_reduce({x.data(), y.data(), count}).wait(); !status.ok()) return status;
    if (Status status = comm.broadcast({x.data(), y.data(), count, DataType::f32, 2}).wait(); !status.ok())
      return status;
    if (Status status = comm.all_to_all({x.data(), y.data(), count / kRanks}).wait(); !status.ok()) return status;
  }
  return comm.barrier().wait();
}

bool good(const Status& status) {
  if (!status.ok()) std::cerr << status.to_string() << "\n";
  return status.ok();
}

// A process a rank: `watched` runs after use(), and what it takes is the exit code in whole milliseconds.
void expect_idle(const char* transport, const std::function<Status(Communicator&)>& watched) {
  const std::string address = fresh_address();
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.push_back(std::make_unique<Child>([&, rank] {
      const Environment environment(Settings{{"TUTTI_TRANSPORT", transport}});
      Communicator comm = joined(rank, kRanks, address);
      if (!good(use(comm))) return kFailed;
      const microseconds before = processor_time();
      if (!good(watched(comm))) return kFailed;
      return int(std::min<microseconds::rep>((processor_time() - before).count() / 1000, kFailed - 1));
    }));
  for (int rank = 0; rank < kRanks; ++rank) {
    const int milliseconds_used = ranks[std::size_t(rank)]->exit_code();
    EXPECT_NE(milliseconds_used, kFailed) << "rank " << rank << ": an operation failed";
    EXPECT_LE(milliseconds_used, kAllowed.count()) << "rank " << rank << " over " << transport;
  }
}

class Idle : public testing::TestWithParam<const char*> {};

TEST_P(Idle, ACommunicatorThatWasUsedSleeps) {
  expect_idle(GetParam(), [](Communicator&) {
    std::this_thread::sleep_for(kWatched);
    return Status();
  });
}

TEST_P(Idle, ARankThatWaitsForLateOnesSleeps) {
  expect_idle(GetParam(), [](Communicator& comm) {
    if (comm.rank() > 0) std::this_thread::sleep_for(kWatched);
    return comm.barrier().wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Wires, Idle, testing::Values("shm", "tcp"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace tutti::test
