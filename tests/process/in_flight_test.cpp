// Many operations at once: mixed sizes waited for in any order, split communicators, threads on different
// communicators.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/process/calls.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

std::vector<std::int64_t> filled(std::size_t count, int rank, int turn) {
  std::vector<std::int64_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = std::int64_t(mixed(i + std::size_t(turn) * 977) >> 8) * (rank + 1);
  return out;
}

// The sum over ranks is the first rank's vector times 1 + 2 + ... + n.
void expect_sum(const std::vector<std::int64_t>& got, int n, int turn) {
  const auto one = filled(got.size(), 0, turn);
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], one[i] * n * (n + 1) / 2) << "operation " << turn << " element " << i;
}

void many_backwards(int n, const char* transport) {
  World world(n, {{"TUTTI_TRANSPORT", transport}});
  world.run([&](Communicator& comm) {
    std::vector<std::vector<std::int64_t>> data;
    std::vector<Work> works;
    for (int i = 0; i < 200; ++i)
      data.push_back(filled(std::size_t(mixed(std::uint64_t(i)) % (i % 20 == 7 ? 150000 : 900)), comm.rank(), i));
    for (auto& x : data) works.push_back(comm.all_reduce({x.data(), x.data(), x.size(), DataType::i64}));
    for (int i = 199; i >= 0; --i) ASSERT_EQ(works[std::size_t(i)].wait(), Status()) << i;
    for (int i = 0; i < 200; ++i) expect_sum(data[std::size_t(i)], n, i);
  });
}

TEST(InFlight, TwoHundredWaitedForBackwardsShm) { many_backwards(4, "shm"); }
TEST(InFlight, TwoHundredWaitedForBackwardsTcp) { many_backwards(3, "tcp"); }

TEST(InFlight, AllKindsTogether) {
  World world(3);
  world.run([](Communicator& comm) {
    const std::size_t count = 5000;
    auto mine = filled(count, comm.rank(), 0);
    std::vector<std::int64_t> sum(count), all(3 * count), root(count), part(count), exchanged(3 * count),
        wide(3 * count, comm.rank());
    std::vector<Work> works;
    for (int round = 0; round < 10; ++round) {
      works.push_back(comm.all_reduce({mine.data(), sum.data(), count, DataType::i64}));
      works.push_back(comm.all_gather({mine.data(), all.data(), count, DataType::i64}));
      works.push_back(comm.broadcast({mine.data(), root.data(), count, DataType::i64, 2}));
      works.push_back(comm.barrier());
      works.push_back(comm.reduce_scatter({wide.data(), part.data(), count, DataType::i64}));
      works.push_back(comm.all_to_all({wide.data(), exchanged.data(), count, DataType::i64}));
      works.push_back(comm.send({mine.data(), 1, DataType::i64, (comm.rank() + 1) % 3}));
      std::int64_t from_left = 0;
      EXPECT_EQ(comm.recv({&from_left, 1, DataType::i64, (comm.rank() + 2) % 3}).wait(), Status());
      EXPECT_EQ(from_left, filled(1, (comm.rank() + 2) % 3, 0)[0]);
    }
    for (Work& work : works) ASSERT_EQ(work.wait(), Status());
    expect_sum(sum, 3, 0);
    EXPECT_EQ(root, filled(count, 2, 0));
    EXPECT_EQ(part, std::vector<std::int64_t>(count, 3));
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(std::equal(all.begin() + std::ptrdiff_t(r * count), all.begin() + std::ptrdiff_t((r + 1) * count),
                             filled(count, int(r), 0).begin()));
      EXPECT_EQ(exchanged[r * count], std::int64_t(r));
    }
  });
}

TEST(Split, TwoOfTheSameRanksUsedInOppositeOrder) {
  World world(2);
  world.run([](Communicator& comm) {
    auto a = comm.split(0, comm.rank()), b = comm.split(0, -comm.rank());
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->rank(), comm.rank());
    EXPECT_EQ(b->rank(), 1 - comm.rank());
    for (std::size_t count : {1, 20000, 600000}) {
      auto x = filled(count, comm.rank(), 1), y = filled(count, comm.rank(), 2);
      const auto start = [](Communicator& c, std::vector<std::int64_t>& v) {
        return c.all_reduce({v.data(), v.data(), v.size(), DataType::i64});
      };
      const bool first = comm.rank() == 0;
      Work one = first ? start(*a, x) : start(*b, y);
      Work two = first ? start(*b, y) : start(*a, x);
      EXPECT_EQ(first ? one.wait() : two.wait(), Status());
      EXPECT_EQ(first ? two.wait() : one.wait(), Status());
      expect_sum(x, 2, 1);
      expect_sum(y, 2, 2);
    }
  });
}

