// What a transport does with bytes from an enemy, and with a friend who sends far more than anybody waits for.
#include <random>

#include "core/crc32c.h"
#include "tcp_pair.h"

namespace tutti::tests {
namespace {

using namespace transport::conformance;
using transport::MessageKey;
using transport::tcp::encode;
using transport::tcp::Frame;
using transport::tcp::FrameType;
using transport::tcp::kHeaderBytes;

// A transport, and the bare other end of its only socket, or of two.
struct Target {
  class Sink final : public Listener {
   public:
    std::byte* landing(int, const transport::SegmentHeader&) override { return nullptr; }
    void on_segment(int, const transport::SegmentHeader& header, const std::byte*, transport::Lease lease) override {
      ++segments;
      bytes += header.bytes;
      if (keep) kept.push_back(lease);
      else lease.release();
    }
    void on_sent(int, std::uint64_t) override { ++sent; }
    void on_damaged(int, const transport::SegmentHeader&) override {}
    void on_lost(int, const Status& status) override {
      ++losses;
      why = status;
    }
    bool keep = false;
    std::vector<transport::Lease> kept;
    int segments = 0, sent = 0, losses = 0;
    std::uint64_t bytes = 0;
    Status why;
  };

  explicit Target(const TcpOptions& options = {}, std::size_t capacity = 1 << 20, bool two = false) : tcp(loop, sink, options) {
    std::vector<std::unique_ptr<Stream>> sockets;
    for (auto* const end : {&enemy, &second}) {
      if (end == &second && !two) break;
      auto to = std::make_shared<Pipe>(capacity, Faults{}), from = std::make_shared<Pipe>(capacity, Faults{});
      *end = std::make_unique<MemoryStream>(loop, from, to, "enemy", "us");
      sockets.push_back(std::make_unique<MemoryStream>(loop, to, from, "us", "enemy"));
    }
    connection = tcp.connect(3, std::move(sockets));
    before = tcp.memory_bytes();
  }
  ~Target() {
    for (auto& lease : sink.kept) lease.release();
  }
  void feed(const void* data, std::size_t bytes) { feed(*enemy, data, bytes); }
  static void feed(MemoryStream& end, const void* data, std::size_t bytes) {
    const iovec part{const_cast<void*>(data), bytes};
    (void)end.write({&part, 1});
  }
  void feed(const Frame& frame) {
    std::byte wire[kHeaderBytes];
    encode(frame, wire);
    feed(wire, sizeof wire);
  }
  void run() {
    for (int idle = 0; idle < 20; idle = tcp.poll() ? 0 : idle + 1) {}
  }
  std::size_t grown() const { return tcp.memory_bytes() - std::min(before, tcp.memory_bytes()); }

  MemoryLoop loop;
  Sink sink;
  TcpTransport tcp;
  std::unique_ptr<MemoryStream> enemy, second;
  Connection* connection = nullptr;
  std::size_t before = 0;
};

Frame data_frame(std::uint32_t sequence, std::uint32_t bytes, std::uint8_t flags = transport::tcp::kEager) {
  Frame frame;
  frame.sequence = sequence;
  frame.flags = flags;
  frame.segment = {.key = {1, sequence, 0}, .bytes = bytes, .message_bytes = bytes};
  return frame;
}

TEST(TcpHostile, random_bytes_end_the_connection) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    Target target;
    std::vector<std::uint64_t> noise(8 + random() % 2000);
    for (auto& word : noise) word = random();
    target.feed(noise.data(), noise.size() * 8);
    target.run();
    EXPECT_EQ(target.sink.losses, 1);
    EXPECT_EQ(target.sink.segments, 0);
    EXPECT_LT(target.grown(), 1u << 20);
  }
}

