// Training on devices with streams: the trainer's kernels are carried out late, in a stream of the twin of a GPU (tests/cuda/twin_device.h), and
// exchanges in another one. Ranks must get the losses of ranks on the host, and waits that are left out must show.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <cmath>
#include <thread>
#include "comm/join.h"
#include "comm/member.h"
#include "tests/cuda/twin_device.h"
#include "tests/trainer/emulated_backend.h"
#include "trainer/failure.h"
#include "trainer/gemm.h"
#include "trainer/text.h"
#include "trainer/training.h"

namespace tutti::trainer::test {
namespace {

class StreamedBackend final : public EmulatedBackend {
 public:
  StreamedBackend(twin::TwinDevice& gpu, bool forgets_waits)
      : gpu_(gpu), forgets_waits_(forgets_waits), stream_(gpu.make_stream()), exchanges_(gpu.make_stream()) {}
  ~StreamedBackend() override {
    end_exchanges();
    release_rooms();
    settle();
  }
  DeviceStream exchange_stream() override {
    const EventHandle called = event();
    require(gpu_.record(stream_, called));
    require(gpu_.wait(exchanges_, called));
    return DeviceStream(exchanges_);
  }
  Mark mark() override {
    const EventHandle done = event();
    require(gpu_.record(exchanges_, done));
    return Mark(done, [](void*) {});      // the twin has it until the end
  }
  void await(const Mark& mark) override {
    ++waits;
    if (!forgets_waits_) require(gpu_.wait(stream_, mark.get()));
  }
  // What exchanges work on may be given back then, also where nobody has waited for them.
  void end_exchanges() { EXPECT_TRUE(gpu_.synchronize(exchanges_)); }
  std::size_t waits = 0;

 protected:
  void carry_out(std::function<void()> what) override {
    const auto call = [](void* argument) {
      const std::unique_ptr<std::function<void()>> todo(static_cast<std::function<void()>*>(argument));
      (*todo)();
    };
    require(gpu_.call(stream_, call, new std::function<void()>(std::move(what))));
  }
  void settle() override { ASSERT_TRUE(gpu_.synchronize(stream_)) << "the stream stands still"; }

