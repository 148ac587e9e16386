// Operations on streams straight between the memory of GPUs: ranks that are threads with a twin of a GPU each, joined by a provider of verbs in
// memory. Values against the ranks' inputs, what the devices moved out of which memory, ranks whose devices do not reach their GPU, sockets that take over,
// memory that comes and goes, failures. Whoever touches a twin's memory by the host dies of it.
#if __has_include(<infiniband/verbs.h>)
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <tests/cuda/stream_ranks.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <random>

#include "tests/transport/fake_verbs.h"
#include "transport/ranges.h"

namespace tutti::transport::rdma {

// Instead of the machine's library: each that asks is a host of the fabric that there is.
Result<const Verbs*> load_verbs() {
  static std::atomic<int> hosts{0};
  auto* const fabric = tests::FakeFabric::current;
  if (!fabric) return Status(Code::unsupported, "no devices in this test");
  return &fabric->verbs(hosts++);
}

}  // namespace tutti::transport::rdma

namespace tutti::twin {
namespace {

using testing::HasSubstr;
using tests::FakeFabric;

// For as long as it lives: a variable of the environment.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Setting() { ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

// The hosts' network: writes arrive while nobody looks.
class Network {
 public:
  explicit Network(std::uint64_t seed) : fabric(seed) {
    fabric.takes_foreign = false;
    fabric.foreign = [this](const std::byte* data, std::size_t bytes) {
      for (const auto& gpu : gpus)
        if (std::byte* const at = gpu->reached_by_devices(data, bytes)) return at;
      return static_cast<std::byte*>(nullptr);
    };
    deliverer_ = std::thread([this] {
      while (!stop_)
        if (!fabric.deliver()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
  }
  ~Network() {
    stop_ = true;
    deliverer_.join();
  }
  FakeFabric fabric;
  std::vector<std::shared_ptr<TwinDevice>> gpus;

 private:
  std::atomic<bool> stop_{false};
  std::thread deliverer_;
};

struct Straight {
  Rank& rank;
  Network& network;
  std::string how;   // what use_gpu said
};

// `spoil`: the twin of a rank, before it is used.
void straight_ranks(int count, std::uint64_t seed, const std::function<void(Straight&)>& body,
                    const std::function<void(int, TwinDevice&)>& spoil = {}) {
  static int hosts = 0;
  const Setting transport("TUTTI_TRANSPORT", "rdma"), kernels("TUTTI_P2P", "0");
  Network network(seed);
  for (int host = hosts; host < hosts + count; ++host) network.fabric.add_rail(host, 0);
  hosts += count;
  ASSERT_LT(hosts, 250);
  for (int r = 0; r < count; ++r) {
    network.gpus.push_back(std::make_shared<TwinDevice>(seed * 100 + std::uint64_t(r)));
    if (spoil) spoil(r, *network.gpus.back());
  }
  const auto id = Communicator::make_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r)
    threads.emplace_back([&, r] {
      auto member = comm::join_by_id(r, count, *id, options());
      ASSERT_TRUE(member.ok()) << member.status().to_string();
      const auto gpu = network.gpus[std::size_t(r)];
      (*member)->use_device(gpu);
      Rank rank{comm::Member::handle(std::move(*member)), gpu, gpu->make_stream(), r, count};
      const auto how = rank.comm.use_gpu();
      ASSERT_TRUE(how.ok()) << how.status().to_string();
      Straight straight{rank, network, *how};
      if (!spoil) {
        EXPECT_THAT(*how, HasSubstr("straight between the memory of the GPUs by GPUDirect RDMA: sends, receives and collectives"));
      }
      body(straight);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& gpu : network.gpus) {
    EXPECT_TRUE(gpu->has_run());
    EXPECT_EQ(gpu->open_streams(), 0u);
  }
}

// Every collective that only copies, in place and not, and a ring of sends; n of i64 a block.
void copying_collectives(Rank& r, std::size_t n, int root, std::uint64_t seed) {
  const auto p = std::size_t(r.count), me = std::size_t(r.rank);
  const int next = (r.rank + 1) % r.count, before = (r.rank + r.count - 1) % r.count;
  const auto own = [&](std::uint64_t k, std::size_t count) { return r.make(drawn(r.rank, count, seed + k)); };
  std::vector<Work> works;
  std::int64_t *gathered = r.make(n * p), *all = r.make(n * p), *sent = r.make(n * p), *piece = r.make(n), *first = r.make(n), *received = r.make(n);
  std::int64_t* const in_place = r.make(n * p);   // all_gather
  const Values block = drawn(r.rank, n, seed + 6);
  r.gpu->write(reinterpret_cast<std::byte*>(in_place + me * n), std::as_bytes(std::span(block)));
  std::int64_t *const whole = own(7, n), *const swapped = own(8, n * p), *const ring = own(9, n);
  works.push_back(r.comm.all_gather({.input = own(1, n), .output = gathered, .count = n, .type = kType, .stream = r.stream}));
  works.push_back(r.comm.gather({.input = own(2, n), .output = all, .count = n, .type = kType, .root = root, .stream = r.stream}));
  works.push_back(r.comm.scatter({.input = own(3, n * p), .output = piece, .count = n, .type = kType, .root = root, .stream = r.stream}));
  works.push_back(r.comm.broadcast({.input = own(4, n), .output = first, .count = n, .type = kType, .root = root, .stream = r.stream}));
  works.push_back(r.comm.all_to_all({.input = own(5, n * p), .output = sent, .count = n, .type = kType, .stream = r.stream}));
  works.push_back(r.comm.all_gather({.input = in_place + me * n, .output = in_place, .count = n, .type = kType, .stream = r.stream}));
  works.push_back(r.comm.broadcast({.input = whole, .output = whole, .count = n, .type = kType, .root = root, .stream = r.stream}));
  works.push_back(r.comm.all_to_all({.input = swapped, .output = swapped, .count = n, .type = kType, .stream = r.stream}));
  r.comm.begin_group();
  works.push_back(r.comm.send({.input = ring, .count = n, .type = kType, .peer = next, .stream = r.stream}));
  works.push_back(r.comm.recv({.output = received, .count = n, .type = kType, .peer = before, .stream = r.stream}));
  works.push_back(r.comm.end_group());
  EXPECT_EQ(r.result(received, n), drawn(before, n, seed + 9));
  for (Work& work : works) ASSERT_TRUE(work.wait().ok()) << work.status().to_string();
  EXPECT_EQ(r.read(piece, n), part(drawn(root, n * p, seed + 3), me, n));
  EXPECT_EQ(r.read(first, n), drawn(root, n, seed + 4));
  EXPECT_EQ(r.read(whole, n), drawn(root, n, seed + 7));
  for (std::size_t from = 0; from < p; ++from) {
    EXPECT_EQ(part(r.read(gathered, n * p), from, n), drawn(int(from), n, seed + 1));
    EXPECT_EQ(part(r.read(in_place, n * p), from, n), drawn(int(from), n, seed + 6));
    EXPECT_EQ(part(r.read(sent, n * p), from, n), part(drawn(int(from), n * p, seed + 5), me, n));
    EXPECT_EQ(part(r.read(swapped, n * p), from, n), part(drawn(int(from), n * p, seed + 8), me, n));
    if (r.rank == root) {
      EXPECT_EQ(part(r.read(all, n * p), from, n), drawn(int(from), n, seed + 2));
    }
  }
}

class Straights : public testing::TestWithParam<int> {};

// Whatever the size: 8 bytes, as long as a cell, not a multiple of anything, more than a slot.
TEST_P(Straights, EveryCollectiveThatCopies) {
  straight_ranks(GetParam(), 1, [](Straight& s) {
    std::uint64_t seed = 1;
    for (const std::size_t n : {std::size_t(1), std::size_t(1024), std::size_t(1025), std::size_t(20011), kSliceOfI64 + 3}) copying_collectives(s.rank, n, s.rank.count - 1, seed += 20);
  });
}

// No byte goes by the host's memory, neither on the streams nor on the devices; but those that are set aside in place.
TEST_P(Straights, NothingIsStaged) {
  std::atomic<std::uint64_t> staged{0};
  straight_ranks(GetParam(), 2, [&](Straight& s) {
    Rank& r = s.rank;
    constexpr std::size_t n = 30001;
    const auto p = std::size_t(r.count);
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    if (r.rank == 0) (void)s.network.fabric.moved();
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    const std::uint64_t before = r.gpu->staged_bytes();
    std::int64_t *const all = r.make(n * p), *const out = r.make(n * p), *const in = r.make(drawn(r.rank, n * p, 5));
    for (Work work : {r.comm.all_gather({.input = in, .output = all, .count = n, .type = kType, .stream = r.stream}),
                      r.comm.all_to_all({.input = in, .output = out, .count = n, .type = kType, .stream = r.stream}),
                      r.comm.broadcast({.input = in, .output = in, .count = n * p, .type = kType, .stream = r.stream})})
      EXPECT_TRUE(work.wait().ok()) << work.status().to_string();
    EXPECT_TRUE(r.gpu->has_run(r.stream));
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    staged += r.gpu->staged_bytes() - before;
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    if (r.rank != 0) return;
    const auto moved = s.network.fabric.moved();
    EXPECT_EQ(moved.into_host, 0u);
    EXPECT_EQ(moved.out_of_host, 0u);
    const std::uint64_t bytes = n * 8 * (p - 1) * p;
    EXPECT_GE(moved.into_foreign, 3 * bytes);      // a schedule may bring a rank what it has
    EXPECT_EQ(moved.out_of_foreign, moved.into_foreign);
    const auto choice = r.comm.explain(Collective::all_gather, n, kType);
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice->transport, "gpu+rdma");
  });
  EXPECT_EQ(staged, 0u);
}

// What rank r holds, for reductions.
std::vector<float> floats(int rank, std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed * 1000 + std::uint64_t(rank));
  std::vector<float> out(n);
  for (float& v : out) v = float(std::int64_t(random() >> 40) - (1 << 23)) / float(1 << 20);
  return out;
}

template <class T>
std::byte* upload(Rank& r, const std::vector<T>& values) {
  std::byte* const at = *r.gpu->allocate(values.size() * sizeof(T));
  r.gpu->write(at, std::as_bytes(std::span(values)));
  return at;
}

std::vector<float> download(Rank& r, const std::byte* at, std::size_t n) {
  std::vector<float> out(n);
  const auto bytes = r.gpu->read(at, n * sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// In float64, from elements `begin` on.
void expect_reduced(const std::vector<float>& got, int ranks, std::size_t all, std::size_t begin, ReduceOp op, std::uint64_t seed) {
  std::vector<double> exact(got.size(), op == ReduceOp::max ? -1e30 : op == ReduceOp::min ? 1e30 : 0);
  for (int k = 0; k < ranks; ++k) {
    const auto one = floats(k, all, seed);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double v = one[begin + i];
      exact[i] = op == ReduceOp::max ? std::max(exact[i], v) : op == ReduceOp::min ? std::min(exact[i], v) : exact[i] + v;
    }
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += std::abs(got[i] - exact[i] / (op == ReduceOp::avg ? ranks : 1)) > 1e-4;
  EXPECT_EQ(wrong, 0u);
}

// Shares of odd sizes, and vectors of several pieces; in place and not. No byte of the straight ones is staged.
TEST_P(Straights, EveryReduction) {
  std::atomic<std::uint64_t> staged{0};
  straight_ranks(GetParam(), 3, [&](Straight& s) {
    Rank& r = s.rank;
    const auto p = std::size_t(r.count), me = std::size_t(r.rank);
    const int root = r.count - 1;
    std::uint64_t seed = 0;
    const std::size_t most = 3 * std::size_t(comm::StraightReduction::kPiece) / 4 / 2 + 77;     // f32: one piece and a half
    for (const std::size_t n : {std::size_t(5), 4 * p * 1024 + 13, std::size_t(70001), most}) {
      const ReduceOp op = std::array{ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min}[++seed % 4];
      const bool counts = n > 100;
      const std::uint64_t before = r.gpu->staged_bytes();
      const auto mine = floats(r.rank, n, seed);
      std::byte *const in = upload(r, mine), *const out = upload(r, mine), *const at_root = upload(r, mine);
      Work apart = r.comm.all_reduce({.input = in, .output = out, .count = n, .op = op, .stream = r.stream});
      Work rooted = r.comm.reduce({.input = in, .output = r.rank == root ? at_root : nullptr, .count = n, .op = op, .root = root, .stream = r.stream});
      Work in_place = r.comm.all_reduce({.input = in, .output = in, .count = n, .op = op, .stream = r.stream});
      const std::size_t block = n / p;
      const auto blocks = floats(r.rank, block * p, seed + 50);
      std::byte *const whole = upload(r, blocks), *const piece = upload(r, std::vector<float>(std::max<std::size_t>(block, 1)));
      Work scattered = r.comm.reduce_scatter({.input = whole, .output = piece, .count = block, .op = op, .stream = r.stream});
      for (Work* work : {&apart, &rooted, &in_place, &scattered}) ASSERT_TRUE(work->wait().ok()) << work->status().to_string();
      EXPECT_TRUE(r.gpu->has_run(r.stream));
      if (counts) staged += r.gpu->staged_bytes() - before;
      expect_reduced(download(r, out, n), r.count, n, 0, op, seed);
      expect_reduced(download(r, in, n), r.count, n, 0, op, seed);
      expect_reduced(download(r, piece, block), r.count, block * p, me * block, op, seed + 50);
      if (r.rank == root) expect_reduced(download(r, at_root, n), r.count, n, 0, op, seed);
      if (n == most) {
        EXPECT_EQ(r.comm.explain(Collective::all_reduce, n, DataType::f32)->algorithm, "two-shot");
      }
    }
    EXPECT_TRUE(r.comm.barrier().wait().ok());
  });
  EXPECT_EQ(staged, 0u);
}

INSTANTIATE_TEST_SUITE_P(Of, Straights, testing::Values(2, 3, 4));

// A rank has the reduction in a group with a receive, its peer has it alone and sends afterwards.
TEST(Straight, NobodyHasToGroupAlike) {
  straight_ranks(2, 38, [](Straight& s) {
    Rank& r = s.rank;
    constexpr std::size_t n = 20011;
    for (const std::size_t sent : {std::size_t(10), n}) {      // staged, straight
      std::int64_t *const at = r.make(drawn(r.rank, n, 1)), *const other = r.make(drawn(r.rank, n, 2));
      if (r.rank == 0) r.comm.begin_group();
      if (r.rank == 0) (void)r.comm.recv({.output = other, .count = sent, .type = kType, .peer = 1, .stream = r.stream});
      (void)r.comm.all_reduce({.input = at, .output = at, .count = n, .type = kType, .stream = r.stream});
      if (r.rank == 1) (void)r.comm.send({.input = other, .count = sent, .type = kType, .peer = 0, .stream = r.stream});
      if (r.rank == 0) {
        EXPECT_TRUE(r.comm.end_group().wait().ok());
      }
      EXPECT_EQ(r.result(at, n), sum_of(2, n, 1));
      EXPECT_EQ(r.read(other, sent), [&] { Values v = drawn(1, n, 2); v.resize(sent); return v; }());
    }
    EXPECT_TRUE(r.comm.barrier().wait().ok());
  });
}

TEST(Straight, KeepsTheOrderOfTheStream) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    straight_ranks(2, 10 + seed, [seed](Straight& s) {
      Rank& r = s.rank;
      constexpr std::size_t n = 9001;
      std::int64_t *const a = r.make(drawn(r.rank, n, seed)), *const b = r.make(n);
      const DeviceReduction twice = twice_of(b, a, n);
      Values expected = drawn(0, n, seed);
      for (int k = 0; k < 4; ++k) {
        (void)r.comm.broadcast({.input = a, .output = b, .count = n, .type = kType, .root = k % 2, .stream = r.stream});
        EXPECT_TRUE(r.gpu->reduce(r.stream, twice).ok());
        (void)r.comm.all_reduce({.input = a, .output = a, .count = n, .type = kType, .stream = r.stream});
        for (auto& v : expected) v = std::int64_t(std::uint64_t(v) * 4u);
      }
      EXPECT_EQ(r.result(a, n), expected);
      EXPECT_TRUE(r.comm.barrier().wait().ok());
    });
}

TEST(Straight, PlantedMissingWaitIsFound) {
  std::atomic<int> wrong{0};
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    straight_ranks(2, 20 + seed, [&](Straight& s) {
      Rank& r = s.rank;
      constexpr std::size_t n = 9001;
      std::int64_t *const a = r.make(drawn(r.rank, n, seed)), *const b = r.make(n);
      r.gpu->drops_awaits = true;
      Work work = r.comm.all_gather({.input = a, .output = r.make(2 * n), .count = n, .type = kType, .stream = r.stream});
      Work next = r.comm.broadcast({.input = a, .output = b, .count = n, .type = kType, .root = 0, .stream = r.stream});
      const Values seen = r.result(b, n);
      wrong += r.rank == 1 && seen != drawn(0, n, seed);
      (void)r.comm.barrier().wait();      // what is still under way fails with the first that leaves
    });
  EXPECT_GT(wrong, 0);
}

// One rank's devices do not come to its GPU: collectives are staged, and so is what it sends; the other pairs go straight.
TEST(Straight, ARankThatIsNotReachedIsNamed) {
  straight_ranks(3, 30, [](Straight& s) {
    Rank& r = s.rank;
    EXPECT_THAT(s.how, testing::AllOf(HasSubstr("sends and receives of 1 of 3 pairs of ranks"), HasSubstr("rank 2: off for a twin of a GPU/fake0: no dma-buf support in this driver, nvidia_peermem")));
    copying_collectives(r, 20011, 1, 3);
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    if (r.rank == 0) (void)s.network.fabric.moved();
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    constexpr std::size_t n = 50021;
    if (r.rank == 0) {
      EXPECT_TRUE(r.comm.send({.input = r.make(drawn(0, n, 9)), .count = n, .type = kType, .peer = 1, .stream = r.stream}).wait().ok());
    } else if (r.rank == 1) {
      std::int64_t* const at = r.make(n);
      EXPECT_TRUE(r.comm.recv({.output = at, .count = n, .type = kType, .peer = 0, .stream = r.stream}).wait().ok());
      EXPECT_EQ(r.result(at, n), drawn(0, n, 9));
    }
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    if (r.rank == 0) {
      const auto moved = s.network.fabric.moved();
      EXPECT_EQ(moved.into_foreign, n * 8);
      EXPECT_EQ(moved.into_host, 0u);
    }
  }, [](int rank, TwinDevice& gpu) { gpu.exports_memory = rank != 2; });
}

// One rank has no memory for what reductions need: no rank's collectives go straight, and what goes from rank to rank does.
TEST(Straight, ARankWithoutMemoryForReductionsIsNamed) {
  straight_ranks(3, 41, [](Straight& s) {
    Rank& r = s.rank;
    EXPECT_THAT(s.how, testing::AllOf(HasSubstr("sends and receives of 3 of 3 pairs of ranks; all else through the host's memory: rank 1: "), HasSubstr("bytes of device memory: the twin has none")));
    constexpr std::size_t n = 20011;
    std::int64_t* const at = r.make(drawn(r.rank, n, 1));
    Work work = r.comm.all_reduce({.input = at, .output = at, .count = n, .type = kType, .stream = r.stream});
    EXPECT_TRUE(work.wait().ok()) << work.status().to_string();
    EXPECT_EQ(r.result(at, n), sum_of(3, n, 1));
    copying_collectives(r, n, 1, 3);
    EXPECT_NE(r.comm.explain(Collective::all_reduce, n, kType)->transport, "gpu+rdma");
    EXPECT_TRUE(r.comm.barrier().wait().ok());
  }, [](int rank, TwinDevice& gpu) { if (rank == 1) gpu.most_memory = 1 << 20; });
}

// One rank cannot set aside what it sends in place: all hear of it.
TEST(Straight, ARankWithoutMemoryForACallFailsItForAll) {
  straight_ranks(3, 42, [](Straight& s) {
    Rank& r = s.rank;
    constexpr std::size_t n = 20011;
    std::int64_t *const in = r.make(drawn(r.rank, 3 * n, 1)), *const out = r.make(3 * n);
    EXPECT_TRUE(r.comm.all_to_all({.input = in, .output = out, .count = n, .type = kType, .stream = r.stream}).wait().ok());
    const Code met = r.comm.barrier().wait().code();
    EXPECT_TRUE(met == Code::ok || met == Code::out_of_resources);     // rank 1 may be through before the others are
    if (r.rank == 1) r.gpu->most_pinned = 1000;
    const Status failed = r.comm.all_to_all({.input = in, .output = in, .count = n, .type = kType, .stream = r.stream}).wait();
    EXPECT_EQ(failed.code(), Code::out_of_resources) << failed.to_string();
    EXPECT_EQ(failed.culprit(), 1);
    EXPECT_THAT(failed.text(), testing::AllOf(HasSubstr("all_to_all on a stream: rank 1"), HasSubstr("bytes of pinned memory: the twin has none")));
    EXPECT_TRUE(r.gpu->has_run(r.stream));
  });
}

TEST(Straight, NobodyReachedIsStagedAndSaysWhy) {
  straight_ranks(2, 31, [](Straight& s) {
    EXPECT_THAT(s.how, testing::AllOf(HasSubstr("through the host's memory"), HasSubstr("GPUDirect RDMA rank 0: off for a twin of a GPU/fake0: no dma-buf")));
    copying_collectives(s.rank, 20011, 0, 3);
  }, [](int, TwinDevice& gpu) { gpu.exports_memory = false; });
}

TEST(Straight, GroupsOfManySendsAndBlocksOfDifferentSizes) {
  straight_ranks(3, 32, [](Straight& s) {
    Rank& r = s.rank;
    const auto p = std::size_t(r.count), me = std::size_t(r.rank);
    const auto size = [](std::size_t from, std::size_t to) { return (from + 2 * to) % 5 == 2 ? std::size_t(0) : from * 20000 + to * 300 + 1; };   // some small, some none
    std::vector<std::size_t> sent, received;
    std::size_t out = 0, in = 0;
    for (std::size_t k = 0; k < p; ++k) {
      sent.push_back(size(me, k)), received.push_back(size(k, me));
      out += sent[k], in += received[k];
    }
    std::int64_t* const got = r.make(in);
    for (std::uint64_t round = 0; round < 3; ++round) {
      Work work = r.comm.all_to_all_v({.input = r.make(drawn(r.rank, out, round)), .output = got, .send_counts = sent, .recv_counts = received, .type = kType, .stream = r.stream});
      ASSERT_TRUE(work.wait().ok()) << work.status().to_string();
      const Values mixed = r.result(got, in);
      std::size_t come = 0;
      for (std::size_t k = 0; k < p; ++k) {
        std::size_t theirs = 0, skipped = 0;
        for (std::size_t to = 0; to < p; ++to) theirs += size(k, to), skipped += to < me ? size(k, to) : 0;
        const Values all = drawn(int(k), theirs, round);
        EXPECT_EQ(Values(mixed.begin() + std::ptrdiff_t(come), mixed.begin() + std::ptrdiff_t(come + received[k])),
                  Values(all.begin() + std::ptrdiff_t(skipped), all.begin() + std::ptrdiff_t(skipped + received[k]))) << k;
        come += received[k];
      }
    }
  });
}

// Memory is given back to the GPU and comes again, most likely at the same address, as another allocation.
TEST(Straight, MemoryComesAndGoes) {
  straight_ranks(2, 33, [](Straight& s) {
    Rank& r = s.rank;
    for (std::uint64_t k = 0; k < 6; ++k) {
      const std::size_t n = 20001 + k % 3 * 1111;
      std::int64_t *const in = r.make(drawn(r.rank, n, k)), *const out = r.make(2 * n);
      Work work = r.comm.all_gather({.input = in, .output = out, .count = n, .type = kType, .stream = r.stream});
      ASSERT_TRUE(work.wait().ok()) << work.status().to_string();
      const Values got = r.result(out, 2 * n);
      for (int from = 0; from < 2; ++from) EXPECT_EQ(part(got, std::size_t(from), n), drawn(from, n, k)) << k;
      r.gpu->release(reinterpret_cast<std::byte*>(in));
      r.gpu->release(reinterpret_cast<std::byte*>(out));
    }
    EXPECT_TRUE(r.comm.barrier().wait().ok());
  });
}

// Where memory of the GPU was that has been used so, there is memory of the host.
TEST(Straight, MemoryOfTheHostComesInItsPlace) {
  straight_ranks(2, 43, [](Straight& s) {
    Rank& r = s.rank;
    constexpr std::size_t n = 20001;
    std::int64_t *const in = r.make(drawn(r.rank, n, 1)), *const out = r.make(2 * n);
    const auto gather = [&] { return r.comm.all_gather({.input = in, .output = out, .count = n, .type = kType, .stream = r.stream}).wait(); };
    EXPECT_TRUE(gather().ok());
    EXPECT_TRUE(r.gpu->has_run(r.stream));
    const auto bytes = r.gpu->give_to_host(reinterpret_cast<std::byte*>(in));
    const Values now = drawn(r.rank, n, 2);
    std::memcpy(in, now.data(), n * 8);
    EXPECT_TRUE(transport::of_gpu(bytes.data(), n * 8));
    EXPECT_TRUE(gather().ok());
    EXPECT_FALSE(transport::of_gpu(bytes.data(), n * 8));
    const Values got = r.result(out, 2 * n);
    for (int from = 0; from < 2; ++from) EXPECT_EQ(part(got, std::size_t(from), n), drawn(from, n, 2));
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    ::munmap(bytes.data(), bytes.size());
  });
}

// What cannot be registered is copied on the way, by the GPU.
TEST(Straight, MemoryThatCannotBeRegisteredIsCopied) {
  straight_ranks(2, 34, [](Straight& s) {
    Rank& r = s.rank;
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    if (r.rank == 0) s.network.fabric.dmabuf_error = ENOMEM;
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    copying_collectives(r, 100003, 0, 4);
    EXPECT_TRUE(r.comm.barrier().wait().ok());
  });
}

// No device works any more in the middle of a life: sockets take over, and the GPU copies for them.
TEST(Straight, ASocketTakesOver) {
  const Setting soon("TUTTI_LINK_TIMEOUT", "4s");
  straight_ranks(2, 35, [&](Straight& s) {
    Rank& r = s.rank;
    copying_collectives(r, 20011, 0, 1);
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    constexpr std::size_t n = 300007;
    std::int64_t *const in = r.make(drawn(r.rank, n, 7)), *const out = r.make(2 * n);
    if (r.rank == 0) {
      s.network.fabric.set_port(0, false);
      s.network.fabric.fail_after(3, IBV_WC_RETRY_EXC_ERR);
    }
    Work work = r.comm.all_gather({.input = in, .output = out, .count = n, .type = kType, .stream = r.stream});
    ASSERT_TRUE(work.wait().ok()) << work.status().to_string();
    const Values got = r.result(out, 2 * n);
    for (int from = 0; from < 2; ++from) EXPECT_EQ(part(got, std::size_t(from), n), drawn(from, n, 7));
    if (r.rank == 0) {
      EXPECT_EQ(s.network.fabric.failures(), 1u);
      (void)s.network.fabric.moved();
    }
    copying_collectives(r, 20011, 1, 2);
    EXPECT_TRUE(r.comm.barrier().wait().ok());
    if (r.rank == 0) {
      const auto moved = s.network.fabric.moved();
      EXPECT_EQ(moved.into_foreign + moved.into_host, 0u);     // all of it went by the socket
    }
  });
}

TEST(Straight, TheStreamGoesOnWhenTheOperationFails) {
  straight_ranks(2, 36, [](Straight& s) {
    Rank& r = s.rank;
    constexpr std::size_t n = 50021;
    std::int64_t* const at = r.make(drawn(r.rank, n, 1));
    const Code met = r.comm.barrier().wait().code();
    EXPECT_TRUE(met == Code::ok || met == Code::aborted);     // rank 1 may be through before rank 0 is
    if (r.rank == 1) return r.comm.abort("enough");
    Work work = r.comm.broadcast({.input = at, .output = at, .count = n, .type = kType, .root = 1, .stream = r.stream});
    EXPECT_EQ(work.wait().code(), Code::aborted);
    EXPECT_TRUE(r.gpu->has_run(r.stream));
    r.comm.destroy();
    EXPECT_EQ(r.gpu->pinned_bytes(), 0u);
  });
}

// Kernels do not touch the host's memory.
TEST(Straight, ReductionsWithBuffersOfTheHost) {
  for (const bool in : {false, true}) {
    for (const bool out : {false, true}) {
      straight_ranks(2, 39, [=](Straight& s) {
        Rank& r = s.rank;
        constexpr std::size_t n = 50021, block = 20011;
        const std::vector<float> values = floats(r.rank, 2 * n, 3);
        const void* const input = in ? static_cast<const void*>(values.data()) : upload(r, values);
        std::vector<float> here(n), part(block), sum(n);
        std::byte *const there = upload(r, here), *const part_there = upload(r, part), *const sum_there = upload(r, sum);
        for (Work work : {r.comm.all_reduce({.input = input, .output = out ? static_cast<void*>(here.data()) : there, .count = n, .type = DataType::f32, .stream = r.stream}),
                          r.comm.reduce_scatter({.input = input, .output = out ? static_cast<void*>(part.data()) : part_there, .count = block, .type = DataType::f32, .op = ReduceOp::max, .stream = r.stream}),
                          r.comm.reduce({.input = input, .output = out ? static_cast<void*>(sum.data()) : sum_there, .count = n, .type = DataType::f32, .root = 1, .stream = r.stream})})
          ASSERT_TRUE(work.wait().ok()) << work.status().to_string();
        ASSERT_TRUE(r.gpu->has_run(r.stream));
        expect_reduced(out ? here : download(r, there, n), 2, 2 * n, 0, ReduceOp::sum, 3);
        expect_reduced(out ? part : download(r, part_there, block), 2, 2 * n, std::size_t(r.rank) * block, ReduceOp::max, 3);
        if (r.rank == 1) expect_reduced(out ? sum : download(r, sum_there, n), 2, 2 * n, 0, ReduceOp::sum, 3);
      });
    }
  }
}

// Where a rank's blocks lie is its own business.
TEST(Straight, FormsWithCountsOfTheirOwnAreStagedOnAllRanks) {
  straight_ranks(2, 40, [](Straight& s) {
    Rank& r = s.rank;
    constexpr std::size_t n = 20011;
    const std::vector<std::size_t> counts{n, n}, apart = r.rank == 0 ? std::vector<std::size_t>() : std::vector<std::size_t>{0, n + 7};
    std::vector<float> packed = floats(r.rank, 2 * n, 4), spread = packed;
    if (r.rank == 1) spread.insert(spread.begin() + n, 7, 0.0f);
    std::byte *const in = upload(r, spread), *const part = upload(r, std::vector<float>(n)), *const all = upload(r, std::vector<float>(2 * n + 7));
    for (Work work : {r.comm.reduce_scatter_v({.input = in, .output = part, .counts = counts, .offsets = apart, .type = DataType::f32, .stream = r.stream}),
                      r.comm.all_gather_v({.input = in, .output = all, .counts = counts, .offsets = apart, .type = DataType::f32, .stream = r.stream})})
      ASSERT_TRUE(work.wait().ok()) << work.status().to_string();
    ASSERT_TRUE(r.gpu->has_run(r.stream));
    expect_reduced(download(r, part, n), 2, 2 * n, std::size_t(r.rank) * n, ReduceOp::sum, 4);
    const std::vector<float> got = download(r, all, 2 * n + 7);
    for (int k = 0; k < 2; ++k) {
      const std::vector<float> wanted = floats(k, 2 * n, 4);
      const std::size_t at = k == 0 ? 0 : n + (r.rank == 1 ? 7 : 0);
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.begin() + n, got.begin() + std::ptrdiff_t(at))) << k;
    }
  });
}

TEST(Straight, NamesBothCallsThatDisagree) {
  straight_ranks(2, 37, [](Straight& s) {
    Rank& r = s.rank;
    constexpr std::size_t n = 50021;
    std::int64_t* const at = r.make(drawn(r.rank, 2 * n, 1));
    Work work = r.rank == 0 ? r.comm.broadcast({.input = at, .output = at, .count = n, .type = kType, .stream = r.stream})
                            : r.comm.all_gather({.input = at + n, .output = at, .count = n, .type = kType, .stream = r.stream});
    Status status = work.wait();
    if (status.ok()) status = r.comm.barrier().wait();      // whose bytes have all been taken has nothing to wait for
    EXPECT_EQ(status.code(), Code::mismatch);
    EXPECT_THAT(status.text(), testing::AllOf(HasSubstr("broadcast"), HasSubstr("all_gather")));
    EXPECT_TRUE(r.gpu->has_run(r.stream));
  });
}

}  // namespace
}  // namespace tutti::twin
#endif