// Good frames, one bit of which flips: never delivered wrong.
TEST(TcpHostile, flipped_bits_never_reach_the_listener) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 500; ++trial) {
    Target target;
    std::vector<std::byte> wire(kHeaderBytes + 200);
    for (auto& byte : wire) byte = std::byte(random());
    Frame frame = data_frame(0, 200, transport::tcp::kEager | transport::tcp::kHasCrc);
    frame.payload_crc = crc32c(wire.data() + kHeaderBytes, 200);
    encode(frame, wire.data());
    const std::size_t bit = random() % (8 * wire.size());
    wire[bit / 8] ^= std::byte(1u << bit % 8);
    target.feed(wire.data(), wire.size());
    target.run();
    EXPECT_EQ(target.sink.segments, 0) << "bit " << bit;
    EXPECT_EQ(target.sink.losses, bit < 8 * kHeaderBytes ? 1 : 0) << "bit " << bit;
    EXPECT_EQ(target.tcp.counters().damaged, bit < 8 * kHeaderBytes ? 0u : 1u);
  }
}

TEST(TcpHostile, truncated_frames_deliver_nothing) {
  for (const std::size_t cut : {1, 63, 64, 65, 263}) {
    Target target;
    std::vector<std::byte> wire(kHeaderBytes + 200);
    encode(data_frame(0, 200), wire.data());
    target.feed(wire.data(), cut);
    target.enemy.reset();
    target.run();
    EXPECT_EQ(target.sink.segments, 0);
    EXPECT_EQ(target.sink.losses, 1);
    EXPECT_NE(target.sink.why.text().find("in the middle of a frame"), std::string::npos) << target.sink.why.text();
  }
}

// A peer that gives a frame up on one socket sends it again on the other. What had come on the first may be read before or after.
TEST(TcpHostile, of_two_sendings_the_later_one_counts_whichever_is_read_first) {
  constexpr std::size_t kPayload = 20'000, kHalf = kHeaderBytes + kPayload / 2;
  std::vector<std::byte> given_up(kHeaderBytes + kPayload), again(kHeaderBytes + kPayload);
  encode(data_frame(0, kPayload), given_up.data());
  encode(data_frame(0, kPayload, transport::tcp::kEager + transport::tcp::kSending), again.data());
  {
    Target target({}, 1 << 20, true);
    Target::feed(*target.second, again.data(), kHalf);
    target.run();
    target.feed(given_up.data(), given_up.size());
    target.run();
    EXPECT_EQ(target.sink.segments, 0) << "it is whole on a socket that may be dying, and half on the one that counts";
    EXPECT_EQ(target.tcp.counters().sockets_lost, 0u);
    Target::feed(*target.second, again.data() + kHalf, again.size() - kHalf);
    target.run();
    EXPECT_EQ(target.sink.segments, 1);
    EXPECT_EQ(target.sink.bytes, kPayload);
    EXPECT_EQ(target.tcp.counters().sockets_lost, 0u);
  }
  Target target({}, 1 << 20, true);
  target.feed(given_up.data(), kHalf);
  target.run();
  Target::feed(*target.second, again.data(), again.size());
  target.run();
  EXPECT_EQ(target.sink.segments, 1);
  EXPECT_EQ(target.tcp.counters().sockets_lost, 1u) << "nothing more comes there";
  EXPECT_EQ(target.sink.losses, 0);
}

