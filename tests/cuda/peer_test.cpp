// GPUs that reach each other's memory, through real communicators on twins whose kernels are emulated: every collective
// against exact values, all_reduce by one-shot and two-shot kernels, the order of streams, no memory taken after the first call; ways
// that lose bytes are found and named; ranks that disagree, stay away, abort or are killed in the middle of a meeting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tests/cuda/bodies.h>
#include <tests/cuda/twin_device.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <comm/gpu_plan.h>
#include <comm/join.h>
#include <comm/member.h>

namespace tutti::twin {
namespace {

using Values = std::vector<std::int64_t>;
using testing::AllOf;
using testing::HasSubstr;

constexpr DataType kType = DataType::i64;
constexpr std::size_t kPiece = comm::kGpuPiece / 8;

// For one test: what join reads.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

// A twin with kernels, which are counted.
class Gpu : public TwinDevice {
 public:
  explicit Gpu(std::uint64_t seed) : TwinDevice(seed) {
    make_kernel = [this, seed](const SharedExchange& exchange) {
      ++(exchange.two_shot ? two_shots : one_shots);
      return wrap(emulation::emulated_kernel(exchange, seed * 1000 + exchange.number, turns));
    };
  }
  int kernels() const { return one_shots + two_shots; }
  std::atomic<int> one_shots{0}, two_shots{0};
  std::atomic<std::uint64_t> turns{500};  // of emulated threads, at a time
  std::function<Kernel(Kernel)> wrap = [](Kernel kernel) { return kernel; };
};

struct Rank {
  Communicator comm;
  std::shared_ptr<Gpu> gpu;
  StreamHandle stream;
  int rank, count;
  std::string how;  // what use_gpu said

