// Segments that shared memory leaves with their sender: what becomes of them when they cannot be read, are wanted back, or are many.
#include <gmock/gmock.h>
#include <sys/prctl.h>

#include <deque>
#include <fstream>
#include <vector>

#include "shm_pair.h"
#include "transport/shm/layout.h"

namespace tutti::tests {
namespace {

using transport::Lease;
using transport::MessageKey;
using transport::SegmentHeader;
using transport::Sent;

constexpr std::uint32_t kBytes = 200'000;

// Keeps all that comes.
struct Keeper final : Listener {
  struct Arrival {
    SegmentHeader header;
    const std::byte* data;
    Lease lease;
  };
  std::deque<Arrival> arrivals;
  std::vector<std::uint64_t> sent;
  int losses = 0;
  std::byte* landing(int, const SegmentHeader&) override { return nullptr; }
  void on_segment(int, const SegmentHeader& header, const std::byte* data, Lease lease) override { arrivals.push_back({header, data, lease}); }
  void on_sent(int, std::uint64_t token) override { sent.push_back(token); }
  void on_damaged(int, const SegmentHeader&) override { ADD_FAILURE(); }
  void on_lost(int, const Status&) override { ++losses; }
};

struct Lending : testing::Test {
  Keeper a, b;
  std::vector<std::byte> source = std::vector<std::byte>(kBytes, std::byte{7}), target = std::vector<std::byte>(kBytes);
  std::unique_ptr<ShmPair> pair = std::make_unique<ShmPair>(a, b, ShmOptions{}, true);

  static SegmentHeader header_of(const MessageKey& key, std::uint32_t bytes, bool first = false) {
    SegmentHeader header{.key = key, .bytes = bytes, .message_bytes = bytes, .first = first};
    header.lend = true;
    return header;
  }
  Sent lend(const MessageKey& key, const std::byte* data, std::uint32_t bytes, std::uint64_t token, bool first = false) {
    return pair->connection(0).send(header_of(key, bytes, first), data, token);
  }
  void settle() {
    for (int idle = 0; idle < 100; idle = pair->step() ? 0 : idle + 1) {}
  }
  bool fetch(const Keeper::Arrival& arrival) { return arrival.lease.holder->fetch(arrival.lease.token, target.data(), arrival.header.bytes); }
};

TEST_F(Lending, TheSourceIsBusyUntilItHasBeenFetched) {
  ASSERT_GE(pair->connection(0).lent_bytes(), kBytes);
  ASSERT_EQ(lend({1, 1, 0}, source.data(), kBytes, 5), Sent::pending);
  settle();
  ASSERT_EQ(b.arrivals.size(), 1u);
  EXPECT_EQ(b.arrivals[0].data, nullptr);
  EXPECT_THAT(a.sent, testing::IsEmpty());
  EXPECT_FALSE(pair->transport(0).drained());
  EXPECT_TRUE(fetch(b.arrivals[0]));
  EXPECT_EQ(target, source);
  b.arrivals[0].lease.release();
  settle();
  EXPECT_THAT(a.sent, testing::ElementsAre(5));
  EXPECT_TRUE(pair->transport(0).drained());
  EXPECT_EQ(pair->transport(0).debts(), "");
}

// A mapping that the processor reads and the kernel does not, on behalf of others: the kernel's own clock, as a device's memory would be.
TEST_F(Lending, WhatTheKernelCannotReadComesThroughSlots) {
  std::ifstream maps("/proc/self/maps");
  const std::byte* clock = nullptr;
  std::size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with("[vvar]")) continue;
    const auto begin = std::stoull(line, nullptr, 16), end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    clock = reinterpret_cast<const std::byte*>(begin);
    bytes = std::min<std::size_t>(4096, end - begin);
  }
  if (!clock) GTEST_SKIP() << "no such mapping here";
  ASSERT_EQ(lend({1, 1, 0}, clock, std::uint32_t(bytes), 5), Sent::pending);
  ASSERT_EQ(lend({1, 2, 0}, source.data(), kBytes, 6), Sent::pending);
  settle();
  ASSERT_EQ(b.arrivals.size(), 2u);
  EXPECT_FALSE(fetch(b.arrivals[0]));
  b.arrivals[0].lease.release();
  settle();
  ASSERT_EQ(b.arrivals.size(), 3u);
  EXPECT_EQ(b.arrivals[2].header.key, (MessageKey{1, 1, 0}));
  EXPECT_EQ(b.arrivals[2].header.bytes, bytes);
  EXPECT_NE(b.arrivals[2].data, nullptr);
  b.arrivals[2].lease.release();
  settle();
  EXPECT_THAT(a.sent, testing::ElementsAre(5));
  EXPECT_EQ(pair->connection(0).lent_bytes(), 0u);      // once refused, no more is lent
  EXPECT_TRUE(fetch(b.arrivals[1]));                    // what was is
  b.arrivals[1].lease.release();
  // A segment cut while lending was on: it goes through slots, too, as there is room.
  ASSERT_EQ(lend({1, 3, 0}, source.data(), kBytes, 7), Sent::pending);
  settle();
  std::vector<std::byte> got(kBytes);
  std::size_t came = 0;
  for (std::size_t i = 3; i < b.arrivals.size(); ++i) {
    auto& arrival = b.arrivals[i];
    ASSERT_NE(arrival.data, nullptr);
    std::memcpy(got.data() + arrival.header.offset, arrival.data, arrival.header.bytes);
    came += arrival.header.bytes;
    arrival.lease.release();
    settle();
  }
  EXPECT_EQ(came, kBytes);
  EXPECT_EQ(got, source);
  EXPECT_THAT(a.sent, testing::ElementsAre(5, 6, 7));
  EXPECT_EQ(pair->transport(0).debts(), "");
}

