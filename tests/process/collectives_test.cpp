// Every collective through the public API: ranks, counts, places, alignments, types, reductions and roots.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/process/calls.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

const std::array<std::size_t, 9> kCounts = {0, 1, 2, 3, 7, 64, 1000, 4097, 100003};
const std::array<int, 6> kRankCounts = {1, 2, 3, 4, 5, 8};

// All ranks run the same cases in the same order; a rank stops at its first failure.
void expect_all(World& world, const std::vector<Case>& cases) {
  world.run([&](Communicator& comm) {
    for (const Case& test : cases) {
      const std::string why = tried(comm, test);
      EXPECT_EQ(why, "");
      if (!why.empty()) return;
    }
  });
}

std::vector<Case> shapes_of(Kind kind, int n) {
  std::vector<Case> cases;
  int turn = int(kind);
  for (std::size_t count : kCounts)
    for (bool in_place : {false, true})
      for (int shift : {0, 1, 2}) {
        const bool takes_places = kind != Kind::all_to_all_v;
        if ((in_place && !takes_places) || (count > 5000 && shift != turn % 3)) continue;
        Case test;
        test.kind = kind;
        test.count = count;
        test.filling.type = DataType(turn % kDataTypeCount);
        test.filling.seed = std::uint64_t(turn) * 31 + std::uint64_t(n);
        test.root = turn % n;
        test.in_place = in_place;
        test.shift = shift == 0 ? 0 : shift == 1 ? size_of(test.filling.type) : 1;
        test.gaps = turn % 2 == 1;
        ++turn;
        cases.push_back(test);
        if (kind >= Kind::all_gather_v) cases.push_back(test), cases.back().gaps = !test.gaps;
      }
  return cases;
}

class Shapes : public testing::TestWithParam<int> {};

TEST_P(Shapes, EveryCollectiveCountPlaceAndAlignment) {
  World world(GetParam());
  for (int kind = 0; kind < kKindCount; ++kind) {
    SCOPED_TRACE(name_of(Kind(kind)));
    expect_all(world, shapes_of(Kind(kind), GetParam()));
    if (HasFailure()) return;
  }
}

TEST_P(Shapes, EveryTypeAndReduction) {
  const int n = GetParam();
  World world(n);
  std::vector<Case> cases;
  for (Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::reduce, Kind::reduce_scatter_v})
    for (int type = 0; type < kDataTypeCount; ++type)
      for (int op = 0; op < kReduceOpCount; ++op)
        for (std::size_t count : {1, 37, 1031}) {
          Case test;
          test.kind = kind;
          test.count = count;
          test.filling = {DataType(type), ReduceOp(op), std::uint64_t(type * 10 + op)};
          test.root = (type + op) % n;
          test.in_place = (type + op + int(kind)) % 2 == 0;
          test.shift = std::size_t(op % 3);
          test.gaps = op % 2 == 0;
          cases.push_back(test);
        }
  expect_all(world, cases);
}

TEST_P(Shapes, EveryRoot) {
  const int n = GetParam();
  World world(n);
  std::vector<Case> cases;
  for (Kind kind : {Kind::broadcast, Kind::reduce, Kind::gather, Kind::scatter})
    for (int root = 0; root < n; ++root)
      for (std::size_t count : {1, 515, 9001})
        for (bool in_place : {false, true}) {
          Case test;
          test.kind = kind;
          test.count = count;
          test.root = root;
          test.in_place = in_place;
          test.filling.seed = std::uint64_t(root + 1);
          cases.push_back(test);
        }
  expect_all(world, cases);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Shapes, testing::ValuesIn(kRankCounts), testing::PrintToStringParamName());

TEST(Collectives, OneRankInPlaceAndTheOthersApart) {
  World world(4);
  world.run([](Communicator& comm) {
    for (std::size_t count : {5, 3000, 100001}) {
      Case test;
      test.count = count;
      test.in_place = comm.rank() == 1;
      EXPECT_EQ(tried(comm, test), "");
      for (Kind kind : {Kind::reduce_scatter, Kind::all_gather, Kind::all_to_all}) {
        test.kind = kind;
        EXPECT_EQ(tried(comm, test), "");
      }
    }
  });
}

TEST(Collectives, NobodyLeavesABarrierBeforeAllHaveCome) {
  World world(5);
  std::array<std::atomic<int>, 50> came{};
  world.run([&](Communicator& comm) {
    for (auto& round : came) {
      ++round;
      ASSERT_TRUE(comm.barrier().wait().ok());
      EXPECT_EQ(round, 5);
    }
  });
}

