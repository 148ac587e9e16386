// The frame's encoding, the window of arrivals and the landing pool, each by itself.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "transport/tcp/frame.h"
#include "transport/tcp/incoming.h"
#include "transport/tcp/landing_pool.h"

namespace tutti::transport::tcp {
namespace {

Frame sample() {
  Frame frame;
  frame.type = FrameType::data;
  frame.flags = kEager | kHasCrc;
  frame.sequence = 0xFFFFFFF0;
  frame.ack = 0x01020304;
  frame.credit = 77;
  frame.payload_crc = 0xCAFEBABE;
  frame.segment = {.key = {3, 0x90000001, 0xFFFF}, .bytes = 4096, .offset = 1ull << 40,
                   .message_bytes = (1ull << 40) + 9000, .call = 0x1122334455667788, .plan = 0xABCD};
  return frame;
}

TEST(TcpFrame, of_two_sendings_the_later_one_is_known_also_past_the_wrap) {
  for (unsigned first = 0; first < 16; ++first) {
    const auto flags = static_cast<std::uint8_t>(first * kSending | kHasCrc);
    const auto next = static_cast<std::uint8_t>(flags + kSending);
    EXPECT_TRUE(is_later_sending(next, flags)) << first;
    EXPECT_FALSE(is_later_sending(flags, next)) << first;
    EXPECT_FALSE(is_later_sending(flags, flags)) << first;
    EXPECT_EQ(next % kSending, kHasCrc) << "what else the flags say stays";
  }
}

TEST(TcpFrame, comes_back_as_it_went) {
  std::byte wire[kHeaderBytes];
  encode(sample(), wire);
  Frame back;
  ASSERT_EQ(decode(wire, back), nullptr);
  const Frame frame = sample();
  EXPECT_EQ(back.type, frame.type);
  EXPECT_EQ(back.flags, frame.flags);
  EXPECT_EQ(back.sequence, frame.sequence);
  EXPECT_EQ(back.ack, frame.ack);
  EXPECT_EQ(back.credit, frame.credit);
  EXPECT_EQ(back.payload_crc, frame.payload_crc);
  EXPECT_EQ(back.segment.key, frame.segment.key);
  EXPECT_EQ(back.segment.bytes, frame.segment.bytes);
  EXPECT_EQ(back.segment.offset, frame.segment.offset);
  EXPECT_EQ(back.segment.message_bytes, frame.segment.message_bytes);
  EXPECT_EQ(back.segment.call, frame.segment.call);
  EXPECT_EQ(back.segment.plan, frame.segment.plan);
  // Fields lie where the page says, little-endian.
  EXPECT_EQ(wire[12], std::byte{3});
  EXPECT_EQ(wire[24], std::byte{4});
  EXPECT_EQ(wire[27], std::byte{1});
  EXPECT_EQ(wire[48], std::byte{0x88});
}

TEST(TcpFrame, no_flipped_bit_passes) {
  std::byte wire[kHeaderBytes];
  encode(sample(), wire);
  for (std::size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
    wire[bit / 8] ^= std::byte(1u << bit % 8);
    Frame back;
    EXPECT_NE(decode(wire, back), nullptr) << "bit " << bit;
    wire[bit / 8] ^= std::byte(1u << bit % 8);
  }
}

TEST(TcpFrame, impossible_lengths_are_refused) {
  const auto refused = [](auto change) {
    Frame frame = sample(), back;
    change(frame);
    std::byte wire[kHeaderBytes];
    encode(frame, wire);
    return decode(wire, back) != nullptr;
  };
  EXPECT_FALSE(refused([](Frame&) {}));
  EXPECT_TRUE(refused([](Frame& f) { f.segment.bytes = kMaxPayload + 1; }));
  EXPECT_TRUE(refused([](Frame& f) { f.segment.bytes = ~0u; }));
  EXPECT_TRUE(refused([](Frame& f) { f.segment.offset = f.segment.message_bytes - f.segment.bytes + 1; }));
  EXPECT_TRUE(refused([](Frame& f) { f.segment.offset = ~0ull; }));
  EXPECT_TRUE(refused([](Frame& f) { f.segment.offset = ~0ull - f.segment.bytes + 1; }));
  EXPECT_TRUE(refused([](Frame& f) { f.segment.message_bytes = 1; }));
  EXPECT_TRUE(refused([](Frame& f) { f.type = FrameType(0); }));
  EXPECT_TRUE(refused([](Frame& f) { f.type = FrameType(7); }));
  EXPECT_TRUE(refused([](Frame& f) { f.type = FrameType::grant; }));      // with a payload
}

TEST(TcpFrame, numbers_widen_around_the_reference) {
  EXPECT_EQ(widen(5, 3), 5u);
  EXPECT_EQ(widen(3, 5), 3u);
  EXPECT_EQ(widen(2, 0xFFFFFFFFull), 0x100000002ull);
  EXPECT_EQ(widen(0xFFFFFFFE, 0x100000003ull), 0xFFFFFFFEull);
  EXPECT_EQ(widen(0xFFFFFFFE, 0x500000003ull), 0x4FFFFFFFEull);
}

// Against a plain set of numbers.
TEST(TcpArrivalWindow, agrees_with_a_set) {
  std::mt19937 random(5);
  ArrivalWindow window;
  std::set<std::uint64_t> arrived;
  std::uint64_t base = 0;
  for (int i = 0; i < 50000; ++i) {
    const std::uint64_t sequence = base + random() % (kWindow + 20);
    const auto expected = sequence >= base + kWindow  ? ArrivalWindow::Place::beyond
                          : arrived.contains(sequence) ? ArrivalWindow::Place::duplicate
                                                       : ArrivalWindow::Place::fresh;
    ASSERT_EQ(window.look(sequence), expected) << sequence;
    if (expected == ArrivalWindow::Place::fresh && (random() % 4 == 0 || sequence < base + 8)) {
      window.mark(sequence);
      arrived.insert(sequence);
    }
    while (arrived.contains(base)) ++base;
    ASSERT_EQ(window.base(), base);
    ASSERT_EQ(window.gaps(), !arrived.empty() && *arrived.rbegin() >= base);
    if (i % 100) continue;
    const AckBits bits = window.bits();
    for (std::uint64_t k = 0; k < 192; ++k) ASSERT_EQ(bits[k / 64] >> (k % 64) & 1, arrived.contains(base + k));
  }
  EXPECT_GT(base, 2 * kWindow);
}

TEST(TcpLandingPool, returns_what_is_over_its_limit) {
  LandingPool pool(1 << 20);
  std::vector<Landing*> out, eager;
  for (int i = 0; i < 12; ++i)
    out.push_back(pool.take(100000, false));  // 128 KB each: granted elsewhere, not refused here
  for (int i = 0; i < 4; ++i) eager.push_back(pool.take(30000, true));
  EXPECT_EQ(pool.granted_bytes(), 12u << 17);
  EXPECT_EQ(pool.eager_bytes(), 4u * 32768);
  for (Landing* landing : out) pool.give_back(landing);
  for (Landing* landing : eager) pool.give_back(landing);
  EXPECT_EQ(pool.granted_bytes(), 0u);
  EXPECT_LE(pool.memory_bytes(), 1u << 20);
  // Another size: the unused buffers of the first make room.
  for (int i = 0; i < 4; ++i) out[std::size_t(i)] = pool.take(1 << 18, false);
  EXPECT_LE(pool.memory_bytes(), 1u << 20);
  for (int i = 0; i < 4; ++i) pool.give_back(out[std::size_t(i)]);
}

}  // namespace
}  // namespace tutti::transport::tcp
