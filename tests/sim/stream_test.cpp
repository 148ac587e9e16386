// Streams between two simulated processes: every byte, once, in order, whatever the network does; and how they end.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include "tests/sim/seeds.h"
#include "tests/sim/talker.h"

namespace tutti::sim {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

struct Named {
  const char* name;
  void (*change)(SimOptions&);
};

class EachFault : public testing::TestWithParam<Named> {};

TEST_P(EachFault, BytesComeOnceAndInOrderWhoeverPollsOrIsCalled) {
  for (const std::uint64_t seed : seeds(20)) {
    SimOptions options;
    GetParam().change(options);
    const std::uint64_t bytes = options.network.window == 1 ? 1000 : 100'000;
    Pair pair(seed, options, bytes, bytes);
    if (seed % 2) pair.poll();
    ASSERT_TRUE(pair.connect()) << pair.world.replay_line();
    if (seed % 2 == 0) {
      pair.at_server->use_callbacks();
      pair.at_client->use_callbacks();
    }
    ASSERT_TRUE(pair.world.run_until([&] { return pair.all_arrived(); }, hours{1}))
        << pair.world.replay_line() << ": " << pair.at_server->received() << " and " << pair.at_client->received();
    EXPECT_EQ(pair.at_server->wrong() + pair.at_client->wrong(), 0U) << pair.world.replay_line();
    EXPECT_FALSE(pair.at_server->over() || pair.at_client->over()) << pair.world.replay_line();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, EachFault,
    testing::Values(Named{"none", [](SimOptions&) {}},
                    Named{"short_reads", [](SimOptions& o) { o.short_read = 0.9; }},
                    Named{"short_writes", [](SimOptions& o) { o.short_write = 0.9; }},
                    Named{"would_block", [](SimOptions& o) { o.would_block = 0.9; }},
                    Named{"small_window", [](SimOptions& o) { o.network.window = 700; }},
                    Named{"window_of_one_byte",
                          [](SimOptions& o) { o.network = {.latency = Nanoseconds{1}, .jitter = {}, .window = 1}; }},
                    Named{"small_segments", [](SimOptions& o) { o.network.segment = 7; }},
                    Named{"jitter", [](SimOptions& o) { o.network.jitter = milliseconds{50}; }},
                    Named{"loss", [](SimOptions& o) { o.network.loss = 0.2; }},
                    Named{"slow_wire", [](SimOptions& o) { o.network.bytes_per_second = 1e5; }},
                    Named{"late_wakes", [](SimOptions& o) { o.wake_delay = milliseconds{20}; }}),
    [](const auto& instance) { return instance.param.name; });

TEST(SimStreams, RoughWorldsLoseNothing) {
  for (const std::uint64_t seed : seeds(300)) {
    Pair pair(seed, rough_options(seed), 20'000, 30'000, seed % 3 == 0, seed % 3 == 0 ? "@talk" : "10.0.0.1:0");
    pair.poll();
    ASSERT_TRUE(pair.world.run_until([&] { return pair.all_arrived(); }, hours{1})) << pair.world.replay_line();
    ASSERT_EQ(pair.at_server->wrong() + pair.at_client->wrong(), 0U) << pair.world.replay_line();
  }
}

TEST(SimStreams, AFullWindowBlocksTheWriterUntilTheReaderReads) {
  SimOptions options;
  options.network.window = 5000;
  Pair pair(1, options, 0, 100'000);
  ASSERT_TRUE(pair.connect());
  while (pair.at_client->write_some(3000)) {}
  EXPECT_EQ(pair.at_client->sent(), 5000U);
  pair.world.run_for(seconds{10});
  EXPECT_FALSE(pair.at_client->write_some(1)) << "nobody has read";
  EXPECT_TRUE(pair.at_server->read_some(1200));
  EXPECT_FALSE(pair.at_client->write_some(1)) << "the news is on its way";
  pair.world.run_for(seconds{1});
  while (pair.at_client->write_some(3000)) {}
  EXPECT_EQ(pair.at_client->sent(), 6200U);
}

TEST(SimStreams, UnsentBytesAreThoseThatHaveNotArrived) {
  Pair pair(1, {}, 0, 2000);
  ASSERT_TRUE(pair.connect());
  ASSERT_TRUE(pair.at_client->write_some(1500));
  EXPECT_EQ(pair.at_client->stream().unsent_bytes(), 1500U);
  pair.world.run_for(seconds{1});
  EXPECT_EQ(pair.at_client->stream().unsent_bytes(), 0U) << "arrived, though not read";
  pair.world.blackhole(0, 1);
  ASSERT_TRUE(pair.at_client->write_some(500));
  pair.world.run_for(seconds{60});
  EXPECT_EQ(pair.at_client->stream().unsent_bytes(), 500U);
  pair.world.run_for(hours{1});
  EXPECT_FALSE(pair.at_client->read_some(1));
  EXPECT_FALSE(pair.at_client->failure().ok());
  EXPECT_EQ(pair.at_client->stream().unsent_bytes(), 0U) << "the connection has been given up";
}

TEST(SimStreams, BytesTakeLatencyAndBandwidthToTheNanosecond) {
  SimOptions options;
  options.wake_delay = {};
  options.network = {.latency = milliseconds{3}, .jitter = {}, .bytes_per_second = 1e6};
  Pair pair(1, options, 0, 4000);
  ASSERT_TRUE(pair.connect());
  const TimePoint start = pair.world.now();
  TimePoint came{};
  pair.at_server->stream().when_readable([&] {
    pair.at_server->read_some(4000);
    came = pair.world.now();
  });
  ASSERT_TRUE(pair.at_client->write_some(4000));
  ASSERT_TRUE(pair.world.run_until([&] { return pair.at_server->received() == 4000; }, seconds{1}));
  EXPECT_EQ((came - start).count(), Nanoseconds(milliseconds{3 + 4}).count());
}

TEST(SimStreams, ConnectionsOfOneCardShareItsBandwidth) {
  SimOptions options;
  options.wake_delay = {};
  options.network = {.latency = {}, .jitter = {}, .bytes_per_second = 1e6, .segment = 1000};
  SimWorld world(1, options);
  SimLoop& server = world.add_process(world.add_host());
  SimLoop& client = world.add_process(world.add_host());
  std::vector<std::unique_ptr<Talker>> in, out;
  const auto acceptor = std::move(server.network().listen("10.0.0.1:0", [&](std::unique_ptr<Stream> stream) {
    in.push_back(std::make_unique<Talker>(std::move(stream), 0, 0, 7));
  })).value();
  std::vector<std::shared_ptr<void>> connecting;
  for (int i = 0; i < 4; ++i) {
    connecting.push_back(client.network().connect(acceptor->address(), [&](Result<std::unique_ptr<Stream>> stream) {
      out.push_back(std::make_unique<Talker>(std::move(stream).value(), 7, 10'000, 0));
    }));
  }
  ASSERT_TRUE(world.run_until([&] { return in.size() == 4 && out.size() == 4; }, seconds{1}));
  const TimePoint start = world.now();
  for (auto& talker : in) talker->use_callbacks();
  for (auto& talker : out) talker->write_some(10'000);
  ASSERT_TRUE(world.run_until([&] {
    return std::all_of(in.begin(), in.end(), [](auto& talker) { return talker->received() == 10'000; });
  }, seconds{1}));
  EXPECT_EQ((world.now() - start).count(), Nanoseconds(milliseconds{40}).count());
}

TEST(SimStreams, ShortReadsAndWritesAreShort) {
  SimOptions options;
  options.short_read = 1;
  Pair reads(1, options, 0, 4000);
  ASSERT_TRUE(reads.connect());
  ASSERT_TRUE(reads.at_client->write_some(4000));
  reads.world.run_for(seconds{1});
  EXPECT_TRUE(reads.at_server->read_some(4000));
  EXPECT_LT(reads.at_server->received(), 4000U);
  options.short_read = 0;
  options.short_write = 1;
  Pair writes(1, options, 0, 4000);
  ASSERT_TRUE(writes.connect());
  ASSERT_TRUE(writes.at_client->write_some(4000));
  EXPECT_LT(writes.at_client->sent(), 4000U);
}

TEST(SimStreams, ClosingSendsWhatWasWrittenAndThenTheEnd) {
  for (const std::uint64_t seed : seeds(50)) {
    Pair pair(seed, rough_options(seed), 0, 2000);
    pair.server.on_tick([&] {
      pair.server.run({});
      if (pair.at_server) pair.at_server->pump();
    });
    ASSERT_TRUE(pair.connect());
    ASSERT_TRUE(pair.world.run_until([&] { return pair.at_client->write_some(100); }, seconds{1}));
    const std::uint64_t sent = pair.at_client->sent();
    pair.at_client->close();
    ASSERT_TRUE(pair.world.run_until([&] { return pair.at_server->closed(); }, minutes{10}))
        << pair.world.replay_line();
    EXPECT_EQ(pair.at_server->received(), sent) << pair.world.replay_line();
    EXPECT_TRUE(pair.at_server->failure().ok());
  }
}

TEST(SimStreams, ClosingWithUnreadBytesResets) {
  Pair pair(1, {}, 100, 100);
  ASSERT_TRUE(pair.connect());
  ASSERT_TRUE(pair.at_server->write_some(100));
  pair.world.run_for(seconds{1});
  pair.at_client->close();
  pair.world.run_for(seconds{1});
  EXPECT_FALSE(pair.at_server->read_some(10));
  EXPECT_EQ(pair.at_server->failure().code(), Code::network) << pair.at_server->failure().to_string();
  EXPECT_NE(pair.at_server->failure().text().find("onnection reset"), std::string::npos);
}

TEST(SimStreams, WritingToAClosedPeerFailsAfterARoundTrip) {
  Pair pair(1, {}, 0, 1000);
  ASSERT_TRUE(pair.connect());
  pair.at_server->close();
  pair.world.run_for(seconds{1});
  EXPECT_FALSE(pair.at_client->read_some(10));
  EXPECT_TRUE(pair.at_client->closed());
  EXPECT_TRUE(pair.at_client->write_some(10)) << "the kernel does not know yet";
  pair.world.run_for(seconds{1});
  EXPECT_FALSE(pair.at_client->write_some(10));
  EXPECT_EQ(pair.at_client->failure().code(), Code::network);
}

TEST(SimStreams, AHalfClosedStreamStillCarriesTheOtherDirection) {
  Pair pair(1, {}, 50'000, 1000);
  ASSERT_TRUE(pair.connect());
  ASSERT_TRUE(pair.at_client->write_some(10));
  pair.world.half_close(pair.at_client->wire(), 0);
  EXPECT_FALSE(pair.at_client->write_some(10));
  EXPECT_FALSE(pair.at_client->failure().ok()) << "no writing after shutdown";
  std::uint64_t received = 0;
  pair.client.on_tick([&] {
    std::vector<std::byte> data(1000);
    while (const std::size_t bytes = pair.at_client->stream().read(data).bytes) received += bytes;
  });
  pair.server.on_tick([&] { pair.at_server->pump(); });
  ASSERT_TRUE(pair.world.run_until([&] { return received == 50'000; }, seconds{10}));
  EXPECT_EQ(pair.at_server->received(), 10U);
  EXPECT_TRUE(pair.at_server->closed());
}

TEST(SimStreams, AResetInMidFrameComesAfterExactlySoManyBytes) {
  for (const std::uint64_t seed : seeds(100)) {
    Pair pair(seed, {}, 0, 10'000);
    pair.poll();
    ASSERT_TRUE(pair.world.run_until([&] { return pair.at_client != nullptr; }, seconds{1}));
    const std::uint64_t wire = pair.at_client->wire();
    const std::uint64_t bytes = 1 + seed * 97;
    pair.world.reset_after(wire, 0, bytes);
    ASSERT_TRUE(pair.world.run_until([&] {
      return pair.at_server && pair.at_server->over() && pair.at_client->over();
    }, seconds{1})) << pair.world.replay_line();
    EXPECT_EQ(pair.world.wires().at(0).arrived[0], bytes);
    EXPECT_LE(pair.at_server->received(), bytes);
    EXPECT_EQ(pair.at_server->wrong(), 0U);
    EXPECT_EQ(pair.at_server->failure().code(), Code::network);
    EXPECT_EQ(pair.at_client->failure().code(), Code::network);
  }
}

TEST(SimStreams, RandomResetsEndSomeConnectionsAndHarmNoByte) {
  int ended = 0;
  for (const std::uint64_t seed : seeds(200)) {
    SimOptions options;
    options.network.segment = 1000;
    options.network.reset = 0.005;
    Pair pair(seed, options);
    pair.poll();
    ASSERT_TRUE(pair.world.run_until([&] {
      const bool both = pair.at_server && pair.at_client;
      return pair.all_arrived() || (both && pair.at_server->over() && pair.at_client->over());
    }, seconds{10})) << pair.world.replay_line();
    ended += pair.at_server->over();
    ASSERT_EQ(pair.at_server->wrong() + pair.at_client->wrong(), 0U);
  }
  if (!whole_range()) return;
  // 200 segments each: (1 - 0.005)^200 = 0.37 live.
  EXPECT_GT(ended, 90);
  EXPECT_LT(ended, 160);
}

TEST(SimStreams, AStalledConnectionGoesOnAfterwardsWhileOthersDo) {
  Pair pair(3);
  pair.poll();
  ASSERT_TRUE(pair.connect());
  ASSERT_TRUE(pair.world.run_until([&] { return pair.at_server->received() > 0; }, seconds{1}));
  pair.world.stall(pair.at_client->wire(), true);
  pair.world.run_for(minutes{1});
  EXPECT_FALSE(pair.all_arrived());
  EXPECT_FALSE(pair.at_client->over() || pair.at_server->over()) << "silence is no error";
  pair.world.stall(pair.at_client->wire(), false);
  EXPECT_TRUE(pair.world.run_until([&] { return pair.all_arrived(); }, minutes{1}));
  EXPECT_EQ(pair.at_server->wrong() + pair.at_client->wrong(), 0U);
}

TEST(SimStreams, AWriterGivesUpAfterAQuarterOfAnHourOfSilence) {
  Pair pair(1);
  pair.poll();
  ASSERT_TRUE(pair.connect());
  ASSERT_TRUE(pair.world.run_until([&] { return pair.at_client->sent() > 0; }, seconds{1}));
  const TimePoint start = pair.world.now();
  pair.world.blackhole(0, 1);
  ASSERT_TRUE(pair.world.run_until([&] { return pair.at_client->over(); }, hours{1}));
  EXPECT_GE(pair.world.now() - start, seconds{924});
  EXPECT_LE(pair.world.now() - start, seconds{925});
}

bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) != -1; }

TEST(SimStreams, UnixStreamsPassDescriptorsInOrder) {
  Pair pair(1, {}, 0, 100, true, "@pass");
  ASSERT_TRUE(pair.connect());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_TRUE(pair.at_client->write_some(100));
  ASSERT_TRUE(pair.at_client->stream().send_descriptors(std::vector<int>{ends[0], ends[1]}).ok());
  EXPECT_TRUE(pair.at_server->stream().receive_descriptors().value().empty()) << "nothing can be there yet";
  ::close(ends[0]);
  ::close(ends[1]);
  pair.world.run_for(seconds{1});
  pair.at_server->read_some(100);
  ASSERT_EQ(pair.at_server->received(), 100U);
  const std::vector<int> got = pair.at_server->stream().receive_descriptors().value();
  ASSERT_EQ(got.size(), 2U);
  char letter = 'x', read_back = 0;
  EXPECT_EQ(write(got[1], &letter, 1), 1);
  EXPECT_EQ(read(got[0], &read_back, 1), 1);
  EXPECT_EQ(read_back, 'x');
  EXPECT_TRUE(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
  for (const int descriptor : got) ::close(descriptor);
}

TEST(SimStreams, DescriptorsThatNobodyTakesAreClosed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Pair pair(1, {}, 0, 0, true, "@pass");
    ASSERT_TRUE(pair.connect());
    ASSERT_TRUE(pair.at_client->stream().send_descriptors(std::vector<int>{ends[1]}).ok());
    ::close(ends[1]);
    pair.world.run_for(seconds{1});
  }
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "end of file: no copy of the writing end is left";
  EXPECT_TRUE(is_open(ends[0]));
  ::close(ends[0]);
}

TEST(SimStreams, TcpStreamsPassNoDescriptors) {
  Pair pair(1);
  ASSERT_TRUE(pair.connect());
  EXPECT_EQ(pair.at_client->stream().send_descriptors(std::vector<int>{0}).code(), Code::unsupported);
  EXPECT_EQ(pair.at_client->stream().receive_descriptors().status().code(), Code::unsupported);
}

TEST(SimStreams, CallbacksMayCloseTheirStream) {
  Pair pair(1, {}, 100, 100);
  ASSERT_TRUE(pair.connect());
  bool called = false;
  pair.at_server->stream().when_readable([&] {
    called = true;
    pair.at_server->close();
  });
  ASSERT_TRUE(pair.at_client->write_some(100));
  ASSERT_TRUE(pair.world.run_until([&] { return called; }, seconds{1}));
  pair.world.run_for(seconds{1});
  EXPECT_TRUE(called);
}

TEST(SimStreams, CallbacksAreLevelTriggered) {
  Pair pair(1, {}, 0, 100);
  ASSERT_TRUE(pair.connect());
  ASSERT_TRUE(pair.at_client->write_some(100));
  pair.world.run_for(seconds{1});
  int calls = 0;
  pair.at_server->stream().when_readable([&] {      // set long after the bytes came
    if (++calls == 5) pair.at_server->read_some(100);   // four times it does not read
  });
  pair.world.run_for(seconds{1});
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace tutti::sim