// The operation has failed and its user has the buffer again: nobody takes what lies there now for what was sent.
TEST_F(Lending, WhatIsTakenBackIsNotFetched) {
  ASSERT_EQ(lend({1, 1, 0}, source.data(), kBytes, 5), Sent::pending);
  ASSERT_EQ(lend({2, 1, 0}, source.data(), kBytes, 6), Sent::pending);
  settle();
  ASSERT_EQ(b.arrivals.size(), 2u);
  pair->transport(0).abandon(1);
  EXPECT_FALSE(fetch(b.arrivals[0]));
  EXPECT_TRUE(fetch(b.arrivals[1]));
  for (auto& arrival : b.arrivals) arrival.lease.release();
  settle();
  EXPECT_THAT(a.sent, testing::ElementsAre(6));
  EXPECT_TRUE(pair->transport(0).drained());
  EXPECT_EQ(pair->transport(0).debts(), "");
  ASSERT_EQ(lend({3, 1, 0}, source.data(), kBytes, 7), Sent::pending);      // its ticket serves again
  settle();
  EXPECT_TRUE(fetch(b.arrivals.back()));
  b.arrivals.back().lease.release();
}

// Nobody fetches what came first; the first of another communicator still finds a way.
TEST_F(Lending, OneCommunicatorsMessagesDoNotShutOutAnothers) {
  std::uint32_t taken = 0;
  for (int tries = 0; tries < 300; ++tries) {
    if (lend({1, taken, 0}, source.data(), kBytes, taken) == Sent::pending) ++taken;
    settle();
  }
  EXPECT_EQ(taken, transport::shm::kTickets);
  EXPECT_EQ(lend({2, 0, 0}, source.data(), kBytes, 1000), Sent::again);
  ASSERT_EQ(lend({2, 0, 0}, source.data(), kBytes, 1000, true), Sent::pending);
  EXPECT_EQ(lend({2, 1, 0}, source.data(), kBytes, 1001, true), Sent::again);      // there is one of those
  settle();
  ASSERT_EQ(b.arrivals.size(), taken + 1);
  EXPECT_TRUE(fetch(b.arrivals.back()));
  b.arrivals.back().lease.release();
  settle();
  EXPECT_THAT(a.sent, testing::ElementsAre(1000));
  ASSERT_EQ(lend({2, 1, 0}, source.data(), kBytes, 1001, true), Sent::pending);
  settle();
  for (std::size_t i = 0; i < b.arrivals.size(); ++i) {
    if (i == taken) continue;                       // that one is released
    EXPECT_TRUE(fetch(b.arrivals[i])) << i;
    b.arrivals[i].lease.release();
  }
  settle();
  EXPECT_EQ(a.sent.size(), taken + 2);
  EXPECT_EQ(pair->transport(0).debts(), "");
}