  std::int64_t* make(const Values& values) {
    auto* const at = *gpu->allocate(std::max<std::size_t>(values.size(), 1) * 8);
    gpu->write(at, std::as_bytes(std::span(values)));
    return reinterpret_cast<std::int64_t*>(at);
  }
  Values result(const std::int64_t* at, std::size_t n) {
    EXPECT_TRUE(gpu->has_run(stream));
    const auto bytes = gpu->read(reinterpret_cast<const std::byte*>(at), n * 8);
    Values values(n);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  Work all_reduce(std::int64_t* at, std::size_t n, ReduceOp op = ReduceOp::sum) {
    return comm.all_reduce({.input = at, .output = at, .count = n, .type = kType, .op = op, .stream = stream});
  }
};

Values drawn(int rank, std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed * 1000 + std::uint64_t(rank));
  Values values(n);
  for (auto& v : values) v = std::int64_t(random() >> 24);
  return values;
}
Values part(const Values& of, std::size_t block, std::size_t n) {
  return {of.begin() + std::ptrdiff_t(block * n), of.begin() + std::ptrdiff_t((block + 1) * n)};
}
Values sum_of(int ranks, std::size_t n, std::uint64_t seed) {
  Values sum(n);
  for (int r = 0; r < ranks; ++r) {
    const Values one = drawn(r, n, seed);
    for (std::size_t i = 0; i < n; ++i) sum[i] += one[i];
  }
  return sum;
}

// One rank, from joining to the end of what its GPU does.
void run(Rank& rank, Result<std::shared_ptr<comm::Member>> member, const std::function<void(Rank&)>& body) {
  ASSERT_TRUE(member.ok()) << member.status().to_string();
  (*member)->use_device(rank.gpu);
  rank.comm = comm::Member::handle(std::move(*member));
  rank.stream = rank.gpu->make_stream();
  auto how = rank.comm.use_gpu();
  ASSERT_TRUE(how.ok()) << how.status().to_string();
  rank.how = *how;
  body(rank);
}

Options options() {
  Options given;
  given.job_key = "peers";
  return given;
}

// Ranks as threads. `faults` before they meet.
void ranks(int count, std::uint64_t seed, const std::function<void(Rank&)>& body, bool one_gpu = false,
           const std::function<void(int, Gpu&)>& faults = {}) {
  const auto id = Communicator::make_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::shared_ptr<Gpu>> gpus;  // outlive all that their streams do
  for (int r = 0; r < count; ++r) {
    gpus.push_back(one_gpu && r > 0 ? gpus[0] : std::make_shared<Gpu>(seed * 100 + std::uint64_t(r)));
    if (faults) faults(r, *gpus.back());
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r)
    threads.emplace_back([&, r] {
      Rank rank{{}, gpus[std::size_t(r)], nullptr, r, count, ""};
      run(rank, comm::join_by_id(r, count, *id, options()), body);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& gpu : gpus) {
    EXPECT_TRUE(gpu->has_run());
    EXPECT_EQ(gpu->open_streams(), 0u);
  }
}

class Peers : public testing::TestWithParam<int> {};

TEST_P(Peers, AllReduceIsAKernel) {
  ranks(GetParam(), 1, [](Rank& r) {
    EXPECT_THAT(r.how, HasSubstr("by kernels"));
    std::uint64_t seed = 0;
    int kernels = 0;
    for (const std::size_t n : {std::size_t(1), std::size_t(1000), std::size_t(40'000), kPiece + 123}) {
      std::int64_t* const at = r.make(drawn(r.rank, n, ++seed));
      Work work = r.all_reduce(at, n);
      EXPECT_EQ(r.result(at, n), sum_of(r.count, n, seed)) << n;
      EXPECT_TRUE(work.wait().ok()) << work.status().to_string();
      EXPECT_EQ(r.gpu->kernels(), kernels += n > kPiece ? 2 : 1);
    }
    EXPECT_GT(r.gpu->one_shots, 0);
    EXPECT_EQ(r.gpu->two_shots > 0, r.count > 2);  // two ranks have nothing of it
  });
}

// Each with what it should give, in place and not, and with one kernel or several.
TEST_P(Peers, EveryCollectiveIsAKernel) {
  ranks(GetParam(), 15, [](Rank& r) {
    const std::size_t ranks = std::size_t(r.count), self = std::size_t(r.rank);
    int kernels = 0;
    std::uint64_t seed = 0;
    for (const std::size_t n : {std::size_t(1), std::size_t(5000), kPiece / ranks + 100})
      for (const bool in_place : {false, true}) {
        if (n > 5000 && in_place == (r.count == 2)) continue;  // large ones in one way only
        ++seed;
        const int root = int(seed) % r.count;
        const auto blocks = [&](int rank) { return drawn(rank, n * ranks, seed); };
        const auto block = [&](int rank, std::size_t k) { return part(blocks(rank), k, n); };
        Values gathered, dealt, sum(n * ranks);
        for (int k = 0; k < r.count; ++k) {
          const Values first = block(k, 0), mine = block(k, self), all = blocks(k);
          gathered.insert(gathered.end(), first.begin(), first.end());
          dealt.insert(dealt.end(), mine.begin(), mine.end());
          for (std::size_t i = 0; i < n * ranks; ++i) sum[i] += all[i];
        }
        const auto room = [&](const Values& mine, std::size_t at) {
          Values all(n * ranks, -1);
          std::copy(mine.begin(), mine.end(), all.begin() + std::ptrdiff_t(at * n));
          return r.make(all);
        };
        const auto expect = [&](const char* what, Work work, const std::int64_t* out, const Values& expected, std::size_t offered) {
          if (out) {
            EXPECT_EQ(r.result(out, expected.size()), expected) << what << " of " << n << (in_place ? " in place" : "");
          }
          EXPECT_TRUE(work.wait().ok()) << what << ": " << work.status().to_string();
          EXPECT_EQ(r.gpu->kernels(), kernels += n * offered > kPiece ? 2 : 1) << what;
        };
        const bool is_root = r.rank == root;
        {
          auto *const out = room(block(r.rank, 0), self), *const in = in_place ? out + self * n : r.make(block(r.rank, 0));
          expect("all_gather", r.comm.all_gather({.input = in, .output = out, .count = n, .type = kType, .stream = r.stream}), out, gathered, 1);
        }
        {
          auto *const in = r.make(blocks(r.rank)), *const out = in_place ? in + self * n : r.make(Values(n));
          expect("reduce_scatter", r.comm.reduce_scatter({.input = in, .output = out, .count = n, .type = kType, .stream = r.stream}), out,
                 part(sum, self, n), ranks);
        }
        {
          auto *const in = r.make(blocks(r.rank)), *const out = in_place ? in : r.make(Values(n * ranks));
          expect("all_to_all", r.comm.all_to_all({.input = in, .output = out, .count = n, .type = kType, .stream = r.stream}), out, dealt, ranks);
        }
        {
          auto *const in = r.make(block(r.rank, 0)), *const out = in_place ? in : r.make(Values(n));
          expect("broadcast", r.comm.broadcast({.input = is_root ? in : nullptr, .output = out, .count = n, .type = kType, .root = root, .stream = r.stream}),
                 out, block(root, 0), 1);
        }
        {
          auto *const in = r.make(block(r.rank, 0)), *const out = in_place ? in : r.make(Values(n));
          expect("reduce", r.comm.reduce({.input = in, .output = is_root ? out : nullptr, .count = n, .type = kType, .root = root, .stream = r.stream}),
                 is_root ? out : nullptr, part(sum, 0, n), 1);
        }
        {
          auto *const out = room(block(r.rank, 0), self), *const in = in_place && is_root ? out + self * n : r.make(block(r.rank, 0));
          expect("gather", r.comm.gather({.input = in, .output = is_root ? out : nullptr, .count = n, .type = kType, .root = root, .stream = r.stream}),
                 is_root ? out : nullptr, gathered, 1);
        }
        {
          auto *const in = r.make(blocks(r.rank)), *const out = in_place && is_root ? in + self * n : r.make(Values(n));
          expect("scatter", r.comm.scatter({.input = is_root ? in : nullptr, .output = out, .count = n, .type = kType, .root = root, .stream = r.stream}),
                 out, block(root, self), ranks);
        }
        expect("barrier", r.comm.barrier(r.stream), nullptr, {}, 0);
      }
  });
}

// Everybody passes a barrier when the last has come to it.
TEST(Peer, ABarrierWaitsForTheSlowest) {
  std::atomic<bool> comes{false};
  std::atomic<int> called{0};
  ranks(3, 17, [&](Rank& r) {
    if (r.rank == 1) r.gpu->hold(r.stream, true);
    Work work = r.comm.barrier(r.stream);
    ++called;
    if (r.rank == 1) {
      while (called != 3) std::this_thread::yield();
      comes = true;
      r.gpu->hold(r.stream, false);
    }
    EXPECT_TRUE(work.wait().ok()) << work.status().to_string();
    EXPECT_TRUE(comes);
  });
}
INSTANTIATE_TEST_SUITE_P(Of, Peers, testing::Values(2, 3, 4));

TEST(Peer, OtherCallsGoBetweenAsEver) {
  ranks(3, 2, [](Rank& r) {
    constexpr std::size_t n = 500;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      std::int64_t *const at = r.make(drawn(r.rank, n, seed)), *const first = r.make(drawn(r.rank, n, seed + 50));
      const int root = int(seed) % r.count;
      (void)r.comm.broadcast(
          {.input = first, .output = first, .count = n, .type = kType, .root = root, .stream = r.stream});
      (void)r.all_reduce(at, n);
      Values host = drawn(r.rank, n, seed + 70);
      EXPECT_TRUE(r.comm
                      .all_gather({.input = host.data(),
                                   .output = std::vector<Values>(1, Values(n * 3))[0].data(),
                                   .count = n,
                                   .type = kType})
                      .wait()
                      .ok());
      (void)r.all_reduce(first, n);
      EXPECT_EQ(r.result(at, n), sum_of(r.count, n, seed));
      Values expected = drawn(root, n, seed + 50);
      for (auto& v : expected) v *= r.count;
      EXPECT_EQ(r.result(first, n), expected);
    }
    EXPECT_EQ(r.gpu->kernels(), 12);
  });
}

// Sends go beside the kernels of their group.
TEST(Peer, GroupsKeepTheOrderOfTheCalls) {
  ranks(3, 12, [](Rank& r) {
    constexpr std::size_t n = 20'000;
    const int next = (r.rank + 1) % r.count, previous = (r.rank + r.count - 1) % r.count;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      std::int64_t *const at = r.make(drawn(r.rank, n, seed)), *const got = r.make(Values(n)),
                   *const spare = r.make(drawn(r.rank, n, seed));
      (void)r.all_reduce(at, n);
      r.comm.begin_group();
      (void)r.comm.send({.input = at, .count = n, .type = kType, .peer = next, .stream = r.stream});
      (void)r.all_reduce(spare, n);
      (void)r.comm.all_gather_v({.input = r.make({r.rank}), .output = r.make(Values(3)), .counts = {1, 1, 1}, .type = kType, .stream = r.stream});
      (void)r.comm.recv({.output = got, .count = n, .type = kType, .peer = previous, .stream = r.stream});
      (void)r.all_reduce(spare, n, ReduceOp::max);
      Work together = r.comm.end_group();
      EXPECT_TRUE(together.wait().ok()) << together.status().to_string();
      EXPECT_EQ(r.result(spare, n), sum_of(r.count, n, seed));
      Values expected = sum_of(r.count, n, seed);
      EXPECT_EQ(r.result(got, n), expected);
      r.comm.begin_group();
      (void)r.all_reduce(got, n);
      EXPECT_TRUE(r.comm.end_group().wait().ok());
      for (auto& v : expected) v *= r.count;
      EXPECT_EQ(r.result(got, n), expected);
      EXPECT_EQ(r.gpu->kernels(), int(4 * seed));
    }
  });
}

// What one rank has in a group the others may have one by one, receives before or behind the kernels.
TEST(Peer, AGroupOnOneRankIsNobodyElsesMatter) {
  constexpr std::size_t n = 200'000;  // more than a send leaves behind
  for (const bool receives_first : {true, false})
    ranks(3, 14, [&](Rank& r) {
      std::int64_t *const first = r.make(drawn(r.rank, n, 1)), *const second = r.make(drawn(r.rank, n, 2)), *const got = r.make(r.rank == 0 ? drawn(0, n, 3) : Values(n));
      const auto send = [&](int peer) {
        (void)r.comm.send({.input = got, .count = n, .type = kType, .peer = peer, .stream = r.stream});
      };
      const auto receive = [&] { (void)r.comm.recv({.output = got, .count = n, .type = kType, .peer = 0, .stream = r.stream}); };
      if (r.rank == 0) r.comm.begin_group();
      if (r.rank != 0 && receives_first) receive();
      (void)r.all_reduce(first, n);
      if (r.rank == 0) send(1), send(2);
      Work work = r.all_reduce(second, n);
      if (r.rank != 0 && !receives_first) receive();
      if (r.rank == 0) work = r.comm.end_group();
      EXPECT_EQ(r.result(first, n), sum_of(3, n, 1));
      EXPECT_EQ(r.result(second, n), sum_of(3, n, 2));
      EXPECT_EQ(r.result(got, n), drawn(0, n, 3));
      EXPECT_TRUE(work.wait().ok()) << work.status().to_string();
      EXPECT_EQ(r.gpu->kernels(), 2);
    });
}

TEST(Peer, FactorsMayLieOnTheGpu) {
  ranks(3, 13, [](Rank& r) {
    constexpr std::size_t n = 1000;
    Values expected(n);
    for (int rank = 0; rank < r.count; ++rank)
      for (std::size_t i = 0; i < n; ++i) expected[i] += drawn(rank, n, 1)[i] * (rank + 2);
    AllReduce call{.count = n, .type = kType, .op = ReduceOp::premul_sum, .stream = r.stream};
    std::int64_t* const at = r.make(drawn(r.rank, n, 1));
    call.input = call.output = at;
    call.factor_on_device = r.make({r.rank + 2});
    EXPECT_TRUE(r.comm.all_reduce(call).wait().ok());
    EXPECT_EQ(r.result(at, n), expected);
    EXPECT_EQ(r.gpu->kernels(), 1);
  });
}

// Calls on two streams in turn take each other's results, and a kernel of the user's between them.
bool turns_are_right(Rank& r, std::uint64_t seed) {
  constexpr std::size_t n = 300;
  const StreamHandle streams[] = {r.stream, r.gpu->make_stream()};
  std::int64_t* const at = r.make(drawn(r.rank, n, seed));
  Values expected = sum_of(r.count, n, seed);
  DeviceReduction twice;
  twice.type = kType, twice.n = 2, twice.count = n;
  twice.out = reinterpret_cast<std::byte*>(at);
  twice.inputs[0] = twice.inputs[1] = twice.out;
  for (int k = 0; k < 6; ++k) {
    (void)r.comm.all_reduce({.input = at, .output = at, .count = n, .type = kType, .stream = streams[k % 2]});
    EXPECT_TRUE(r.gpu->reduce(streams[k % 2], twice).ok());
    (void)r.comm.all_reduce(
        {.input = at, .output = at, .count = 1, .type = kType, .op = ReduceOp::max, .stream = streams[k % 2]});
    for (auto& v : expected) v *= k == 0 ? 2 : 2 * r.count;
  }
  EXPECT_TRUE(r.gpu->has_run(streams[0]) && r.gpu->has_run(streams[1]));
  return r.result(at, n) == expected;
}

TEST(Peer, KeepsTheOrderOfStreams) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    ranks(3, seed, [&](Rank& r) { EXPECT_TRUE(turns_are_right(r, seed)) << "seed " << seed; });
}

TEST(Peer, TakesNoMemoryAfterTheFirstCall) {
  ranks(2, 6, [](Rank& r) {
    std::int64_t *const at = r.make(drawn(r.rank, 5000, 1)), *const out = r.make(Values(10'000));
    EXPECT_TRUE(r.all_reduce(at, 10, ReduceOp::max).wait().ok());
    const std::size_t before = r.gpu->allocations(), pinned = r.gpu->pinned_bytes();
    for (std::size_t k = 0; k < 20; ++k) {
      const std::size_t n = 10 + k * 100;
      EXPECT_TRUE(r.all_reduce(at, n, ReduceOp::max).wait().ok());
      EXPECT_TRUE(r.comm.all_gather({.input = at, .output = out, .count = n, .type = kType, .stream = r.stream}).wait().ok());
      EXPECT_TRUE(r.comm.barrier(r.stream).wait().ok());
    }
    EXPECT_EQ(r.gpu->allocations(), before);
    EXPECT_EQ(r.gpu->pinned_bytes(), pinned);
    EXPECT_GT(r.comm.memory_bytes(), 2 * comm::kGpuPiece);
  });
}

TEST(Peer, AreasAreUsedAgainByLaterCommunicators) {
  ranks(2, 7, [](Rank& r) {
    std::vector<std::size_t> allocations;
    for (std::uint64_t round = 1; round <= 4; ++round) {
      auto part = r.comm.split(0, r.rank);
      ASSERT_TRUE(part.ok()) << part.status().to_string();
      const auto how = part->use_gpu();
      ASSERT_TRUE(how.ok()) << how.status().to_string();
      EXPECT_THAT(*how, HasSubstr("by kernels"));
      std::int64_t* const at = r.make(drawn(r.rank, 700, round));
      EXPECT_TRUE(
          part->all_reduce({.input = at, .output = at, .count = 700, .type = kType, .stream = r.stream}).wait().ok());
      EXPECT_EQ(r.result(at, 700), sum_of(2, 700, round));
      part->destroy();
      EXPECT_TRUE(r.gpu->has_run());
      EXPECT_TRUE(r.comm.barrier().wait().ok());
      allocations.push_back(r.gpu->allocations());
    }
    // A round makes pinned memory twice, two events, the buffer above; the first one an area, too.
    EXPECT_EQ(allocations[3] - allocations[2], 5u);
    EXPECT_EQ(allocations[2] - allocations[1], 5u);
  });
}

// --- ways that do not work ---

void goes_through_the_host(Rank& r) {
  std::int64_t* const at = r.make(drawn(r.rank, 1000, 1));
  EXPECT_TRUE(r.all_reduce(at, 1000).wait().ok());
  EXPECT_EQ(r.result(at, 1000), sum_of(r.count, 1000, 1));
  EXPECT_EQ(r.gpu->kernels(), 0);
}

TEST(Peer, AWayThatLosesBytesIsFoundAndNamed) {
  ranks(
      3, 3,
      [](Rank& r) {
        EXPECT_THAT(r.how,
                    AllOf(HasSubstr("through the host's memory"),
                          HasSubstr("the GPUs of rank 0 (a twin of a GPU) and rank 1"), HasSubstr("has not arrived")));
        goes_through_the_host(r);
      },
      false, [](int rank, Gpu& gpu) { gpu.loses_writes = rank == 1; });
}

TEST(Peer, NoWayIsNamed) {
  ranks(
      3, 4,
      [](Rank& r) {
        EXPECT_THAT(r.how, AllOf(HasSubstr("rank 2"), HasSubstr("the twin has no way to other GPUs")));
        goes_through_the_host(r);
      },
      false, [](int rank, Gpu& gpu) { gpu.opens_nothing = rank == 2; });
}

TEST(Peer, RanksThatShareAGpuGoThroughTheHost) {
  ranks(
      2, 5,
      [](Rank& r) {
        EXPECT_THAT(r.how, AllOf(HasSubstr("ranks 0 and 1 share one GPU"), HasSubstr("TUTTI_P2P=1")));
        goes_through_the_host(r);
      },
      true);
}

TEST(Peer, RanksMayShareAGpuWhereItIsAskedFor) {
  const Variable on("TUTTI_P2P", "1");
  ranks(
      3, 5,
      [](Rank& r) {
        EXPECT_TRUE(turns_are_right(r, 5));
        EXPECT_GT(r.gpu->kernels(), 0);
      },
      true);
}

TEST(Peer, CanBeSwitchedOff) {
  const Variable off("TUTTI_P2P", "0");
  ranks(2, 5, [](Rank& r) {
    EXPECT_THAT(r.how, HasSubstr("TUTTI_P2P=0"));
    goes_through_the_host(r);
  });
}

// --- failures ---

TEST(Peer, NamesBothCallsThatDisagree) {
  ranks(3, 8, [](Rank& r) {
    std::int64_t* const at = r.make(drawn(r.rank, 100, 1));
    EXPECT_TRUE(r.all_reduce(at, 100).wait().ok());
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    Work work = r.rank == 1 ? r.all_reduce(at, 90) : r.all_reduce(at, 100);
    EXPECT_EQ(work.wait().code(), Code::mismatch);
    EXPECT_THAT(work.status().text(), AllOf(HasSubstr("all_reduce i64[100] sum"), HasSubstr("all_reduce i64[90] sum")));
    EXPECT_TRUE(r.gpu->has_run());
  });
}

TEST(Peer, NamesACallOnHostMemory) {
  ranks(2, 9, [](Rank& r) {
    std::int64_t* const at = r.make(drawn(r.rank, 100, 1));
    Values host(100);
    Work work = r.rank == 0
                    ? r.all_reduce(at, 100)
                    : r.comm.all_reduce({.input = host.data(), .output = host.data(), .count = 100, .type = kType});
    EXPECT_EQ(work.wait().code(), Code::mismatch);
    EXPECT_THAT(work.status().text(), HasSubstr("but not on a stream of its GPU"));
    EXPECT_TRUE(r.gpu->has_run());
  });
}

TEST(Peer, NamesDifferentCollectivesOfOneSize) {
  ranks(2, 16, [](Rank& r) {
    std::int64_t *const at = r.make(drawn(r.rank, 200, 1)), *const out = r.make(Values(200));
    Work work = r.rank == 0 ? r.comm.all_gather({.input = at, .output = out, .count = 100, .type = kType, .stream = r.stream})
                            : r.comm.reduce_scatter({.input = at, .output = out, .count = 100, .type = kType, .stream = r.stream});
    EXPECT_EQ(work.wait().code(), Code::mismatch);
    EXPECT_THAT(work.status().text(), AllOf(HasSubstr("all_gather i64[100]"), HasSubstr("reduce_scatter i64[100] sum")));
    EXPECT_TRUE(r.gpu->has_run());
  });
}

TEST(Peer, APeerThatStaysAwayIsNamed) {
  const Variable absent("TUTTI_ABSENT_TIMEOUT", "2s"), timeout("TUTTI_TIMEOUT", "2s");
  ranks(3, 10, [](Rank& r) {
    std::int64_t* const at = r.make(drawn(r.rank, 100, 1));
    EXPECT_TRUE(r.all_reduce(at, 100).wait().ok());
    while (r.rank == 1 && r.comm.status().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (r.rank == 1) return;
    Work work = r.all_reduce(at, 100);
    EXPECT_EQ(work.wait().code(), Code::timeout);
    EXPECT_EQ(work.status().culprit(), 1);
    EXPECT_THAT(work.status().text(), HasSubstr("has not made the call"));
    EXPECT_TRUE(r.gpu->has_run());
  });
}

TEST(Peer, AnAbortEndsTheKernels) {
  ranks(3, 11, [](Rank& r) {
    std::int64_t* const at = r.make(drawn(r.rank, 100, 1));
    const Code first = r.all_reduce(at, 100).wait().code();
    EXPECT_TRUE(first == Code::ok ||
                (r.rank != 2 && first == Code::aborted));  // rank 2 may be through before the others are
    if (r.rank == 2) return r.comm.abort("enough");
    Work work = r.all_reduce(at, 100);
    EXPECT_EQ(work.wait().code(), Code::aborted);
    EXPECT_TRUE(r.gpu->has_run());
  });
}

// Processes, one of which is killed while its kernel is between its meetings. What the others end with: "" when all is
// well.
std::string with_a_killed_peer(int rank, int victim, const std::string& address, int slices, bool gathers) {
  const auto gpu = std::make_shared<Gpu>(std::uint64_t(rank) + 1);
  std::string wrong;
  Rank self{{}, gpu, nullptr, rank, 3, ""};
  run(self, comm::join_at(rank, 3, address, options()), [&](Rank& r) {
    std::int64_t* const at = r.make(drawn(r.rank, 200, 1));
    if (!r.all_reduce(at, 200).wait().ok() || r.result(at, 200) != sum_of(3, 200, 1))
      return void(wrong = "the first call");
    gpu->turns = 17;  // of 16 threads: they have come to their meeting, and told nobody
    if (rank == victim)
      gpu->wrap = [slices](TwinDevice::Kernel kernel) {
        return [kernel, left = slices]() mutable { return left-- == 0 ? std::raise(SIGKILL) == 0 : kernel() && false; };
      };
    std::int64_t* const all = r.make(Values(600));
    Work work = gathers ? r.comm.all_gather({.input = at, .output = all, .count = 200, .type = kType, .stream = r.stream}) : r.all_reduce(at, 200);
    const Status status = work.wait();
    if (status.code() != Code::peer_lost || status.culprit() != victim) wrong = "ended with " + status.to_string();
    if (!gpu->has_run()) wrong += "; the stream does not go on";
    if (r.all_reduce(at, 200).wait().code() != Code::peer_lost || gpu->kernels() != 2) wrong += "; a later call";
  });
  return wrong;
}

TEST(Peer, AKilledPeerEndsTheKernelsWithTheCulprit) {
  for (const auto& [slices, gathers] : {std::pair(0, false), {1, false}, {1, true}}) {
    const std::string address = "@tutti-peer-test-" + std::to_string(getpid()) + "-" + std::to_string(slices * 2 + gathers);
    constexpr int kVictim = 1;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < 3; ++rank) {
      const pid_t process = fork();
      ASSERT_GE(process, 0);
      if (process == 0) {
        const std::string wrong = with_a_killed_peer(rank, kVictim, address, slices, gathers);
        if (!wrong.empty()) fprintf(stderr, "rank %d: %s\n", rank, wrong.c_str());
        _exit(wrong.empty() && !testing::Test::HasFailure() ? 0 : 1);
      }
      processes.push_back(process);
    }
    for (int rank = 0; rank < 3; ++rank) {
      int status = 0;
      ASSERT_EQ(waitpid(processes[std::size_t(rank)], &status, 0), processes[std::size_t(rank)]);
      if (rank == kVictim)
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      else
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << ": " << status;
    }
  }
}

}  // namespace
}  // namespace tutti::twin
