// Simulated processes: ticks, timers, doorbells, and what the others see of a kill, a pause or a slow one.
#include <gtest/gtest.h>

#include "tests/sim/seeds.h"
#include "tests/sim/talker.h"

namespace tutti::sim {
namespace {

using std::chrono::hours;

SimOptions prompt() {
  SimOptions options;
  options.wake_delay = {};
  return options;
}

TEST(SimTimers, CallAtTheirTimeExactlyAndInOrder) {
  SimWorld world(1, prompt());
  SimLoop& loop = world.add_process(world.add_host());
  const TimePoint start = world.now();
  std::vector<std::pair<int, Nanoseconds>> called;
  std::vector<std::shared_ptr<void>> handles;
  for (const int after : {700, 3, 3'000'000, 50, 3}) {
    const auto note = [&, after] { called.push_back({after, world.now() - start}); };
    handles.push_back(loop.at(start + Nanoseconds{after}, note));
  }
  EXPECT_EQ(loop.until_next_deadline(), Nanoseconds{3});
  world.run_for(seconds{1});
  ASSERT_EQ(called.size(), 5U);
  const std::vector<int> order{3, 3, 50, 700, 3'000'000};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(called[i].first, order[i]);
    EXPECT_EQ(called[i].second, Nanoseconds{order[i]});
  }
  EXPECT_EQ(world.now() - start, seconds{1});
  EXPECT_LT(loop.until_next_deadline(), Nanoseconds{0});
}

TEST(SimTimers, DroppedHandlesCancelEvenFromATimerOfTheSameTime) {
  SimWorld world(1, prompt());
  SimLoop& loop = world.add_process(world.add_host());
  std::shared_ptr<void> second;
  int first_calls = 0, second_calls = 0;
  const auto first = loop.at(world.now() + seconds{1}, [&] {
    ++first_calls;
    second.reset();
  });
  second = loop.at(world.now() + seconds{1}, [&] { ++second_calls; });
  std::shared_ptr<void> own;
  own = loop.at(world.now() + seconds{2}, [&] { own.reset(); });
  world.run_for(seconds{5});
  EXPECT_EQ(first_calls, 1);
  EXPECT_EQ(second_calls, 0);
  EXPECT_FALSE(own);
}

TEST(SimTimers, OfThePastCallSoon) {
  SimWorld world(1, prompt());
  SimLoop& loop = world.add_process(world.add_host());
  bool called = false;
  const auto handle = loop.at(world.now() - seconds{1}, [&] { called = true; });
  EXPECT_EQ(loop.until_next_deadline(), Nanoseconds{0});
  EXPECT_FALSE(called) << "only from run()";
  world.step();
  world.step();
  EXPECT_TRUE(called);
}

TEST(SimLoops, RunReturnsAtOnceAndVirtualTimeStands) {
  SimWorld world(1);
  SimLoop& loop = world.add_process(world.add_host());
  const TimePoint before = world.now();
  EXPECT_FALSE(loop.run(hours{1}));
  EXPECT_FALSE(loop.run(Nanoseconds{-1}));
  loop.wait(hours{1});
  int ran = 0;
  loop.post([&] {
    ++ran;
    loop.post([&] { ++ran; });
  });
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(loop.run(hours{1}));
  EXPECT_EQ(ran, 1) << "what a callback posts waits for the next run";
  EXPECT_TRUE(loop.run({}));
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(world.now(), before);
  EXPECT_EQ(loop.doorbell_descriptor(), -1);
}

TEST(SimLoops, WakesAndDoorbellsTick) {
  SimWorld world(1);
  SimLoop& loop = world.add_process(world.add_host());
  int ticks = 0;
  loop.on_tick([&] { ++ticks; });
  world.run_for(seconds{1});
  ticks = 0;
  loop.wake();
  loop.wake();
  world.run_for(seconds{1});
  EXPECT_EQ(ticks, 1);
  const auto ring = world.doorbell_of(loop.process());
  ring();
  EXPECT_EQ(ticks, 1) << "never from inside of the ring";
  world.run_for(seconds{1});
  EXPECT_EQ(ticks, 2);
  world.kill(loop.process());
  ring();
  world.run_for(seconds{1});
  EXPECT_EQ(ticks, 2);
}

TEST(SimLoops, ATickThatCallsForTicksLetsTimeGoOn) {
  SimWorld world(1, prompt());
  SimLoop& loop = world.add_process(world.add_host());
  loop.on_tick([&] { loop.wake(); });
  world.run_for(milliseconds{1});
  EXPECT_LE(world.event_count(), 1100U);
}

TEST(SimLoops, RandomFollowsFromTheSeedAndDiffersByProcess) {
  SimWorld world(5), same(5), other(6);
  std::vector<std::uint64_t> drawn;
  for (SimWorld* each : {&world, &same, &other}) {
    const int host = each->add_host();
    for (int i = 0; i < 2; ++i) drawn.push_back(each->add_process(host).random());
  }
  EXPECT_EQ(drawn[0], drawn[2]);
  EXPECT_EQ(drawn[1], drawn[3]);
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_NE(drawn[0], drawn[4]);
}

TEST(SimKill, PeersSeeAnEndAndConnectsAreRefused) {
  int resets = 0;
  for (const std::uint64_t seed : seeds(100)) {
    Pair pair(seed, rough_options(seed));
    pair.poll();
    ASSERT_TRUE(pair.connect());
    pair.world.run_for(microseconds{seed * 10});
    pair.world.kill(pair.server.process());
    ASSERT_TRUE(pair.world.run_until([&] { return pair.at_client->over(); }, hours{1})) << pair.world.replay_line();
    resets += !pair.at_client->failure().ok();
    Status refused;
    const auto again = pair.client.network().connect(pair.acceptor->address(), [&](auto stream) {
      refused = stream.status();
    });
    ASSERT_TRUE(pair.world.run_until([&] { return !refused.ok(); }, hours{1}));
    EXPECT_EQ(refused.code(), Code::network);
    EXPECT_NE(refused.text().find("onnection refused"), std::string::npos) << refused.to_string();
  }
  if (!whole_range()) return;
  EXPECT_GT(resets, 20);
  EXPECT_LT(resets, 100);
}

TEST(SimKill, ADeadProcessNeverRunsAgain) {
  Pair pair(1);
  ASSERT_TRUE(pair.connect());
  int calls = 0;
  const auto timer = pair.server.at(pair.world.now() + seconds{1}, [&] { ++calls; });
  pair.server.post([&] { ++calls; });
  pair.at_server->stream().when_readable([&] { ++calls; });
  ASSERT_TRUE(pair.at_client->write_some(100));
  pair.world.kill(pair.server.process());
  pair.server.post([&] { ++calls; });
  pair.server.wake();
  pair.world.run_for(seconds{10});
  EXPECT_FALSE(pair.server.run({}));
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(pair.at_server->read_some(10));
  EXPECT_EQ(pair.at_server->failure().code(), Code::aborted);
  EXPECT_EQ(pair.server.network().listen("10.0.0.1:0", nullptr).status().code(), Code::aborted);
}

TEST(SimKill, FromItsOwnCallback) {
  Pair pair(1);
  ASSERT_TRUE(pair.connect());
  int after = 0;
  pair.server.post([&] { pair.world.kill(pair.server.process()); });
  pair.server.post([&] { ++after; });
  ASSERT_TRUE(pair.world.run_until([&] {
    pair.at_client->read_some(1);
    return pair.at_client->over();
  }, seconds{1}));
  EXPECT_EQ(after, 0);
}

TEST(SimKill, FreesItsPortForASuccessor) {
  SimWorld world(1);
  const int host = world.add_host();
  SimLoop& first = world.add_process(host);
  SimLoop& second = world.add_process(host);
  const auto held = std::move(first.network().listen("10.0.0.1:4000", nullptr)).value();
  EXPECT_FALSE(second.network().listen("10.0.0.1:4000", nullptr).ok());
  world.kill(first.process());
  EXPECT_TRUE(second.network().listen("10.0.0.1:4000", nullptr).ok());
}

TEST(SimPause, ItsKernelGoesOnAndItCatchesUp) {
  Pair pair(1, {}, 0, 100'000);
  pair.poll();
  pair.world.pause(pair.server.process());
  ASSERT_TRUE(pair.world.run_until([&] { return pair.at_client != nullptr; }, seconds{1}))
      << "a paused process's host still answers";
  pair.world.run_for(seconds{100});
  EXPECT_FALSE(pair.at_server);
  EXPECT_EQ(pair.world.wires().at(0).arrived[0], 100'000U) << "the kernel takes in what the window allows";
  EXPECT_FALSE(pair.at_client->over());
  pair.world.resume(pair.server.process());
  EXPECT_TRUE(pair.world.run_until([&] { return pair.all_arrived(); }, seconds{1}));
  EXPECT_EQ(pair.at_server->wrong(), 0U);
}

TEST(SimPause, TimersOfAPausedProcessCallLateAndOnce) {
  SimWorld world(1);
  SimLoop& loop = world.add_process(world.add_host());
  int calls = 0;
  const auto timer = loop.at(world.now() + seconds{1}, [&] { ++calls; });
  world.pause(loop.process());
  world.run_for(seconds{5});
  EXPECT_EQ(calls, 0);
  world.resume(loop.process());
  world.run_for(seconds{1});
  EXPECT_EQ(calls, 1);
}

TEST(SimSlow, TakesLongerAndStillGetsAll) {
  Nanoseconds took[2];
  for (const int slow : {0, 1}) {
    Pair pair(1, {}, 0, 1'000'000);
    pair.poll();
    if (slow) pair.world.slow(pair.server.process(), milliseconds{100});
    const TimePoint start = pair.world.now();
    ASSERT_TRUE(pair.world.run_until([&] { return pair.all_arrived(); }, seconds{100}));
    took[slow] = pair.world.now() - start;
    EXPECT_EQ(pair.at_server->wrong(), 0U);
  }
  EXPECT_GT(took[1], 20 * took[0]);
}

}  // namespace
}  // namespace tutti::sim