TEST(Split, ColoursKeysAndNobody) {
  World world(6);
  world.run([](Communicator& comm) {
    const int r = comm.rank();
    auto parity = comm.split(r % 2, -r);
    auto halves = comm.split(r < 3 ? 10 : 20, 0);
    auto few = comm.split(r < 2 ? 0 : -1, 0);
    ASSERT_TRUE(parity.ok() && halves.ok() && few.ok());
    EXPECT_EQ(parity->rank_count(), 3);
    EXPECT_EQ(parity->rank(), 2 - r / 2);
    EXPECT_EQ(halves->rank(), r % 3);
    EXPECT_EQ(few->rank_count(), r < 2 ? 2 : 0);
    std::int32_t mine = 1 << r, in_parity = 0, in_halves = 0, in_few = 0, in_all = 0;
    std::vector<Work> works;
    works.push_back(parity->all_reduce({&mine, &in_parity, 1, DataType::i32}));
    works.push_back(halves->all_reduce({&mine, &in_halves, 1, DataType::i32}));
    works.push_back(few->all_reduce({&mine, &in_few, 1, DataType::i32}));
    works.push_back(comm.all_reduce({&mine, &in_all, 1, DataType::i32}));
    for (std::size_t i : {3, 1, 0}) EXPECT_EQ(works[i].wait(), Status()) << i;
    EXPECT_EQ(works[2].wait().code(), r < 2 ? Code::ok : Code::invalid_state);
    EXPECT_EQ(in_parity, r % 2 ? 0b101010 : 0b010101);
    EXPECT_EQ(in_halves, r < 3 ? 0b000111 : 0b111000);
    EXPECT_EQ(in_few, r < 2 ? 3 : 0);
    EXPECT_EQ(in_all, 63);
    auto again = parity->split(0, 0);
    ASSERT_TRUE(again.ok());
    Case test;
    test.count = 3000;
    EXPECT_EQ(tried(*again, test), "");
  });
}

TEST(Split, SurvivesItsParentAndItsSiblings) {
  World world(3);
  world.run([](Communicator& comm) {
    auto first = comm.split(0, 0), second = comm.split(0, 0);
    ASSERT_TRUE(first.ok() && second.ok());
    Case test;
    test.count = 50000;
    EXPECT_EQ(tried(comm, test), "");
    EXPECT_EQ(tried(*second, test), "");
    second->destroy();
    EXPECT_TRUE(comm.barrier().wait().ok());
    comm.destroy();
    for (int i = 0; i < 20; ++i) EXPECT_EQ(tried(*first, test), "");
  });
}

// Communicators of disjoint ranks may bear one number.
TEST(Split, OneThatEndsLeavesItsSiblingsAlone) {
  World world(4);
  world.run([](Communicator& comm) {
    auto half = comm.split(comm.rank() / 2, 0);
    ASSERT_TRUE(half.ok());
    auto inner = half->split(0, 0);
    ASSERT_TRUE(inner.ok());
    EXPECT_TRUE(comm.barrier().wait().ok());
    if (comm.rank() == 0) {
      half->abort("for the test");
      inner->abort("for the test");
    }
    Case test;
    test.count = 1000;
    if (comm.rank() >= 2)
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(tried(*half, test), "");
        EXPECT_EQ(tried(*inner, test), "");
      }
    EXPECT_TRUE(comm.barrier().wait().ok());
  });
}

// Two splits at once, of communicators that share a rank, must not get one number there.
TEST(Split, AtOnceFromCommunicatorsThatOverlap) {
  World world(3);
  world.run([](Communicator& comm) {
    auto low = comm.split(comm.rank() < 2 ? 0 : -1, 0), high = comm.split(comm.rank() > 0 ? 0 : -1, 0);
    ASSERT_TRUE(low.ok() && high.ok());
    for (int round = 0; round < 30; ++round) {
      const auto use = [](Communicator& from) {
        auto part = from.split(0, 0);
        ASSERT_TRUE(part.ok());
        Case test;
        test.count = 500;
        for (int i = 0; i < 5; ++i) EXPECT_EQ(tried(*part, test), "");
      };
      std::thread other;
      if (comm.rank() < 2) other = std::thread([&] { use(*low); });
      if (comm.rank() > 0) use(*high);
      if (other.joinable()) other.join();
    }
  });
}

TEST(InFlight, ThreadsOnDifferentCommunicators) {
  World world(3);
  world.run([](Communicator& comm) {
    std::vector<Communicator> parts;
    for (int i = 0; i < 4; ++i) {
      auto part = comm.split(0, 0);
      ASSERT_TRUE(part.ok());
      parts.push_back(std::move(part).value());
    }
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < parts.size(); ++i)
      threads.emplace_back([&, i] {
        for (std::uint64_t round = 0; round < 40; ++round) {
          Case test;
          test.kind = Kind((round + i) % 8);
          test.count = std::size_t(mixed(round * 4 + i) % 9000);
          test.filling.seed = round;
          ASSERT_EQ(tried(parts[i], test), "");
        }
      });
    for (auto& thread : threads) thread.join();
  });
}

TEST(InFlight, ThreadsWaitForTheSameOperation) {
  World world(2);
  world.run([](Communicator& comm) {
    auto x = filled(400000, comm.rank(), 5);
    Work work = comm.all_reduce({x.data(), x.data(), x.size(), DataType::i64});
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([work]() mutable { EXPECT_EQ(work.wait(), Status()); });
    for (auto& thread : threads) thread.join();
    expect_sum(x, 2, 5);
  });
}

TEST(InFlight, NobodyWaits) {
  World world(3);
  world.run([](Communicator& comm) {
    auto x = filled(100000, comm.rank(), 6);
    std::atomic<bool> done{false};
    Work work = comm.all_reduce({x.data(), x.data(), x.size(), DataType::i64});
    work.then([&](const Status& status) {
      EXPECT_TRUE(status.ok());
      done = true;
      done.notify_all();
    });
    done.wait(false);  // the library's own thread drives it
    expect_sum(x, 3, 6);
  });
}

}  // namespace
}  // namespace tutti::test
