// Real ranks, for a while: operations of all kinds and sizes over TCP links that are reset, flip bits, fall silent or
// slow down, then a rank that is killed, after which the others go on and take in a new one. Nothing is lost, and
// neither descriptors nor memory grow. CI runs some seconds; SOAK_SECONDS=3600 runs an hour.
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

// The same cases on all ranks; the first thing that went wrong.
std::string work(Communicator& comm, std::uint64_t seed, int operations, const std::function<void()>& between = {}) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < operations; ++i) {
    const Case test = any_case(random, comm.rank_count());
    if (const std::string wrong = tried(comm, test); !wrong.empty())
      return "seed " + std::to_string(seed) + ", operation " + std::to_string(i) + ": " + wrong;
    if (comm.rank() == 0 && between) between();
  }
  return "";
}

constexpr int kAfterGrowth = 15;

// Rank 3 of the grown world, in a process that waits for its invitation.
int newcomer(int invitations, std::uint64_t seed) {
  UniqueId id;
  if (::read(invitations, &id, sizeof id) != ssize_t(sizeof id)) return 1;
  auto comm = Communicator::create(3, 4, id);
  if (!comm) return 2;
  return work(*comm, seed, kAfterGrowth).empty() ? 0 : 3;
}

// One life of a job: three ranks over bad links; then four, of which one is killed; then three; then four again.
void live(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::string address = fresh_address();
  Settings settings{{"TUTTI_TRANSPORT", random() % 3 ? "tcp" : "auto"},
                    {"TUTTI_SOCKETS", std::to_string(random() % 3)}};
  if (random() % 4 == 0) settings.emplace_back("TUTTI_CHECK", "1");
  if (random() % 4 == 0) settings.emplace_back("TUTTI_ENCRYPT", "1");
  forget_traffic();
  {
    World whole(3, settings);
    whole.run([&](Communicator& comm) {
      const auto harm = [&] {
        if (random() % 12 == 0) inject(std::array{Fault::flip, Fault::reset, Fault::slow}[random() % 3], 1000);
      };
      EXPECT_EQ(work(comm, seed, 40, harm), "");
    });
  }
  forget_traffic();
  int invitations[2];
  ASSERT_EQ(::pipe(invitations), 0);
  const Environment environment(settings);
  Child fourth([&] {
    ::close(invitations[1]);
    return newcomer(invitations[0], seed);
  });
  ::close(invitations[0]);
  Child victim([&] {
    Communicator comm = joined(0, 4, address);
    std::vector<float> x(1000, 1);
    while (comm.all_reduce({x.data(), x.data(), x.size()}).wait().ok()) continue;
    return 0;
  });
  World world(4, 1, address);
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
    EXPECT_EQ(work(*left, seed, 5), "");
    UniqueId id{};
    if (left->rank() == 0) {
      id = Communicator::make_unique_id().value();
      ASSERT_EQ(::write(invitations[1], &id, sizeof id), ssize_t(sizeof id));
    }
    auto larger = left->grow(4, id);
    ASSERT_TRUE(larger.ok()) << larger.status().to_string();
    left->destroy();
    EXPECT_EQ(work(*larger, seed, kAfterGrowth), "");
  });
  killer.join();
  ::close(invitations[1]);
  EXPECT_EQ(fourth.exit_code(), 0);
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
  const auto settled = Clock::now() + std::chrono::seconds(10);  // meeting points close a moment after all have met
  while (descriptors() > descriptors_then && Clock::now() < settled) std::this_thread::yield();
  EXPECT_LE(descriptors(), descriptors_then);
  EXPECT_LE(resident_bytes(), bytes_then + (32u << 20));
}

}  // namespace
}  // namespace tutti::test