// Frames with good checksums that say impossible or unfriendly things.
TEST(TcpHostile, well_made_nonsense_ends_the_connection) {
  const std::vector<std::function<void(Frame&)>> changes = {
      [](Frame& f) { f.segment.bytes = ~0u; },
      [](Frame& f) { f.segment.bytes = (4u << 20) + 1; f.segment.message_bytes = ~0ull; },
      [](Frame& f) { f.segment.offset = 100; },
      [](Frame& f) { f.segment.offset = ~0ull; },
      [](Frame& f) { f.segment.bytes = 96 << 10; f.segment.message_bytes = 96 << 10; },           // eager, and too long
      [](Frame& f) { f.segment.offset = 1 << 20; f.segment.message_bytes = 2 << 20; },  // eager, and too far in
      [](Frame& f) { f.sequence = 5000; },
      [](Frame& f) { f.ack = 1; },
      [](Frame& f) { f.ack = 0x80000000; },
      [](Frame& f) { f.type = FrameType::nack; f.segment.bytes = 0; f.sequence = 9; },
      [](Frame& f) { f.type = FrameType(9); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Target target;
    Frame frame = data_frame(0, 100);
    changes[i](frame);
    target.feed(frame);
    target.run();
    EXPECT_EQ(target.sink.losses, 1) << "change " << i;
    EXPECT_EQ(target.sink.segments, 0);
    EXPECT_LT(target.grown(), 1u << 20);
  }
}

TEST(TcpHostile, eager_bytes_beyond_the_credit_end_the_connection) {
  Target target;
  target.sink.keep = true;
  std::vector<std::byte> payload(32 << 10);
  for (std::uint32_t i = 0; i < 1000 && target.sink.losses == 0; ++i) {
    target.feed(data_frame(i, 32 << 10));
    target.feed(payload.data(), payload.size());
    target.run();
  }
  EXPECT_EQ(target.sink.losses, 1);
  EXPECT_LE(target.sink.bytes, 2u << 20);
}

// Segments that claim to be granted and are not end the connection.
TEST(TcpHostile, ungranted_segments_are_nonsense) {
  for (const std::uint32_t bytes : {256u << 10, 1000u}) {
    Target target({.landing_limit = 1 << 20});
    target.sink.keep = true;
    std::vector<std::byte> payload(bytes);
    target.feed(data_frame(0, bytes, 0));
    target.feed(payload.data(), payload.size());
    target.run();
    EXPECT_EQ(target.sink.losses, 1);
    EXPECT_EQ(target.sink.segments, 0);
    EXPECT_LT(target.grown(), 1u << 19);
  }
}

TEST(TcpHostile, grants_and_requests_without_end_are_bounded) {
  for (const FrameType type : {FrameType::grant, FrameType::request}) {
    Target target;
    Frame frame;
    frame.type = type;
    frame.segment.message_bytes = 100;
    for (std::uint32_t i = 0; i < 70000 && target.sink.losses == 0; ++i) {
      frame.sequence = i;
      frame.segment.key = {1, i, 0};
      target.feed(frame);
      if (i % 1000 == 0) target.run();
    }
    target.run();
    EXPECT_EQ(target.sink.losses, 1);
  }
}

// Thousands of messages of one communicator for which nobody waits, in both directions: what another communicator waits
// for still passes, memory stays bounded, and everything arrives when it is wanted.
class TcpFlood : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(TcpFlood, of_unexpected_messages_blocks_nobody_else) {
  const std::uint64_t bytes = GetParam();
  constexpr int kIdle = 100;               // in memory nothing takes time
  const auto count = std::max<std::uint32_t>(100, std::uint32_t(900000 / bytes));
  for (const bool in_place : {true, false}) {
    Ends ends([](Listener& a, Listener& b) {
      return std::make_unique<MemoryPair>(a, b, TcpOptions{.landing_limit = 512 << 10, .eager_limit = 512 << 10});
    });
    ends.a.in_place = ends.b.in_place = in_place;
    for (std::uint32_t k = 0; k < count; ++k) {
      ends.a.send({1, k, 0}, bytes);
      ends.b.send({1, k, 0}, bytes);
    }
    ends.run_idle(kIdle);
    EXPECT_GT(ends.a.unsent(), 0u);                          // stopped by the missing credit
    EXPECT_LE(ends.b.most_held_bytes, 600u << 10);
    for (const std::uint64_t other : {std::uint64_t{8}, bytes, std::uint64_t{300000}}) {
      const MessageKey key{2, std::uint32_t(other), 0};
      ends.a.receive(key, other);                            // waits first
      ends.a.send(key, other);
      ends.b.send(key, other);
      ends.run_idle(kIdle);
      ends.b.receive(key, other);                            // waits last
      const auto both = [&] { return ends.a.received(key) && ends.b.received(key); };
      ASSERT_TRUE(ends.run_until(both)) << other << " of " << bytes;
    }
    EXPECT_LT(ends.pair->transport(1).memory_bytes(), 6u << 20);
    for (std::uint32_t k = count; k-- > 0;) {
      ends.a.receive({1, k, 0}, bytes);
      ends.b.receive({1, k, 0}, bytes);
    }
    ASSERT_TRUE(ends.finish());
    EXPECT_EQ(static_cast<MemoryPair&>(*ends.pair).tcp(0).landing_bytes(), 0u);
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, TcpFlood, ::testing::Values(1000, 5000, 30000));

}  // namespace
}  // namespace tutti::tests
