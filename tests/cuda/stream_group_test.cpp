// Groups of operations on streams, on twins of a GPU: everything goes on at once, whatever its size and whoever waits for whom;
// all streams of a group wait for all of it; nothing is taken after the first; failures let the streams go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tests/cuda/stream_ranks.h>

#include <atomic>
#include <thread>

namespace tutti::twin {
namespace {

using testing::HasSubstr;

class StreamGroups : public testing::TestWithParam<int> {};

// Everybody sends to everybody, itself too, before it receives, more than the slots hold; with collectives between.
TEST_P(StreamGroups, AGroupGoesOnAtOnce) {
  ranks(GetParam(), 13, [](Rank& r) {
    const StreamHandle other = r.gpu->make_stream();
    const auto size = [](int from, int to) {
      return std::size_t(from + to) % 3 == 0 ? 100 + std::size_t(to) : 6 * comm::Relay::kPairSlotBytes / 8 + std::size_t(from);
    };
    constexpr std::size_t n = 2 * kSliceOfI64 + 7;
    std::vector<std::int64_t*> in;
    std::int64_t *sum = r.make(drawn(r.rank, n, 50)), *all = r.make(std::size_t(r.count));
    r.comm.begin_group();
    for (int peer = 0; peer < r.count; ++peer)
      (void)r.comm.send({.input = r.make(drawn(r.rank, size(r.rank, peer), std::uint64_t(peer) + 20)),
                         .count = size(r.rank, peer), .type = kType, .peer = peer, .stream = r.stream});
    (void)r.comm.all_reduce({.input = sum, .output = sum, .count = n, .type = kType, .stream = other});
    (void)r.comm.all_gather({.input = r.make(Values{r.rank}), .output = all, .count = 1, .type = kType, .stream = r.stream});
    for (int peer = 0; peer < r.count; ++peer) {
      in.push_back(r.make(size(peer, r.rank)));
      (void)r.comm.recv({.output = in.back(), .count = size(peer, r.rank), .type = kType, .peer = peer, .stream = other});
    }
    Work group = r.comm.end_group();
    EXPECT_EQ(r.result(sum, n), sum_of(r.count, n, 50)) << "both streams go on when all of it has ended";
    EXPECT_TRUE(group.wait().ok()) << group.status().to_string();
    EXPECT_TRUE(r.gpu->has_run(other));
    for (int peer = 0; peer < r.count; ++peer) {
      EXPECT_EQ(r.read(in[std::size_t(peer)], size(peer, r.rank)),
                drawn(peer, size(peer, r.rank), std::uint64_t(r.rank) + 20)) << peer;
      EXPECT_EQ(r.read(all, std::size_t(r.count))[std::size_t(peer)], peer);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Of, StreamGroups, testing::Values(1, 2, 3, 4));

// Rank 1 passes on to rank 2 what only the second of rank 0's sends sets free: none of a group waits for another.
TEST(StreamGroup, ASendDoesNotWaitForTheOneBefore) {
  ranks(3, 14, [](Rank& r) {
    constexpr std::size_t n = 20 * comm::Relay::kPairSlotBytes / 8;
    const auto send = [&](int to, std::uint64_t seed) {
      (void)r.comm.send({.input = r.make(drawn(r.rank, n, seed)), .count = n, .type = kType, .peer = to, .stream = r.stream});
    };
    const auto receive = [&](int from) {
      std::int64_t* const at = r.make(n);
      (void)r.comm.recv({.output = at, .count = n, .type = kType, .peer = from, .stream = r.stream});
      return at;
    };
    if (r.rank == 0) {
      r.comm.begin_group();
      send(1, 1);
      send(2, 2);
      EXPECT_TRUE(r.comm.end_group().wait().ok());
    } else if (r.rank == 1) {
      const auto* const second = receive(2);
      const auto* const first = receive(0);
      EXPECT_EQ(r.result(second, n), drawn(2, n, 3));
      EXPECT_EQ(r.read(first, n), drawn(0, n, 1));
    } else {
      const auto* const first = receive(0);
      send(1, 3);
      EXPECT_EQ(r.result(first, n), drawn(0, n, 2));
    }
    EXPECT_TRUE(r.gpu->has_run());
  });
}

TEST(StreamGroup, ReturnsAtOnceAndTakesItsTurn) {
  ranks(2, 15, [](Rank& r) {
    const StreamHandle second = r.gpu->make_stream();
    for (const StreamHandle stream : {r.stream, second}) r.gpu->hold(stream, true);
    std::int64_t *a = r.make(drawn(r.rank, 1000, 1)), *b = r.make(drawn(r.rank, 1000, 2));
    r.comm.begin_group();
    Work first = r.comm.all_reduce({.input = a, .output = a, .count = 1000, .type = kType, .stream = r.stream});
    (void)r.comm.all_reduce({.input = b, .output = b, .count = 1000, .type = kType, .stream = second});
    Values host = drawn(r.rank, 10, 3);
    (void)r.comm.all_reduce({.input = host.data(), .output = host.data(), .count = 10, .type = kType});
    Work group = r.comm.end_group();
    Work alone = r.comm.all_reduce({.input = b, .output = a, .count = 1000, .type = kType, .stream = second});
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    EXPECT_EQ(host, sum_of(r.count, 10, 3));
    EXPECT_FALSE(group.test() || first.test() || alone.test());
    r.gpu->hold(r.stream, false);
    EXPECT_FALSE(group.wait_for(std::chrono::milliseconds(20))) << "its other stream has not come";
    r.gpu->hold(second, false);
    EXPECT_TRUE(group.wait().ok() && first.wait().ok() && alone.wait().ok()) << group.status().to_string();
    Values twice = sum_of(r.count, 1000, 2);
    EXPECT_EQ(r.result(b, 1000), twice);
    for (auto& v : twice) v *= r.count;
    EXPECT_EQ(r.read(a, 1000), twice) << "the call behind the group came behind it";
  });
}

TEST(StreamGroup, PlantedMissingWaitForTheHostIsFound) {
  std::atomic<int> wrong{0};
  ranks(2, 20, [&](Rank& r) {
    std::int64_t *out = r.make(drawn(r.rank, 5000, 1)), *in = r.make(5000);
    r.gpu->drops_awaits = true;
    r.comm.begin_group();
    (void)r.comm.send({.input = out, .count = 5000, .type = kType, .peer = 1 - r.rank, .stream = r.stream});
    (void)r.comm.recv({.output = in, .count = 5000, .type = kType, .peer = 1 - r.rank, .stream = r.stream});
    (void)r.comm.end_group();
    wrong += r.result(in, 5000) != drawn(1 - r.rank, 5000, 1);
    EXPECT_TRUE(r.comm.barrier().wait().ok());
  });
  EXPECT_GT(wrong, 0);
}

TEST(StreamGroup, TakesNoMemoryAfterTheFirst) {
  ranks(2, 16, [](Rank& r) {
    std::int64_t *out = r.make(drawn(r.rank, 5000, 1)), *in = r.make(5000);
    const auto exchange = [&](std::size_t n) {
      r.comm.begin_group();
      (void)r.comm.send({.input = out, .count = n, .type = kType, .peer = 1 - r.rank, .stream = r.stream});
      (void)r.comm.recv({.output = in, .count = n, .type = kType, .peer = 1 - r.rank, .stream = r.stream});
      EXPECT_TRUE(r.comm.end_group().wait().ok());
      EXPECT_EQ(r.result(in, n), part(drawn(1 - r.rank, 5000, 1), 0, n));
    };
    exchange(10);
    const std::size_t before = r.gpu->allocations();
    for (std::size_t k = 1; k <= 20; ++k) exchange(k * 200);
    EXPECT_EQ(r.gpu->allocations(), before);
  });
}

TEST(StreamGroup, GoesOnWhenItFails) {
  std::atomic<bool> begun{false};       // not by a barrier: an abort may come before the other rank's is over
  ranks(2, 17, [&begun](Rank& r) {
    constexpr std::size_t n = 9 * comm::Relay::kPairSlotBytes / 8;
    if (r.rank == 1) {
      while (!begun) std::this_thread::yield();
      return r.comm.abort("enough");
    }
    std::int64_t *out = r.make(drawn(0, n, 1)), *in = r.make(n);
    r.comm.begin_group();
    (void)r.comm.send({.input = out, .count = n, .type = kType, .peer = 1, .stream = r.stream});
    (void)r.comm.recv({.output = in, .count = n, .type = kType, .peer = 1, .stream = r.stream});
    Work group = r.comm.end_group();
    begun = true;
    EXPECT_EQ(group.wait().code(), Code::aborted);
    EXPECT_TRUE(r.gpu->has_run(r.stream));
    r.comm.destroy();
    EXPECT_EQ(r.gpu->pinned_bytes(), 0u);
  });
}

TEST(StreamGroup, WhatIsSentToOneselfIsReceivedInIt) {
  ranks(1, 18, [](Rank& r) {
    std::int64_t *a = r.make(Values{1, 2, 3}), *b = r.make(3);
    const Send send{.input = a, .count = 3, .type = kType, .peer = 0, .stream = r.stream};
    r.comm.begin_group();
    (void)r.comm.send(send);
    Work alone = r.comm.end_group();
    EXPECT_EQ(alone.wait().code(), Code::unsupported);
    EXPECT_THAT(alone.status().text(), HasSubstr("1 sends and 0 receives in the group"));
    r.comm.begin_group();
    (void)r.comm.recv({.output = b, .count = 2, .type = kType, .peer = 0, .stream = r.stream});
    (void)r.comm.send(send);
    EXPECT_EQ(r.comm.end_group().wait().code(), Code::mismatch);
    r.comm.begin_group();
    (void)r.comm.recv({.output = b, .count = 3, .type = kType, .peer = 0, .stream = r.stream});
    (void)r.comm.send(send);
    EXPECT_TRUE(r.comm.end_group().wait().ok());
    EXPECT_EQ(r.result(b, 3), (Values{1, 2, 3}));
  });
}

}  // namespace
}  // namespace tutti::twin
