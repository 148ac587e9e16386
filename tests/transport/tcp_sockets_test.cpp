// Several sockets, and what happens when they fail: loss in the middle of a message, damage on the way, a socket that
// stalls, the end of a connection. And what a small message costs.
#include <random>

#include "tcp_pair.h"

namespace tutti::tests {
namespace {

using namespace transport::conformance;
using transport::MessageKey;
using transport::TcpCounters;

MakePair memory(const TcpOptions& options, int sockets, std::vector<Faults> faults = {}) {
  return [=](Listener& a, Listener& b) {
    return std::make_unique<MemoryPair>(a, b, options, sockets, 64 << 10, faults);
  };
}
MemoryPair& memory_pair(Ends& ends) { return static_cast<MemoryPair&>(*ends.pair); }

TEST(TcpSockets, eight_bytes_are_one_write_and_one_read) {
  Ends ends(memory({}, 1));
  MemoryPair& pair = memory_pair(ends);
  ends.b.receive({1, 1, 0}, 8);
  ends.a.send({1, 1, 0}, 8);
  ASSERT_TRUE(ends.a.offer());
  EXPECT_EQ(pair.streams[0][0]->writes, 1u);           // from send() itself
  EXPECT_EQ(pair.streams[0][0]->out().written, 72u);   // header and payload
  EXPECT_TRUE(ends.a.all_sent());                      // the source was free at once
  ASSERT_TRUE(pair.tcp(1).poll());
  EXPECT_TRUE(ends.b.received({1, 1, 0}));
  EXPECT_EQ(pair.tcp(1).counters().reads, 1u);
  for (int i = 0; i < 100; ++i) ends.step();
  EXPECT_EQ(pair.streams[1][0]->writes, 0u);           // no acknowledgement on its own for it
}

TEST(TcpSockets, queued_small_frames_share_writes) {
  Ends ends(memory({}, 1));
  MemoryPair& pair = memory_pair(ends);
  pair.streams[0][0]->out().stalled = true;
  for (std::uint32_t k = 0; k < 300; ++k) {
    ends.b.receive({1, k, 0}, 8);
    ends.a.send({1, k, 0}, 8);
  }
  ends.run_idle();
  pair.streams[0][0]->out().stalled = false;
  ASSERT_TRUE(ends.finish());
  EXPECT_LE(pair.tcp(0).counters().writes, 300u / 30 + 2);
}

TEST(TcpSockets, steady_state_allocates_no_memory) {
  Ends ends(memory({}, 2));
  std::size_t memory_then = 0;
  for (std::uint32_t k = 0; k < 400; ++k) {
    const std::uint64_t bytes = k % 4 == 0 ? 200000 : 100 * (k % 50);
    ends.a.send({1, k, 0}, bytes);
    ends.b.receive({1, k, 0}, bytes);
    ASSERT_TRUE(ends.finish());
    if (k == 200) memory_then = ends.pair->transport(0).memory_bytes() + ends.pair->transport(1).memory_bytes();
  }
  EXPECT_EQ(ends.pair->transport(0).memory_bytes() + ends.pair->transport(1).memory_bytes(), memory_then);
}

TEST(TcpSockets, all_of_four_carry_a_share) {
  Ends ends(memory({}, 4));
  ends.b.receive({1, 1, 0}, 8 << 20);
  ends.a.send({1, 1, 0}, 8 << 20);
  ASSERT_TRUE(ends.finish());
  for (MemoryStream* stream : memory_pair(ends).streams[0]) EXPECT_GT(stream->out().written, 1u << 20);
  EXPECT_NE(ends.pair->connection(0).describe().find("(4 sockets)"), std::string::npos);
}

// A stalled socket keeps what it has taken and nothing else.
TEST(TcpSockets, a_stalled_one_costs_its_share_only) {
  Ends ends(memory({}, 4));
  MemoryPair& pair = memory_pair(ends);
  for (std::uint32_t k = 0; k < 8; ++k) {
    ends.b.receive({1, k, 0}, 1 << 20);
    ends.a.send({1, k, 0}, 1 << 20);
  }
  while (pair.streams[0][2]->out().written == 0) ends.step();
  pair.streams[0][2]->out().stalled = true;
  ends.run_idle();
  EXPECT_GE(ends.b.complete(), 6u);                   // at most two messages have a segment in there
  EXPECT_EQ(ends.a.unsent(), 0u);
  EXPECT_LE(ends.a.pending(), 3u);                    // what arrived is acknowledged, though not all before it
  pair.streams[0][2]->out().stalled = false;
  ASSERT_TRUE(ends.finish());
}

class TcpLoss : public ::testing::TestWithParam<int> {};

// Three of four sockets are reset, each after a random number of bytes, while messages of all sizes go both ways.
TEST_P(TcpLoss, of_sockets_loses_no_byte_and_doubles_none) {
  std::mt19937_64 random(static_cast<std::uint64_t>(GetParam()));
  std::vector<Faults> faults(8);
  for (std::size_t i = 0; i < 8; ++i) {
    faults[i].seed = random();
    faults[i].short_moves = random() % 2;
    if (i % 4 != 3) faults[i].reset_after = random() % 3000000;
  }
  Ends ends(memory({}, 4, faults));
  ends.a.in_place = random() % 2;
  std::uint32_t operation = 0;
  for (int round = 0; round < 6; ++round) {
    for (int k = 0; k < 12; ++k) {
      const MessageKey key{1 + std::uint32_t(k % 2), ++operation, 0};
      const std::uint64_t bytes = k % 3 ? random() % 9000 : random() % 900000;
      ends.a.send(key, bytes);
      ends.b.send(key, bytes);
      ends.a.receive(key, bytes);
      ends.b.receive(key, bytes);
    }
    ASSERT_TRUE(ends.finish()) << "round " << round;
  }
  const TcpCounters &a = memory_pair(ends).tcp(0).counters(), &b = memory_pair(ends).tcp(1).counters();
  EXPECT_EQ(a.sockets_lost, 3u);
  EXPECT_EQ(b.sockets_lost, 3u);
  EXPECT_GT(a.resends + b.resends, 0u);
  EXPECT_FALSE(ends.a.lost || ends.b.lost);
}
INSTANTIATE_TEST_SUITE_P(Seeds, TcpLoss, ::testing::Range(0, 25));

// Payload bits flip now and then: found, sent again, counted.
TEST(TcpSockets, damaged_payloads_are_sent_again) {
  std::vector<Faults> faults(1);
  for (std::uint64_t at = 64 + 100; at < 3000000; at += 400001) faults[0].flips[at] = unsigned(at % 8);
  Ends ends(memory({}, 1, faults));
  for (std::uint32_t k = 0; k < 4; ++k) {
    ends.b.receive({1, k, 0}, 700000);
    ends.a.send({1, k, 0}, 700000);
  }
  ASSERT_TRUE(ends.finish());
  const TcpCounters &a = memory_pair(ends).tcp(0).counters(), &b = memory_pair(ends).tcp(1).counters();
  EXPECT_EQ(b.damaged + b.sockets_lost, faults[0].flips.size());
  EXPECT_EQ(a.resends, b.damaged);
}

// A link that damages everything: not an endless loop, but the end, with the reason.
TEST(TcpSockets, damage_without_end_is_a_loss) {
  std::vector<Faults> faults(1);
  Ends ends(memory({}, 1, faults));
  Pipe& pipe = memory_pair(ends).streams[0][0]->out();
  for (std::uint64_t at = 0; at < 40 * (64 + 8192); at += 64 + 8192) pipe.faults.flips[at + 64] = 1;
  ends.b.receive({1, 1, 0}, 8192);
  ends.a.send({1, 1, 0}, 8192);
  ends.run_until([&] { return ends.a.lost && ends.b.lost; });
  EXPECT_TRUE(ends.a.lost && ends.b.lost);
  EXPECT_FALSE(ends.b.received({1, 1, 0}));
}

TEST(TcpSockets, a_damaged_header_costs_its_socket) {
  std::vector<Faults> faults(4);
  faults[0].flips[30] = 3;
  Ends ends(memory({}, 2, faults));
  for (std::uint32_t k = 0; k < 4; ++k) {
    ends.b.receive({1, k, 0}, 500000);
    ends.a.send({1, k, 0}, 500000);
  }
  ASSERT_TRUE(ends.finish());
  EXPECT_EQ(memory_pair(ends).tcp(1).counters().sockets_lost, 1u);
  EXPECT_FALSE(ends.a.lost || ends.b.lost);
}

TEST(TcpSockets, a_new_socket_takes_over) {
  Ends ends(memory({}, 1));
  MemoryPair& pair = memory_pair(ends);
  ends.b.receive({1, 1, 0}, 3 << 20);
  ends.a.send({1, 1, 0}, 3 << 20);
  while (pair.streams[0][0]->out().written < 500000) ends.step();
  auto there = std::make_shared<Pipe>(100000, Faults{}), back = std::make_shared<Pipe>(100000, Faults{});
  ASSERT_TRUE(pair.tcp(0).add_socket(Pair::kPeer, std::make_unique<MemoryStream>(pair.loop(0), back, there, "c", "d")));
  ASSERT_TRUE(pair.tcp(1).add_socket(Pair::kPeer, std::make_unique<MemoryStream>(pair.loop(1), there, back, "d", "c")));
  pair.streams[0][0]->reset();
  ASSERT_TRUE(ends.finish());
  EXPECT_GT(there->written, 1u << 20);
}

TEST(TcpSockets, the_last_ones_end_is_told_with_name_and_cause) {
  Ends ends(memory({}, 2));
  ends.a.send({1, 1, 0}, 1 << 20);
  ends.run_idle();
  for (MemoryStream* stream : memory_pair(ends).streams[0]) stream->reset();
  ends.run_until([&] { return ends.a.lost && ends.b.lost; });
  ASSERT_TRUE(ends.a.lost && ends.b.lost);
  EXPECT_EQ(ends.a.why.code(), Code::peer_lost);
  EXPECT_EQ(ends.a.why.culprit(), Pair::kPeer);
  for (const char* word : {"a:1", "b:1", "reset by the test"}) {
    EXPECT_NE(ends.a.why.text().find(word), std::string::npos) << ends.a.why.text();
  }
}

TEST(TcpSockets, disconnecting_is_told_to_the_other_side_only) {
  Ends ends(memory({}, 2));
  ends.b.receive({1, 1, 0}, 100);
  ends.a.send({1, 1, 0}, 100);
  ends.a.offer();
  memory_pair(ends).tcp(0).disconnect(Pair::kPeer);
  for (int i = 0; i < 100; ++i) ends.pair->step();
  EXPECT_FALSE(ends.a.lost);
  EXPECT_TRUE(ends.b.lost);
  EXPECT_TRUE(ends.b.received({1, 1, 0}));             // what had been sent arrives before the end
  EXPECT_NE(ends.b.why.text().find("has disconnected"), std::string::npos) << ends.b.why.text();
}

}  // namespace
}  // namespace tutti::tests
