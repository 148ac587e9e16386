// Operations on streams, through real communicators over shared memory, on twins of a GPU whose streams finish late and
// in orders drawn from a seed: every collective against the host's result, groups, order on and between streams and with
// calls on host memory, no memory taken after the first call, failures let the streams go on, and waits that are left out are
// found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tests/cuda/stream_ranks.h>

#include <atomic>
#include <random>

namespace tutti::twin {
namespace {

using testing::HasSubstr;

class Streams : public testing::TestWithParam<int> {};

TEST_P(Streams, AllReduceOfAnySize) {
  ranks(GetParam(), 1, [](Rank& r) {
    constexpr std::size_t kMoreThanTheSlots = comm::Relay::kSlots * kSliceOfI64 + 12345;
    std::uint64_t seed = 0;
    for (const std::size_t n :
         {std::size_t(0), std::size_t(1), std::size_t(1000), kSliceOfI64 + 1, kMoreThanTheSlots}) {
      ++seed;
      std::int64_t *in = r.make(drawn(r.rank, n, seed)), *out = seed % 2 ? in : r.make(n);
      Work work = r.comm.all_reduce({.input = in, .output = out, .count = n, .type = kType, .stream = r.stream});
      EXPECT_EQ(r.result(out, n), sum_of(r.count, n, seed)) << n;
      EXPECT_TRUE(work.wait().ok()) << work.status().to_string();
    }
  });
}

TEST_P(Streams, EveryCollective) {
  ranks(GetParam(), 2, [](Rank& r) {
    const auto p = std::size_t(r.count), me = std::size_t(r.rank), next = std::size_t((r.rank + 1) % r.count),
               before = std::size_t((r.rank + r.count - 1) % r.count);
    for (const std::size_t n : {std::size_t(37), kSliceOfI64 / p * 2 + 5}) {
      const int root = r.count - 1;
      const auto own = [&](std::uint64_t seed, std::size_t count) { return r.make(drawn(r.rank, count, seed)); };
      std::int64_t *scattered = r.make(n), *gathered = r.make(n * p), *sent = r.make(n * p), *reduced = r.make(n),
                   *first = r.make(n), *all = r.make(n * p), *piece = r.make(n), *received = r.make(n);
      (void)r.comm.reduce_scatter(
          {.input = own(1, n * p), .output = scattered, .count = n, .type = kType, .stream = r.stream});
      (void)r.comm.all_gather({.input = own(2, n), .output = gathered, .count = n, .type = kType, .stream = r.stream});
      (void)r.comm.all_to_all({.input = own(3, n * p), .output = sent, .count = n, .type = kType, .stream = r.stream});
      (void)r.comm.reduce(
          {.input = own(4, n), .output = reduced, .count = n, .type = kType, .root = root, .stream = r.stream});
      (void)r.comm.broadcast(
          {.input = own(5, n), .output = first, .count = n, .type = kType, .root = root, .stream = r.stream});
      (void)r.comm.gather(
          {.input = own(6, n), .output = all, .count = n, .type = kType, .root = root, .stream = r.stream});
      (void)r.comm.scatter(
          {.input = own(7, n * p), .output = piece, .count = n, .type = kType, .root = root, .stream = r.stream});
      if (p > 1) {  // around the ring, begun by rank 0
        const std::int64_t* const mine = own(8, n);
        if (r.rank == 0)
          (void)r.comm.send({.input = mine, .count = n, .type = kType, .peer = int(next), .stream = r.stream});
        (void)r.comm.recv({.output = received, .count = n, .type = kType, .peer = int(before), .stream = r.stream});
        if (r.rank != 0)
          (void)r.comm.send({.input = mine, .count = n, .type = kType, .peer = int(next), .stream = r.stream});
        EXPECT_EQ(r.result(received, n), drawn(int(before), n, 8));
      }
      EXPECT_EQ(r.result(scattered, n), part(sum_of(r.count, n * p, 1), me, n));
      EXPECT_EQ(r.read(first, n), drawn(root, n, 5));
      EXPECT_EQ(r.read(piece, n), part(drawn(root, n * p, 7), me, n));
      if (r.rank == root) {
        EXPECT_EQ(r.read(reduced, n), sum_of(r.count, n, 4));
      }
      for (std::size_t from = 0; from < p; ++from) {
        EXPECT_EQ(part(r.read(gathered, n * p), from, n), drawn(int(from), n, 2));
        EXPECT_EQ(part(r.read(sent, n * p), from, n), part(drawn(int(from), n * p, 3), me, n));
        if (r.rank == root) {
          EXPECT_EQ(part(r.read(all, n * p), from, n), drawn(int(from), n, 6));
        }
      }
    }
  });
}

// Blocks of different sizes, one of them empty, some longer than a slice; packed, and with gaps between them.
TEST_P(Streams, BlocksOfDifferentSizes) {
  ranks(GetParam(), 12, [](Rank& r) {
    const auto p = std::size_t(r.count), me = std::size_t(r.rank);
    const auto size = [&](std::size_t from, std::size_t to) {
      return (from + 2 * to) % 5 == 2 ? 0 : (from * 7 + to * 3) % 4 * (kSliceOfI64 / p) + from * 100 + to * 10 + 1;
    };
    std::vector<std::size_t> counts, spread, sent, received, at;
    std::size_t all = 0, wide = 0, out = 0, in = 0;
    for (std::size_t k = 0; k < p; ++k) {
      counts.push_back(size(k, 0)), sent.push_back(size(me, k)), received.push_back(size(k, me));
      spread.push_back(wide);
      all += counts[k], wide += counts[k] + 3, out += sent[k], in += received[k];
    }
    std::int64_t *gathered = r.make(wide), *scattered = r.make(counts[me]), *exchanged = r.make(in);
    Work gather = r.comm.all_gather_v({.input = r.make(drawn(r.rank, counts[me], 1)), .output = gathered, .counts = counts,
                                       .offsets = spread, .type = kType, .stream = r.stream});
    Work scatter = r.comm.reduce_scatter_v({.input = r.make(drawn(r.rank, all, 2)), .output = scattered, .counts = counts,
                                            .type = kType, .stream = r.stream});
    Work exchange = r.comm.all_to_all_v({.input = r.make(drawn(r.rank, out, 3)), .output = exchanged, .send_counts = sent,
                                         .recv_counts = received, .type = kType, .stream = r.stream});
    for (Work* work : {&gather, &scatter, &exchange}) EXPECT_TRUE(work->wait().ok()) << work->status().to_string();
    const Values got = r.result(gathered, wide), sums = sum_of(r.count, all, 2), mixed = r.read(exchanged, in);
    const auto piece = [](const Values& of, std::size_t from, std::size_t n) {
      return Values(of.begin() + std::ptrdiff_t(from), of.begin() + std::ptrdiff_t(from + n));
    };
    std::size_t before = 0, come = 0;
    for (std::size_t k = 0; k < p; ++k) {
      EXPECT_EQ(piece(got, spread[k], counts[k]), drawn(int(k), counts[k], 1)) << k;
      if (k == me) {
        EXPECT_EQ(r.read(scattered, counts[k]), piece(sums, before, counts[k]));
      }
      std::size_t theirs = 0, skipped = 0;
      for (std::size_t to = 0; to < p; ++to) theirs += size(k, to), skipped += to < me ? size(k, to) : 0;
      EXPECT_EQ(piece(mixed, come, received[k]), piece(drawn(int(k), theirs, 3), skipped, received[k])) << k;
      before += counts[k], come += received[k];
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Streams, testing::Values(1, 2, 3, 4));

TEST(Stream, ABarrierHoldsTheStreamUntilAllHaveCome) {
  ranks(2, 19, [](Rank& r) {
    if (r.rank == 0) {
      Work work = r.comm.barrier(r.stream);
      EXPECT_FALSE(work.wait_for(std::chrono::milliseconds(20)));
      EXPECT_TRUE(r.comm.send({.input = &r.rank, .count = 4, .type = DataType::u8, .peer = 1}).wait().ok());
      EXPECT_TRUE(work.wait().ok()) << work.status().to_string();
      return;
    }
    int told = 0;
    r.gpu->hold(r.stream, true);
    Work work = r.comm.barrier(r.stream);
    EXPECT_TRUE(r.comm.recv({.output = &told, .count = 4, .type = DataType::u8, .peer = 0}).wait().ok());
    EXPECT_FALSE(work.test());
    r.gpu->hold(r.stream, false);
    EXPECT_TRUE(work.wait().ok());
  });
}

TEST(Stream, FloatsPremulAndAverage) {
  ranks(3, 3, [](Rank& r) {
    constexpr std::size_t n = 1000;
    std::vector<std::vector<float>> inputs(3, std::vector<float>(n));
    std::mt19937 random(5);
    for (auto& input : inputs)
      for (float& v : input) v = std::normal_distribution<float>()(random);
    const auto bytes = std::as_bytes(std::span(inputs[std::size_t(r.rank)]));
    for (const ReduceOp op : {ReduceOp::avg, ReduceOp::premul_sum}) {
      auto* at = *r.gpu->allocate(bytes.size());
      r.gpu->write(at, bytes);
      Work work = r.comm.all_reduce(
          {.input = at, .output = at, .count = n, .op = op, .factor = 0.5 + r.rank, .stream = r.stream});
      ASSERT_TRUE(work.wait().ok()) << work.status().to_string();
      std::vector<float> got(n);
      std::memcpy(got.data(), r.gpu->read(at, bytes.size()).data(), bytes.size());
      for (std::size_t i = 0; i < n; ++i) {
        double exact = 0;
        for (int k = 0; k < 3; ++k)
          exact += double(inputs[std::size_t(k)][i]) * (op == ReduceOp::avg ? 1.0 / 3 : 0.5 + k);
        ASSERT_NEAR(got[i], exact, 1e-5) << i;
      }
    }
  });
}

// Each call takes what the one before gave, through a kernel on the stream; the input comes from another stream, by an
// event.
bool chain_is_right(Rank& r, std::uint64_t seed, std::size_t n) {
  const StreamHandle other = r.gpu->make_stream();
  const EventHandle ready = *r.gpu->make_event();
  Values source = drawn(r.rank, n, seed);
  std::int64_t *a = r.make(n), *b = r.make(n);
  const Rows rows{n * 8};
  EXPECT_TRUE(
      r.gpu->copy(other, reinterpret_cast<std::byte*>(a), reinterpret_cast<const std::byte*>(source.data()), rows)
          .ok());
  EXPECT_TRUE(r.gpu->record(other, ready).ok());
  EXPECT_TRUE(r.gpu->wait(r.stream, ready).ok());
  const DeviceReduction twice = twice_of(b, a, n);
  Values expected = sum_of(r.count, n, seed);
  for (int k = 0; k < 3; ++k) {
    (void)r.comm.all_reduce({.input = a, .output = b, .count = n, .type = kType, .stream = r.stream});
    EXPECT_TRUE(r.gpu->reduce(r.stream, twice).ok());
    for (auto& v : expected) v = std::int64_t(std::uint64_t(v) * (k == 0 ? 2u : 2u * unsigned(r.count)));
  }
  const bool right = r.result(a, n) == expected;
  EXPECT_TRUE(r.gpu->has_run(other));
  return right;
}

TEST(Stream, KeepsItsOrder) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    ranks(
        3, seed,
        [&](Rank& r) { EXPECT_TRUE(chain_is_right(r, seed, seed % 2 ? 500 : 2 * kSliceOfI64 + 3)) << "seed " << seed; },
        seed == 4);
}

TEST(Stream, PlantedMissingWaitForTheHostIsFound) {
  std::atomic<int> wrong{0};
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    ranks(2, seed, [&](Rank& r) {
      r.gpu->drops_awaits = true;
      wrong += !chain_is_right(r, seed, 500);
      EXPECT_TRUE(r.comm.barrier().wait().ok());
    });
  EXPECT_GT(wrong, 0);
}

// Calls on two streams in turn take each other's results: what orders them is the library's own event.
bool turns_are_right(Rank& r, std::uint64_t seed, std::size_t n) {
  const StreamHandle streams[] = {r.stream, r.gpu->make_stream()};
  std::int64_t* const at = r.make(drawn(r.rank, n, seed));
  Values expected = sum_of(r.count, n, seed);
  for (int k = 0; k < 6; ++k) {
    (void)r.comm.all_reduce({.input = at, .output = at, .count = n, .type = kType, .stream = streams[k % 2]});
    for (auto& v : expected) v *= k == 0 ? 1 : r.count;
  }
  EXPECT_TRUE(r.gpu->has_run(streams[0]) && r.gpu->has_run(streams[1]));
  return r.read(at, n) == expected;
}

TEST(Stream, CallsOnTwoStreamsKeepTheirOrder) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    ranks(2, seed,
          [&](Rank& r) { EXPECT_TRUE(turns_are_right(r, seed, seed % 2 ? 300 : kSliceOfI64 + 3)) << "seed " << seed; });
}

TEST(Stream, PlantedMissingOrderBetweenStreamsIsFound) {
  std::atomic<int> wrong{0};
  for (std::uint64_t seed = 1; seed <= 5; ++seed)
    ranks(2, seed, [&](Rank& r) {
      r.gpu->drops_waits = true;
      wrong += !turns_are_right(r, seed, 300);
    });
  EXPECT_GT(wrong, 0);
}

TEST(Stream, ReturnsAtOnceAndHostCallsOvertakeIt) {
  ranks(2, 5, [](Rank& r) {
    r.gpu->hold(r.stream, true);
    constexpr std::size_t n = 3 * kSliceOfI64;
    std::int64_t* const at = r.make(drawn(r.rank, n, 1));
    Work on_stream = r.comm.all_reduce({.input = at, .output = at, .count = n, .type = kType, .stream = r.stream});
    Values host = drawn(r.rank, 100, 2);
    EXPECT_TRUE(
        r.comm.all_reduce({.input = host.data(), .output = host.data(), .count = 100, .type = kType}).wait().ok());
    EXPECT_EQ(host, sum_of(r.count, 100, 2));
    EXPECT_FALSE(on_stream.test());
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    if (r.rank == 1) {  // one stream comes late: the other rank's peers send to it meanwhile
      host = drawn(r.rank, 100, 3);
      EXPECT_TRUE(r.comm.send({.input = host.data(), .count = 100, .type = kType, .peer = 0}).wait().ok());
    } else {
      r.gpu->hold(r.stream, false);
      EXPECT_TRUE(r.comm.recv({.output = host.data(), .count = 100, .type = kType, .peer = 1}).wait().ok());
      EXPECT_EQ(host, drawn(1, 100, 3));
    }
    r.gpu->hold(r.stream, false);
    EXPECT_TRUE(on_stream.wait().ok()) << on_stream.status().to_string();
    EXPECT_EQ(r.result(at, n), sum_of(r.count, n, 1));
  });
}

TEST(Stream, TakesNoMemoryAfterTheFirstCall) {
  ranks(2, 6, [](Rank& r) {
    std::int64_t* const at = r.make(drawn(r.rank, 5000, 1));
    const StreamHandle other = r.gpu->make_stream();
    const auto call = [&](StreamHandle stream, std::size_t n) {
      EXPECT_TRUE(
          r.comm
              .all_reduce({.input = at, .output = at, .count = n, .type = kType, .op = ReduceOp::max, .stream = stream})
              .wait()
              .ok());
    };
    call(r.stream, 10);
    const std::size_t before = r.gpu->allocations(), pinned = r.gpu->pinned_bytes();
    for (std::size_t k = 0; k < 30; ++k) call(k % 2 ? other : r.stream, 10 + k * 100);
    EXPECT_EQ(r.gpu->allocations(), before);
    EXPECT_EQ(r.gpu->pinned_bytes(), pinned);
    EXPECT_GE(r.comm.memory_bytes(), comm::Relay::kSlots * comm::Relay::kSlotBytes);
  });
}

TEST(Stream, RefusesWhatItCannotDo) {
  ranks(1, 7, [](Rank& r) {
    std::int64_t* const at = r.make(10);
    const AllReduce call{.input = at, .output = at, .count = 10, .type = kType, .stream = r.stream};
    r.gpu->set_capturing(r.stream, true);
    EXPECT_EQ(r.comm.all_reduce(call).status().code(), Code::unsupported);
    EXPECT_THAT(r.comm.all_reduce(call).status().text(), HasSubstr("captured into a graph"));
    r.gpu->set_capturing(r.stream, false);
    r.comm.begin_group();
    r.gpu->set_capturing(r.stream, true);
    EXPECT_EQ(r.comm.all_reduce(call).status().code(), Code::unsupported);
    r.gpu->set_capturing(r.stream, false);
    EXPECT_EQ(r.comm.end_group().wait().code(), Code::unsupported);
    EXPECT_EQ(r.comm.all_reduce({.count = 10, .type = kType, .stream = r.stream}).status().code(),
              Code::invalid_argument);
    EXPECT_EQ(r.comm.send({.input = at, .count = 1, .type = kType, .peer = 0, .stream = r.stream}).status().code(),
              Code::unsupported);
    EXPECT_TRUE(r.comm.all_reduce(call).wait().ok());
  });
}

TEST(Stream, GoesOnWhenTheOperationFails) {
  ranks(3, 8, [](Rank& r) {
    constexpr std::size_t n = 9 * kSliceOfI64;  // more slices than slots
    std::int64_t* const at = r.make(drawn(r.rank, n, 1));
    const Code first = r.comm.all_reduce({.input = at, .output = at, .count = 10, .type = kType, .stream = r.stream}).wait().code();
    EXPECT_TRUE(first == Code::ok || (r.rank != 2 && first == Code::aborted));     // rank 2 may be through before the others are
    if (r.rank == 2) return r.comm.abort("enough");
    Work work = r.comm.all_reduce({.input = at, .output = at, .count = n, .type = kType, .stream = r.stream});
    EXPECT_EQ(work.wait().code(), Code::aborted);
    EXPECT_TRUE(r.gpu->has_run(r.stream));
    EXPECT_EQ(
        r.comm.all_reduce({.input = at, .output = at, .count = n, .type = kType, .stream = r.stream}).wait().code(),
        Code::aborted);
    r.comm.destroy();
    EXPECT_TRUE(r.gpu->has_run(r.stream));
    EXPECT_EQ(r.gpu->pinned_bytes(), 0u);
  });
}

TEST(Stream, MayBeHeldWhileTheCommunicatorEnds) {
  ranks(2, 9, [](Rank& r) {
    std::int64_t* const at = r.make(drawn(r.rank, 100, 1));
    r.gpu->hold(r.stream, true);
    Work work = r.comm.all_reduce({.input = at, .output = at, .count = 100, .type = kType, .stream = r.stream});
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    r.comm.destroy();
    EXPECT_EQ(work.wait().code(), Code::aborted);
    EXPECT_GT(r.gpu->pinned_bytes(), 0u);  // the stream has yet to pass it
    r.gpu->hold(r.stream, false);
    EXPECT_TRUE(r.gpu->has_run(r.stream));
    EXPECT_EQ(r.gpu->pinned_bytes(), 0u);
  });
}

// What is on a stream already still uses the slots when the call that it belongs to has failed, and its communicator is gone.
TEST(Stream, KeepsTheSlotsWhenACallFailsHalfEnqueued) {
  for (int taken = 1; taken < 12; ++taken) {
    ranks(1, 11, [taken](Rank& r) {
      constexpr std::size_t n = 6 * kSliceOfI64;
      std::int64_t* const at = r.make(drawn(r.rank, n, 1));
      r.gpu->hold(r.stream, true);
      r.gpu->refuses_after = taken;
      Work work = r.comm.all_reduce({.input = at, .output = at, .count = n, .type = kType, .stream = r.stream});
      EXPECT_EQ(work.wait().code(), Code::out_of_resources) << taken;
      EXPECT_THAT(work.status().text(), HasSubstr("takes no more"));
      r.comm.destroy();
      EXPECT_GT(r.gpu->pinned_bytes(), 0u) << taken;
      r.gpu->hold(r.stream, false);
      EXPECT_TRUE(r.gpu->has_run(r.stream)) << taken;
      EXPECT_EQ(r.gpu->pinned_bytes(), 0u) << taken;
    });
  }
}

TEST(Stream, NamesBothCallsThatDisagree) {
  ranks(2, 10, [](Rank& r) {
    std::int64_t* const at = r.make(drawn(r.rank, 100, 1));
    Values host(100);
    Work work = r.rank == 0
                    ? r.comm.all_reduce({.input = at, .output = at, .count = 100, .type = kType, .stream = r.stream})
                    : r.comm.broadcast({.input = host.data(), .output = host.data(), .count = 100, .type = kType});
    EXPECT_EQ(work.wait().code(), Code::mismatch);
    EXPECT_THAT(work.status().text(), testing::AllOf(HasSubstr("all_reduce"), HasSubstr("broadcast")));
    EXPECT_TRUE(r.gpu->has_run(r.stream));
  });
}

}  // namespace
}  // namespace tutti::twin
