// Groups on streams of one GPU, by ranks that are threads: everybody sends to everybody at once, collectives between, calls
// on two streams; blocks of different sizes; and a stream that is being captured is refused without harm to the capture.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <tests/gpu/gpu.h>
#include <tutti/tutti.h>

#include <cstring>
#include <numeric>
#include <thread>

namespace tutti::gpu {
namespace {

using Values = std::vector<std::int64_t>;

void in_threads(int count, const std::function<void(Communicator&)>& body) {
  const auto id = Communicator::make_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r)
    threads.emplace_back([&, r] {
      Options options;
      options.job_key = "gpu";
      auto comm = Communicator::create(r, count, *id, options);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      body(*comm);
    });
  for (auto& thread : threads) thread.join();
}

// Of a message from one rank to another.
Values message(int from, int to, std::size_t count) {
  Values values(count);
  std::iota(values.begin(), values.end(), std::int64_t(from) << 40 | std::int64_t(to) << 32);
  return values;
}
Values read(const Memory& memory, std::size_t count) {
  Values values(count);
  std::memcpy(values.data(), memory.read_as_is(count * 8).data(), count * 8);
  return values;
}
std::unique_ptr<Memory> make(const Values& values) { return std::make_unique<Memory>(std::as_bytes(std::span(values))); }

class GroupsOf : public testing::TestWithParam<int> {};

TEST_P(GroupsOf, GoOnAtOnce) {
  std::string why;
  if (!device(&why)) GTEST_SKIP() << why;
  in_threads(GetParam(), [](Communicator& comm) {
    const Stream first, second;
    const int me = comm.rank(), ranks = comm.rank_count();
    for (int round = 0; round < 10; ++round) {
      const auto size = [&](int from, int to) { return std::size_t((from * 31 + to * 17 + round * 7) % 5) * 90'000 + 11; };
      std::vector<std::unique_ptr<Memory>> out, in;
      const auto ones = make(Values(300'000, 1));
      for (int peer = 0; peer < ranks; ++peer) {
        out.push_back(make(message(me, peer, size(me, peer))));
        in.push_back(std::make_unique<Memory>(size(peer, me) * 8));
      }
      comm.begin_group();
      for (int peer = 0; peer < ranks; ++peer)
        (void)comm.send({.input = out[std::size_t(peer)]->at(), .count = size(me, peer), .type = DataType::i64, .peer = peer, .stream = first.handle()});
      (void)comm.all_reduce({.input = ones->at(), .output = ones->at(), .count = 300'000, .type = DataType::i64, .stream = second.handle()});
      for (int peer = 0; peer < ranks; ++peer)
        (void)comm.recv({.output = in[std::size_t(peer)]->at(), .count = size(peer, me), .type = DataType::i64, .peer = peer, .stream = second.handle()});
      Work group = comm.end_group();
      first.synchronize();
      second.synchronize();
      ASSERT_TRUE(group.wait().ok()) << group.status().to_string();
      EXPECT_EQ(read(*ones, 300'000), Values(300'000, ranks));
      for (int peer = 0; peer < ranks; ++peer)
        EXPECT_EQ(read(*in[std::size_t(peer)], size(peer, me)), message(peer, me, size(peer, me))) << "round " << round << " from " << peer;
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, GroupsOf, testing::Values(1, 2, 4));

TEST(Groups, BlocksOfDifferentSizes) {
  std::string why;
  if (!device(&why)) GTEST_SKIP() << why;
  in_threads(2, [](Communicator& comm) {
    const Stream stream;
    const int me = comm.rank();
    const std::vector<std::size_t> sent = me == 0 ? std::vector<std::size_t>{5, 400'000} : std::vector<std::size_t>{70'000, 0},
                                   received = me == 0 ? std::vector<std::size_t>{5, 70'000} : std::vector<std::size_t>{400'000, 0};
    Values all;
    for (int to = 0; to < 2; ++to) {
      const Values one = message(me, to, sent[std::size_t(to)]);
      all.insert(all.end(), one.begin(), one.end());
    }
    const auto out = make(all);
    const Memory in((received[0] + received[1]) * 8), gathered(100'003 * 8);
    Work exchanged = comm.all_to_all_v({.input = out->at(), .output = in.at(), .send_counts = sent, .recv_counts = received, .type = DataType::i64, .stream = stream.handle()});
    const std::size_t own = me == 0 ? 3 : 100'000;
    const auto mine = make(message(me, 9, own));
    Work together = comm.all_gather_v({.input = mine->at(), .output = gathered.at(), .counts = {3, 100'000}, .type = DataType::i64, .stream = stream.handle()});
    ASSERT_TRUE(exchanged.wait().ok() && together.wait().ok());
    stream.synchronize();
    Values expected = message(0, me, received[0]);
    const Values more = message(1, me, received[1]), rest = message(1, 9, 100'000);
    expected.insert(expected.end(), more.begin(), more.end());
    EXPECT_EQ(read(in, expected.size()), expected);
    expected = message(0, 9, 3);
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_EQ(read(gathered, expected.size()), expected);
  });
}

TEST(Capture, IsRefusedAndGoesOn) {
  std::string why;
  if (!device(&why)) GTEST_SKIP() << why;
  in_threads(1, [](Communicator& comm) {
    const Stream stream;
    const auto handle = static_cast<cudaStream_t>(stream.handle());
    const auto x = make(Values(10, 7));
    const AllReduce call{.input = x->at(), .output = x->at(), .count = 10, .type = DataType::i64, .stream = stream.handle()};
    ASSERT_EQ(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(x->at(), 0, 40, handle), cudaSuccess);
    EXPECT_EQ(comm.all_reduce(call).wait().code(), Code::unsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(handle, &graph), cudaSuccess);
    EXPECT_NE(graph, nullptr);
    cudaGraphExec_t ready = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(ready, handle), cudaSuccess);
    EXPECT_TRUE(comm.all_reduce(call).wait().ok());
    stream.synchronize();
    EXPECT_EQ(read(*x, 10), (Values{0, 0, 0, 0, 0, 7, 7, 7, 7, 7}));
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
  });
}

}  // namespace
}  // namespace tutti::gpu