TEST_F(Lending, TheOwnersEndLeavesNothingToFetch) {
  pair.reset();
  pair = std::make_unique<ShmPair>(b, a, ShmOptions{}, true);     // side 1, which can be killed, is the owner
  ASSERT_EQ(pair->connection(1).send(header_of({1, 1, 0}, kBytes), source.data(), 5), Sent::pending);
  settle();
  ASSERT_EQ(b.arrivals.size(), 1u);
  pair->kill_side_1();
  for (int i = 0; i < 100'000 && b.losses == 0; ++i) pair->step();
  ASSERT_EQ(b.losses, 1);
  EXPECT_FALSE(fetch(b.arrivals[0]));
  b.arrivals[0].lease.release();
}

// A receiver that has all it wants and goes; the sender hears of both at once.
TEST_F(Lending, WhatWasReadBeforeItsReaderLeftIsSent) {
  ASSERT_EQ(lend({1, 1, 0}, source.data(), kBytes, 5), Sent::pending);
  while (b.arrivals.empty()) pair->transport(1).poll(), pair->transport(0).poll();
  EXPECT_TRUE(fetch(b.arrivals[0]));
  b.arrivals[0].lease.release();
  pair->kill_side_1();
  for (int i = 0; i < 100'000 && a.losses == 0; ++i) pair->woken(0);      // the loop's news come before a poll
  EXPECT_EQ(a.losses, 1);
  EXPECT_THAT(a.sent, testing::ElementsAre(5));
}

// It computes now, and looks at nothing for long.
TEST_F(Lending, AReleaseWakesTheSenderByItself) {
  ASSERT_EQ(lend({1, 1, 0}, source.data(), kBytes, 5), Sent::pending);
  settle();
  ASSERT_TRUE(pair->transport(0).prepare_sleep());
  EXPECT_FALSE(pair->woken(0));
  EXPECT_TRUE(fetch(b.arrivals[0]));
  b.arrivals[0].lease.release();
  EXPECT_TRUE(pair->woken(0));
  pair->transport(0).wake_done();
  settle();
  EXPECT_THAT(a.sent, testing::ElementsAre(5));
}

// What was read and not yet told of has its ticket still.
TEST_F(Lending, AReservedTicketIsOneSegments) {
  for (std::uint32_t i = 0; i < transport::shm::kTickets; ++i) {
    while (lend({1, i, 0}, source.data(), kBytes, i) == Sent::again) settle();
  }
  settle();
  ASSERT_EQ(lend({2, 0, 0}, source.data(), kBytes, 1000, true), Sent::pending);
  while (b.arrivals.size() <= transport::shm::kTickets) pair->transport(1).poll();
  EXPECT_TRUE(fetch(b.arrivals.back()));
  b.arrivals.back().lease.release();
  EXPECT_EQ(lend({2, 1, 0}, source.data(), kBytes, 1001, true), Sent::again);      // before side 0 has looked
  settle();
  EXPECT_THAT(a.sent, testing::ElementsAre(1000));
  EXPECT_EQ(lend({2, 1, 0}, source.data(), kBytes, 1001, true), Sent::pending);
  settle();
  for (std::uint32_t i = 0; i < b.arrivals.size(); ++i)
    if (i != transport::shm::kTickets) b.arrivals[i].lease.release();
  settle();
  EXPECT_EQ(pair->transport(0).debts(), "");
}

// Communicators come and go; each may find all tickets taken.
TEST_F(Lending, ReservesOfCommunicatorsThatAreOverServeOthers) {
  for (std::uint32_t i = 0; i < transport::shm::kTickets; ++i) {
    while (lend({1, i, 0}, source.data(), kBytes, i) == Sent::again) settle();
  }
  settle();
  const std::size_t bytes = pair->transport(0).memory_bytes();
  for (std::uint32_t communicator = 2; communicator < 2 + 2 * transport::shm::kReserve; ++communicator) {
    ASSERT_EQ(lend({communicator, 0, 0}, source.data(), kBytes, 1000 + communicator, true), Sent::pending) << communicator;
    settle();
    b.arrivals.back().lease.release();
    settle();
    pair->transport(0).abandon(communicator);
  }
  EXPECT_EQ(pair->transport(0).memory_bytes(), bytes);
  for (std::uint32_t i = 0; i < transport::shm::kTickets; ++i) b.arrivals[i].lease.release();
  settle();
  EXPECT_EQ(pair->transport(0).debts(), "");
}

TEST_F(Lending, IsOffWhereItIsForbiddenOrChecksumsAreWanted) {
  EXPECT_EQ(ShmPair(a, b, ShmOptions{.check = true}, true).connection(0).lent_bytes(), 0u);
  EXPECT_EQ(ShmPair(a, b, ShmOptions{.lend = false}, true).connection(0).lent_bytes(), 0u);
}

}  // namespace
}  // namespace tutti::tests