 private:
  EventHandle event() { return require(gpu_.make_event()); }
  twin::TwinDevice& gpu_;
  const bool forgets_waits_;
  const StreamHandle stream_, exchanges_;
};

struct Outcome {
  std::vector<double> losses;
  std::string failure;
  std::size_t waits = 0;
};

trainer::Options small_run(int zero) {
  trainer::Options o;
  o.model.layers = 2, o.model.heads = o.model.kv_heads = 2, o.model.width = 16, o.model.hidden = 32, o.model.context = 8;
  o.batch = 1, o.micro_batches = 3, o.zero = zero, o.bucket_bytes = 1 << 12;
  o.schedule.steps = o.steps = 3, o.schedule.rate = 0.02, o.schedule.warm_up = 0;
  return o;
}

void train_on_rank(const trainer::Options& o, Communicator& communicator, Backend<float>& backend, Outcome& outcome) {
  Threads threads(1);
  Trace trace(false, communicator.rank());
  Training training(o, Tokens::of_text(generated_text(1 << 12)), communicator, backend, threads, trace);
  const auto end_exchanges = [&] {
    if (auto* const streamed = dynamic_cast<StreamedBackend*>(&backend)) streamed->end_exchanges();
  };
  try {
    training.start();
    for (long step = 0; step < o.steps; ++step) outcome.losses.push_back(training.step().loss);
    training.compare_ranks();
    require(communicator.barrier().wait());
  } catch (const Failure& failure) {
    communicator.abort(failure.what());
    end_exchanges();
    throw;
  }
  end_exchanges();
}

// Ranks as threads. Without `streams` they are on the host.
std::vector<Outcome> trained(int count, const trainer::Options& o, bool streams, std::uint64_t seed = 1, bool forgets_waits = false) {
  const UniqueId id = require(Communicator::make_unique_id());
  std::vector<std::shared_ptr<twin::TwinDevice>> gpus;      // outlive all that their streams do
  for (int rank = 0; rank < count; ++rank) gpus.push_back(std::make_shared<twin::TwinDevice>(seed * 100 + std::uint64_t(rank)));
  std::vector<Outcome> outcomes(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      Outcome& mine = outcomes[std::size_t(rank)];
      twin::TwinDevice& gpu = *gpus[std::size_t(rank)];
      try {
        tutti::Options options;
        options.job_key = "streams";
        auto member = require(comm::join_by_id(rank, count, id, options));
        member->use_device(gpus[std::size_t(rank)]);
        Communicator communicator = comm::Member::handle(std::move(member));
        try {
          if (!streams) {
            Threads one(1);
            HostBackend<float> host(one);
            train_on_rank(o, communicator, host, mine);
          } else {
            StreamedBackend backend(gpu, forgets_waits);
            train_on_rank(o, communicator, backend, mine);
            mine.waits = backend.waits;
          }
        } catch (const Failure& failure) {
          mine.failure = failure.what();
          communicator.abort(mine.failure);
        }
      } catch (const Failure& failure) {
        mine.failure = failure.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& gpu : gpus) EXPECT_TRUE(gpu->has_run());
  return outcomes;
}

class Streams : public testing::TestWithParam<int> {};

TEST_P(Streams, RanksLoseAsOnTheHost) {
  keep_blas_on_one_thread();
  for (const auto& [count, narrow] : {std::pair{2, false}, {2, true}, {3, false}}) {
    trainer::Options o = small_run(GetParam());
    o.narrow_wire = narrow;
    const auto wanted = trained(count, o, false), got = trained(count, o, true);
    for (std::size_t rank = 0; rank < got.size(); ++rank) {
      ASSERT_EQ(wanted[rank].failure, "");
      ASSERT_EQ(got[rank].failure, "") << count << " ranks";
      EXPECT_GT(got[rank].waits, 0u);
      for (std::size_t step = 0; step < 3; ++step) {
        EXPECT_NEAR(got[rank].losses[step], wanted[rank].losses[step], narrow ? 1e-3 : 1e-5) << count << " ranks, step " << step + 1;
      }
    }
    EXPECT_GT(std::abs(wanted[0].losses[2] - wanted[0].losses[0]), 0.01);
  }
}

// On the host. The embedding's rows follow its table apart where they are fewer; with 3 micro-batches for 2 ranks one has added up before.
TEST_P(Streams, RanksOfTheHostLoseAsOneDoes) {
  keep_blas_on_one_thread();
  for (const std::size_t batch : {1u, 16u}) {
    trainer::Options o = small_run(GetParam());
    o.batch = batch;
    const auto wanted = trained(1, o, false);
    ASSERT_EQ(wanted[0].failure, "");
    for (const int count : {2, 3}) {
      EXPECT_EQ(batch * o.model.context * std::size_t(count) <= o.model.vocabulary, batch == 1 || count == 2);
      const auto got = trained(count, o, false);
      for (const Outcome& rank : got) {
        ASSERT_EQ(rank.failure, "");
        for (std::size_t step = 0; step < 3; ++step) EXPECT_NEAR(rank.losses[step], wanted[0].losses[step], 1e-5) << count << " ranks, step " << step + 1;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Zero, Streams, testing::Values(0, 1, 2, 3));

// Weights or gradients that were not waited for are those of a rank alone, or half of the sum.
TEST(StreamsTest, WaitsThatAreLeftOutShow) {
  keep_blas_on_one_thread();
  const auto wanted = trained(2, small_run(0), false);
  bool seen = false;
  for (std::uint64_t seed = 1; seed <= 5 && !seen; ++seed) {
    const auto got = trained(2, small_run(0), true, seed, true);
    seen = !got[0].failure.empty() || !got[1].failure.empty() || std::abs(got[0].losses[2] - wanted[0].losses[2]) > 1e-4;
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace tutti::trainer::test
