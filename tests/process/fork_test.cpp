// Ranks that fork, as a data loader does: their end is seen while their children live, and what children do or leave undone disturbs nobody.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "record/folder.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

using std::chrono::seconds;

// Children that live until it ends.
class Leash {
 public:
  Leash() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()), 0); }
  ~Leash() {
    for (const int end : ends_) ::close(end);
  }
  // In the child: returns when the leash's own process has ended it.
  void wait() const {
    char byte;
    ::close(ends_[0]);
    while (::read(ends_[1], &byte, 1) > 0) continue;
  }

 private:
  std::array<int, 2> ends_{};
};

Status reduce(Communicator& comm, std::size_t count) {
  std::vector<float> x(count, 1), y(count);
  return comm.all_reduce({x.data(), y.data(), count}).wait();
}

class Forking : public testing::TestWithParam<const char*> {};

TEST_P(Forking, AKilledRankIsNamedWhileItsChildrenLive) {
  constexpr int kRanks = 3;
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-fork-XXXXXX").string();
  ASSERT_TRUE(::mkdtemp(folder.data()));
  const Settings settings{{"TUTTI_TRANSPORT", GetParam()}, {"TUTTI_RECORDER", folder}};
  const std::string address = fresh_address();
  const Leash leash;
  Child victim([&] {
    const Environment environment(settings);
    Communicator comm = joined(0, kRanks, address);
    if (!reduce(comm, 100'000).ok()) return 1;
    for (int i = 0; i < 2; ++i)
      if (::fork() == 0) {
        leash.wait();
        ::_exit(0);
      }
    while (reduce(comm, 5000).ok()) continue;
    return 0;
  });
  World world(kRanks, 1, address, settings);
  std::atomic<int> rounds{0};
  std::atomic<bool> ended{false};
  std::thread killer([&] {
    while (rounds < 30 && !ended) std::this_thread::yield();
    victim.signal(SIGKILL);
  });
  world.run([&](Communicator& comm) {
    ASSERT_TRUE(reduce(comm, 100'000).ok());
    Status status;
    while ((status = reduce(comm, 5000)).ok()) ++rounds;
    // Not a timeout's: no limit of this library is over before.
    EXPECT_EQ(status.code(), Code::peer_lost) << status.to_string();
    EXPECT_EQ(status.culprit(), 0);
  });
  ended = true;
  killer.join();
  EXPECT_EQ(victim.exit_code(), 128 + SIGKILL);
  const auto dead = [&] {
    int count = 0;
    for (const std::string& path : record::recorders_in(folder)) count += !record::is_held(path);
    return count;
  };
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  while (dead() == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();      // children that have not run yet
  EXPECT_EQ(dead(), 1) << "the flight recorder of the killed rank is held by its children";
  std::filesystem::remove_all(folder);
}

// What a child calls on its parent's things, and its destructors.
int misuse(Communicator comm, Work pending, void* allocated) {
  const auto refused = [](const Status& status) { return status.code() == Code::invalid_state && status.text().find("by fork()") != std::string::npos; };
  float x = 1;
  if (!refused(comm.all_reduce({&x, &x, 1}).wait())) return 1;
  if (!refused(comm.send({&x, 1, DataType::f32, 1 - comm.rank()}).wait())) return 2;
  if (!refused(comm.barrier().wait()) || !refused(comm.split(0, 0).status()) || !refused(comm.shrink().status()) || !refused(comm.status())) return 3;
  comm.begin_group();
  if (!refused(comm.end_group().wait())) return 4;
  if (!refused(comm.explain(Collective::all_reduce, 1, DataType::f32).status())) return 5;
  comm.abort("a child's");
  bool told = false;
  pending.then([&](const Status& status) { told = refused(status); });
  if (!told || !pending.test() || !pending.wait_for(seconds(100)) || !refused(pending.wait()) || !refused(pending.status())) return 6;
  if (comm.rank_count() != 2) return 7;
  deallocate(allocated);
  comm.destroy();
  if (comm.all_reduce({&x, &x, 1}).wait().code() != Code::invalid_state) return 8;
  return 0;
}

TEST_P(Forking, ChildrenDisturbNobody) {
  World world(2, {{"TUTTI_TRANSPORT", GetParam()}});
  constexpr std::size_t kCount = 100'000;
  const auto memory = allocate(kCount * sizeof(float));
  ASSERT_TRUE(memory.ok());
  float* const x = static_cast<float*>(*memory);
  std::atomic<bool> over{false}, ended{false};
  std::atomic<int> rounds{0};
  // Rank 0 says by the sum whether to go on. Its input is in memory that rank 1 reads in place.
  std::thread ranks([&] {
    world.run([&](Communicator& comm) {
      std::vector<float> y(kCount);
      for (bool last = false; !last; ++rounds) {
        std::vector<float> own(kCount, 2);
        if (comm.rank() == 0) std::fill_n(x, kCount, over ? 5.0f : 1.0f);
        const Status status = comm.all_reduce({comm.rank() == 0 ? x : own.data(), y.data(), kCount}).wait();
        ASSERT_TRUE(status.ok()) << status.to_string();
        last = y[0] == 7;
        ASSERT_EQ(y, std::vector<float>(kCount, last ? 7.0f : 3.0f));
      }
    });
    ended = true;
  });
  std::vector<float> never(1);
  Work pending = world[0].recv({never.data(), 1, DataType::f32, 1});
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Child([&] {
      const int wrong = misuse(std::move(world[0]), pending, x);
      world[1] = {};
      pending = {};
      return wrong;
    }).exit_code(), 0);
    const int before = rounds;
    while (rounds < before + 4 && !ended) std::this_thread::yield();
  }
  over = true;
  ranks.join();
  EXPECT_FALSE(pending.test());
  never[0] = 0;
  const float sent = 17;
  EXPECT_TRUE(world[1].send({&sent, 1, DataType::f32, 0}).wait().ok());
  EXPECT_TRUE(pending.wait().ok());
  EXPECT_EQ(never[0], 17);
  deallocate(*memory);
}

// exit() runs destructors of static objects.
TEST_P(Forking, AChildThatExitsDisturbsNobody) {
  static std::unique_ptr<World> world;
  world = std::make_unique<World>(2, Settings{{"TUTTI_TRANSPORT", GetParam()}});
  world->run([](Communicator& comm) { ASSERT_TRUE(reduce(comm, 10'000).ok()); });
  Child child([]() -> int {
    (void)!::freopen("/dev/null", "w", stdout);
    std::exit(0);
  });
  EXPECT_EQ(child.exit_code(), 0);
  world->run([](Communicator& comm) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(reduce(comm, 10'000).ok());
  });
  world.reset();
}

TEST_P(Forking, ChildrenMayBeRanksOfTheirOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer allows no threads in a child of a process with threads";
#endif
  World world(2, {{"TUTTI_TRANSPORT", GetParam()}});
  world.run([](Communicator& comm) { ASSERT_TRUE(reduce(comm, 1000).ok()); });
  const std::string address = fresh_address();
  const auto rank = [&](int own) {
    return [&, own] {
      const Environment environment(Settings{{"TUTTI_TRANSPORT", GetParam()}});
      Communicator comm = joined(own, 2, address);
      const auto memory = allocate(40'000);
      if (!memory) return 1;
      float* const x = static_cast<float*>(*memory);
      for (int i = 0; i < 10'000; ++i) x[i] = float(own + 1);
      if (!comm.all_reduce({x, x, 10'000}).wait().ok() || x[9'999] != 3) return 2;
      deallocate(x);
      return 0;
    };
  };
  Child first(rank(0)), second(rank(1));
  EXPECT_EQ(first.exit_code(), 0);
  EXPECT_EQ(second.exit_code(), 0);
  world.run([](Communicator& comm) { ASSERT_TRUE(reduce(comm, 1000).ok()); });
}

INSTANTIATE_TEST_SUITE_P(Transports, Forking, testing::Values("shm", "tcp"), [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace tutti::test
