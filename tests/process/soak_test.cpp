// Real ranks, for a while: operations of all kinds and sizes over TCP links that are reset, flip bits, fall silent or slow down, then
// a rank that is killed, after which the others go on and take in a new one. Nothing is lost, and neither descriptors nor memory
// grow. CI runs some seconds; SOAK_SECONDS=3600 runs an hour.
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "tests/process/calls.h"
#include "tests/process/faulty_sockets.h"
#include "tests/process/own_process.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::seconds budget() {
  const char* wanted = std::getenv("SOAK_SECONDS");
  return std::chrono::seconds(wanted ? std::atoi(wanted) : 6);
}

Case any_case(std::mt19937_64& random, int ranks) {
  Case out;
  out.kind = Kind(random() % kKindCount);
  out.count = 1 + random() % (std::size_t(1) << random() % 17);
  out.root = int(random() % std::uint64_t(ranks));
  out.in_place = random() % 2 == 0 && out.kind != Kind::all_to_all_v;
  return out;
}

// The same cases on all ranks.
void work(World& world, std::uint64_t seed, int operations, const std::function<void()>& between = {}) {
  world.run([&](Communicator& comm) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < operations; ++i) {
      const Case test = any_case(random, comm.rank_count());
      const std::string wrong = tried(comm, test);
      ASSERT_EQ(wrong, "") << "seed " << seed << ", operation " << i;
      if (comm.rank() == 0 && between) between();
    }
  });
}

// One life of a job of three ranks and a child.
void live(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::string address = fresh_address();
  Settings settings{{"TUTTI_TRANSPORT", random() % 3 ? "tcp" : "auto"}, {"TUTTI_SOCKETS", std::to_string(random() % 3)}};
  if (random() % 4 == 0) settings.emplace_back("TUTTI_CHECK", "1");
  if (random() % 4 == 0) settings.emplace_back("TUTTI_ENCRYPT", "1");
  forget_traffic();
  {
    World whole(3, settings);
    work(whole, seed, 40, [&] {
      if (random() % 12 == 0) inject(std::array{Fault::flip, Fault::reset, Fault::slow}[random() % 3], 1000);
    });
  }
  forget_traffic();
  Child victim([&] {
    const Environment environment(settings);
    Communicator comm = joined(0, 4, address);
    std::vector<float> x(1000, 1);
    while (comm.all_reduce({x.data(), x.data(), x.size()}).wait().ok()) continue;
    return 0;
  });
  World world(4, 1, address, settings);
  std::atomic<int> rounds{0};
  std::thread killer([&] {
    while (rounds < 10) std::this_thread::yield();
    victim.signal(SIGKILL);
  });
  world.run([&](Communicator& comm) {
    std::vector<float> x(1000, 1), y(1000);
    Status status;
    while ((status = comm.all_reduce({x.data(), y.data(), x.size()}).wait()).ok()) ++rounds;
    EXPECT_EQ(status.culprit(), 0) << status.to_string();
    auto left = comm.shrink(std::chrono::milliseconds(20'000));
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    ASSERT_EQ(left->rank_count(), 3);
    Case test;
    test.count = 5000;
    EXPECT_EQ(tried(*left, test), "");
  });
  killer.join();
}

TEST(Soak, NothingIsLostAndNothingGrows) {
  const auto end = Clock::now() + budget();
  std::size_t descriptors_then = 0, bytes_then = 0;
  int lives = 0;
  for (std::uint64_t seed = 1; Clock::now() < end && !HasFailure(); ++seed, ++lives) {
    live(seed);
    if (lives == 3) descriptors_then = descriptors(), bytes_then = resident_bytes();
  }
  std::printf("%d lives\n", lives);
  if (lives < 5) return;                                 // a starved machine
  EXPECT_LE(descriptors(), descriptors_then);
  EXPECT_LE(resident_bytes(), bytes_then + (32u << 20));
}

}  // namespace
}  // namespace tutti::test