TEST(Collectives, SendAndRecvInPairsAndToOneself) {
  World world(4);
  world.run([](Communicator& comm) {
    const int n = comm.rank_count();
    for (std::size_t count : {0, 1, 1000, 300000}) {
      std::vector<std::vector<std::uint32_t>> out(4), in(4, std::vector<std::uint32_t>(count));
      std::vector<Work> works;
      for (int peer = 0; peer < n; ++peer) {
        auto& values = out[std::size_t(peer)];
        for (std::size_t i = 0; i < count; ++i)
          values.push_back(std::uint32_t(mixed(i) + std::uint64_t(comm.rank() * 16 + peer)));
        works.push_back(comm.send({values.data(), count, DataType::u32, peer}));
      }
      for (int peer = n - 1; peer >= 0; --peer)
        works.push_back(comm.recv({in[std::size_t(peer)].data(), count, DataType::u32, peer}));
      for (Work& work : works) EXPECT_EQ(work.wait(), Status());
      for (int peer = 0; peer < n; ++peer)
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(in[std::size_t(peer)][i], std::uint32_t(mixed(i) + std::uint64_t(peer * 16 + comm.rank())));
    }
  });
}

TEST(Collectives, MessagesOfAPairArriveInOrder) {
  World world(2);
  world.run([](Communicator& comm) {
    constexpr std::size_t kMessages = 300;
    std::vector<std::uint64_t> values(kMessages, 0);
    std::vector<Work> works;
    for (std::size_t i = 0; i < kMessages; ++i) {
      if (comm.rank() == 0) values[i] = mixed(i);
      works.push_back(comm.rank() == 0 ? comm.send({&values[i], 1, DataType::u64, 1})
                                       : comm.recv({&values[i], 1, DataType::u64, 0}));
    }
    while (!works.empty()) {
      EXPECT_EQ(works.back().wait(), Status());
      works.pop_back();
    }
    for (std::size_t i = 0; i < kMessages; ++i) EXPECT_EQ(values[i], mixed(i));
  });
}

TEST(Collectives, AGroupExchangesInAnyOrderAndFinishesAsOne) {
  World world(3);
  world.run([](Communicator& comm) {
    const int n = comm.rank_count();
    for (std::size_t count : {1, 200000}) {
      std::vector<std::vector<std::int64_t>> in(3, std::vector<std::int64_t>(count));
      std::vector<std::int64_t> out(count, comm.rank() + 7), sum(count);
      comm.begin_group();
      comm.begin_group();
      for (int peer = n - 1; peer >= 0; --peer) {
        const auto received = comm.recv({in[std::size_t(peer)].data(), count, DataType::i64, peer});
        const auto sent = comm.send({out.data(), count, DataType::i64, peer});
      }
      EXPECT_EQ(comm.end_group().wait(), Status());
      Work single = comm.all_reduce({out.data(), sum.data(), count, DataType::i64});
      Work all = comm.end_group();
      ASSERT_EQ(all.wait(), Status());
      EXPECT_TRUE(single.test());
      EXPECT_EQ(single.status(), Status());
      EXPECT_EQ(sum.back(), 7 + 8 + 9);
      for (int peer = 0; peer < n; ++peer) EXPECT_EQ(in[std::size_t(peer)].back(), peer + 7);
    }
    EXPECT_EQ(comm.end_group().wait().code(), Code::invalid_state);
  });
}

TEST(Collectives, AnUnfinishedWorkCallsBackOnce) {
  World world(2);
  std::atomic<int> calls{0};
  world.run([&](Communicator& comm) {
    float x = 1, y = 0;
    Work work = comm.all_reduce({&x, &y, 1});
    work.then([&](const Status& status) { calls += status.ok() ? 1 : 100; });
    EXPECT_EQ(work.wait(), Status());
    EXPECT_TRUE(work.wait_for(std::chrono::nanoseconds(0)));
    EXPECT_EQ(y, 2);
    EXPECT_TRUE(comm.barrier().wait().ok());
  });
  EXPECT_EQ(calls, 2);
}

TEST(Collectives, AWorldByUniqueIdAndOneFromAnEmptyEnvironment) {
  auto id = Communicator::make_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      auto comm = Communicator::create(r, 3, *id);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      std::int32_t x = 1 << r, y = 0;
      EXPECT_EQ(comm->all_reduce({&x, &y, 1, DataType::i32}).wait(), Status());
      EXPECT_EQ(y, 7);
    });
  for (auto& thread : threads) thread.join();
  auto alone = Communicator::from_environment();
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  EXPECT_EQ(alone->rank_count(), 1);
}

}  // namespace
}  // namespace tutti::test
