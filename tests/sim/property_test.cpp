// Random operations against streams, in thousands of rough worlds, judged by a plain model: what was read is a prefix
// of what was written; without a fault that ends connections it is all of it. And: a seed is a run, exactly.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tests/sim/seeds.h"
#include "tests/sim/talker.h"

namespace tutti::sim {
namespace {

using std::chrono::hours;

// A run that draws everything from its seed. `deadly`: resets, kills and closes too.
class RandomRun {
 public:
  RandomRun(std::uint64_t seed, bool deadly)
      : deadly_(deadly), dice_(seed * 3 + deadly),
        pair_(seed, rough_options(seed), dice_.below(40'000), dice_.below(40'000), seed % 4 == 0,
              seed % 4 == 0 ? "@property" : "[fd00:0::1]:0") {}

  void go() {
    for (const auto& [loop, talker] : {std::pair{&pair_.server, &pair_.at_server}, {&pair_.client, &pair_.at_client}}) {
      loop->on_tick([this, loop = loop, talker = talker] { tick(*loop, *talker); });
    }
    if (!pair_.connect()) return;
    const std::uint64_t faults = dice_.below(8);
    const Nanoseconds apart = microseconds{dice_.chance(0.5) ? 30 : 3000};
    for (std::uint64_t i = 0; i < faults; ++i) {
      pair_.world.run_for(dice_.up_to(apart));
      amid_ = amid_ || !pair_.all_arrived();
      fault();
    }
    pair_.world.heal();
    if (pair_.at_client) pair_.world.stall(wire_, false);
    for (const int process : {0, 1}) pair_.world.resume(process);
    done_ = pair_.world.run_until([this] { return quiet(); }, hours{2});
  }

  // Empty: as it should be.
  std::string verdict() const {
    if (!pair_.at_client || !pair_.at_server) return "not connected";
    if (!done_) return "never ended";
    if (pair_.at_client->wrong() + pair_.at_server->wrong() > 0) return "wrong bytes";
    if (pair_.at_client->received() > pair_.at_server->sent()) return "more bytes than were sent";
    if (pair_.at_server->received() > pair_.at_client->sent()) return "more bytes than were sent";
    if (!ended_ && !pair_.all_arrived()) return "bytes are missing";
    if (!ended_ && (pair_.at_client->over() || pair_.at_server->over())) return "ended without a cause";
    return "";
  }
  SimWorld& world() { return pair_.world; }
  bool ended() const { return ended_; }
  bool amid() const { return amid_; }      // a fault came while bytes were under way

 private:
  void tick(SimLoop& loop, std::unique_ptr<Talker>& talker) {
    loop.run({});
    if (!talker) return;
    if (&loop == &pair_.client) wire_ = talker->wire();
    // Reads and writes of random sizes, until both come to nothing.
    for (bool moved = true; moved;) {
      moved = talker->write_some(1 + dice_.below(3000));
      moved |= talker->read_some(1 + dice_.below(3000));
    }
  }
  void fault() {
    SimWorld& world = pair_.world;
    const int process = static_cast<int>(dice_.below(2));
    const bool two_hosts = pair_.server.host() != pair_.client.host();
    switch (dice_.below(deadly_ ? 9 : 6)) {
      case 0: return world.pause(process);
      case 1: return world.resume(process);
      case 2: return world.stall(wire_, true);
      case 3: return world.stall(wire_, false);
      case 4: return two_hosts ? world.blackhole_one_way(process, 1 - process) : world.heal();
      case 5: return world.slow(process, dice_.up_to(milliseconds{5}));
      default: break;
    }
    ended_ = true;
    switch (dice_.below(3)) {
      case 0: return world.reset(wire_);
      case 1: return world.reset_after(wire_, process, dice_.below(5000));
      default: return world.kill(process);
    }
  }
  bool quiet() const {
    if (pair_.all_arrived()) return true;
    const auto over = [](const SimLoop& loop, const Talker& talker) { return !loop.alive() || talker.over(); };
    return over(pair_.server, *pair_.at_server) && over(pair_.client, *pair_.at_client);
  }

  const bool deadly_;
  Dice dice_;
  Pair pair_;
  std::uint64_t wire_ = 0;
  bool ended_ = false;
  bool amid_ = false;
  bool done_ = false;
};

TEST(SimProperty, HarmlessFaultsLoseNothing) {
  int amid = 0;
  for (const std::uint64_t seed : seeds(2000)) {
    RandomRun run(seed, false);
    run.go();
    ASSERT_EQ(run.verdict(), "") << run.world().replay_line();
    amid += run.amid();
  }
  if (!whole_range()) return;
  EXPECT_GT(amid, 1000) << "the test must reach what it is about";
}

TEST(SimProperty, DeadlyFaultsLeaveAPrefix) {
  int ended = 0;
  for (const std::uint64_t seed : seeds(2000)) {
    RandomRun run(seed, true);
    run.go();
    ASSERT_EQ(run.verdict(), "") << run.world().replay_line();
    ended += run.ended() && run.amid();
  }
  if (!whole_range()) return;
  EXPECT_GT(ended, 600);
}

TEST(SimDeterminism, TheSameSeedIsTheSameRun) {
  std::set<std::uint64_t> hashes;
  for (const std::uint64_t seed : seeds(100)) {
    std::uint64_t hash[2], events[2];
    TimePoint end[2];
    for (int i = 0; i < 2; ++i) {
      const std::vector<std::byte> elsewhere(1 + i * 100'000);      // other addresses must not matter
      RandomRun run(seed, seed % 2 == 0);
      run.go();
      hash[i] = run.world().trace_hash();
      events[i] = run.world().event_count();
      end[i] = run.world().now();
    }
    ASSERT_EQ(hash[0], hash[1]) << seed;
    ASSERT_EQ(events[0], events[1]) << seed;
    ASSERT_EQ(end[0], end[1]) << seed;
    hashes.insert(hash[0]);
  }
  if (!whole_range()) return;
  EXPECT_EQ(hashes.size(), 100U) << "different seeds are different runs";
}

TEST(SimDeterminism, ObservingChangesNothingAndTellsEachEvent) {
  RandomRun plain(7, true), watched(7, true);
  std::uint64_t told = 0;
  watched.world().observe([&](TimePoint, const std::string& text) { told += !text.empty(); });
  plain.go();
  watched.go();
  EXPECT_EQ(plain.world().trace_hash(), watched.world().trace_hash());
  EXPECT_EQ(told, watched.world().event_count());
  EXPECT_EQ(watched.world().replay_line(), "--seed 7");
}

}  // namespace
}  // namespace tutti::sim
