// Wrong arguments: refused at once, by name and value, and the communicator goes on. Use after the end.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "tests/process/calls.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

class BadInput : public testing::Test {
 protected:
  // Refused with a text that holds all the words; afterwards a proper call still works.
  void expect_refused(const std::function<Work(Communicator&)>& call, const std::vector<std::string>& words) {
    world_.run([&](Communicator& comm) {
      const Status status = call(comm).wait();
      EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
      for (const auto& word : words)
        EXPECT_NE(status.text().find(word), std::string::npos) << '"' << word << "\" is not in: " << status.text();
      Case test;
      EXPECT_EQ(tried(comm, test), "");
    });
  }

  World world_{2};
  std::array<float, 64> a_{}, b_{};
};

TEST_F(BadInput, NullBuffers) {
  expect_refused(
      [&](Communicator& c) {
        return c.all_reduce({nullptr, b_.data(), 4});
      },
      {"all_reduce", "input", "null"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_reduce({a_.data(), nullptr, 4});
      },
      {"all_reduce", "output", "null"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_gather({a_.data(), nullptr, 4});
      },
      {"all_gather", "output", "null"});
  expect_refused(
      [&](Communicator& c) {
        return c.send({nullptr, 4, DataType::f32, 1 - c.rank()});
      },
      {"send", "input", "null"});
  expect_refused(
      [&](Communicator& c) {
        return c.recv({nullptr, 4, DataType::f32, 1 - c.rank()});
      },
      {"recv", "output", "null"});
  world_.run([](Communicator& c) { EXPECT_EQ(c.all_reduce({nullptr, nullptr, 0}).wait(), Status()); });
}

TEST_F(BadInput, Overlaps) {
  expect_refused(
      [&](Communicator& c) {
        return c.all_reduce({a_.data(), a_.data() + 1, 8});
      },
      {"all_reduce", "output", "overlaps"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_reduce({a_.data() + 7, a_.data(), 8});
      },
      {"all_reduce", "output", "overlaps"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_gather({a_.data() + 8 * (1 - c.rank()), a_.data(), 8});
      },
      {"all_gather", "overlaps"});
  expect_refused(
      [&](Communicator& c) {
        return c.reduce_scatter({a_.data(), a_.data() + 8 * (1 - c.rank()), 8});
      },
      {"reduce_scatter", "overlaps"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_to_all({a_.data(), a_.data() + 1, 8});
      },
      {"all_to_all", "overlaps"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_to_all_v({a_.data(), a_.data(), {1, 1}, {1, 1}, {}, {}});
      },
      {"all_to_all", "overlaps"});
}

TEST_F(BadInput, HugeCounts) {
  for (std::size_t count : {~std::size_t(0), std::size_t(1) << 62, ~std::size_t(0) / 4 + 2})
    expect_refused(
        [&](Communicator& c) {
          return c.all_reduce({a_.data(), b_.data(), count});
        },
        {"all_reduce", "count", std::to_string(count)});
  const std::size_t half = std::size_t(1) << 61;
  expect_refused(
      [&](Communicator& c) {
        return c.all_gather({a_.data(), b_.data(), half});
      },
      {"all_gather", "count", std::to_string(half)});
  expect_refused(
      [&](Communicator& c) {
        return c.all_gather_v({a_.data(), b_.data(), {half, half}, {}});
      },
      {"all_gather", "counts"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_gather_v({a_.data(), b_.data(), {1, 1}, {0, ~std::size_t(0)}});
      },
      {"all_gather", "offsets"});
}

TEST_F(BadInput, ValuesOutsideTheirEnums) {
  expect_refused(
      [&](Communicator& c) {
        return c.all_reduce({a_.data(), b_.data(), 4, DataType(12)});
      },
      {"all_reduce", "type", "12"});
  expect_refused(
      [&](Communicator& c) {
        return c.broadcast({a_.data(), b_.data(), 4, DataType(255)});
      },
      {"broadcast", "type", "255"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_reduce({a_.data(), b_.data(), 4, DataType::f32, ReduceOp(6)});
      },
      {"all_reduce", "op", "6"});
  const auto choice = world_[0].explain(Collective::all_reduce, 4, DataType::f32, ReduceOp(200));
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), Code::invalid_argument);
  const auto unknown = world_[0].explain(Collective(77), 4, DataType::f32);
  EXPECT_FALSE(unknown.ok());
}

TEST_F(BadInput, RootsAndPeers) {
  for (int root : {-1, 2, 1 << 20}) {
    const std::string text = std::to_string(root);
    expect_refused(
        [&](Communicator& c) {
          return c.broadcast({a_.data(), b_.data(), 4, DataType::f32, root});
        },
        {"broadcast", "root", text});
    expect_refused(
        [&](Communicator& c) {
          return c.reduce({a_.data(), b_.data(), 4, DataType::f32, ReduceOp::sum, root});
        },
        {"reduce", "root", text});
    expect_refused(
        [&](Communicator& c) {
          return c.gather({a_.data(), b_.data(), 4, DataType::f32, root});
        },
        {"gather", "root", text});
    expect_refused(
        [&](Communicator& c) {
          return c.scatter({a_.data(), b_.data(), 4, DataType::f32, root});
        },
        {"scatter", "root", text});
    expect_refused(
        [&](Communicator& c) {
          return c.send({a_.data(), 4, DataType::f32, root});
        },
        {"send", "peer", text});
    expect_refused(
        [&](Communicator& c) {
          return c.recv({a_.data(), 4, DataType::f32, root});
        },
        {"recv", "peer", text});
  }
}

TEST_F(BadInput, CountsOfTheVForms) {
  expect_refused(
      [&](Communicator& c) {
        return c.all_gather_v({a_.data(), b_.data(), {1}, {}});
      },
      {"all_gather", "counts", "1", "2"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_gather_v({a_.data(), b_.data(), {1, 1}, {0, 1, 2}});
      },
      {"all_gather", "offsets", "3"});
  expect_refused(
      [&](Communicator& c) {
        return c.reduce_scatter_v({a_.data(), b_.data(), {1, 2, 3}, {}});
      },
      {"reduce_scatter", "counts", "3"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_to_all_v({a_.data(), b_.data(), {1, 1}, {1}, {}, {}});
      },
      {"all_to_all", "recv_counts", "1"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_to_all_v({a_.data(), b_.data(), {1, 1, 1}, {1, 1}, {}, {}});
      },
      {"all_to_all", "send_counts", "3"});
}

TEST_F(BadInput, BlocksOfAnOutputMustNotOverlap) {
  expect_refused(
      [&](Communicator& c) {
        return c.all_gather_v({a_.data(), b_.data(), {4, 4}, {0, 3}});
      },
      {"all_gather", "offsets"});
  expect_refused(
      [&](Communicator& c) {
        return c.all_to_all_v({a_.data(), b_.data(), {4, 4}, {4, 4}, {}, {2, 0}});
      },
      {"all_to_all", "recv_offsets"});
}

TEST_F(BadInput, UseAfterTheEnd) {
  world_.run([&](Communicator& comm) {
    comm.destroy();
    comm.destroy();
    float x = 0;
    EXPECT_EQ(comm.all_reduce({&x, &x, 1}).wait().code(), Code::invalid_state);
    EXPECT_EQ(comm.barrier().wait().code(), Code::invalid_state);
    EXPECT_EQ(comm.send({&x, 1, DataType::f32, 0}).wait().code(), Code::invalid_state);
    EXPECT_EQ(comm.split(0, 0).status().code(), Code::invalid_state);
    EXPECT_EQ(comm.explain(Collective::all_reduce, 1, DataType::f32).status().code(), Code::invalid_state);
    EXPECT_EQ(comm.end_group().wait().code(), Code::invalid_state);
    comm.abort("nothing is left");
  });
  Communicator empty;
  EXPECT_EQ(empty.rank_count(), 0);
  EXPECT_EQ(empty.barrier().wait().code(), Code::invalid_state);
}

TEST(BadCreation, RanksAddressesAndSettings) {
  for (const auto& [rank, count] : std::vector<std::pair<int, int>>{{-1, 2}, {2, 2}, {0, 0}, {0, -1}}) {
    const auto made = Communicator::create(rank, count, fresh_address());
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), Code::invalid_argument);
    EXPECT_NE(made.status().text().find(std::to_string(rank)), std::string::npos) << made.status().text();
  }
  const auto nowhere = Communicator::create(0, 2, "no address at all");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.status().code(), Code::invalid_argument) << nowhere.status().to_string();
  for (const auto& [name, value] : Settings{
           {"TUTTI_SEGMENT", "4X"}, {"TUTTI_ORDER", "other"}, {"TUTTI_SOCKETS", "65"}, {"TUTTI_TIMEOUT", "2 apples"}}) {
    const Environment environment(Settings{{name, value}});
    const auto made = Communicator::create(0, 1, fresh_address());
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_EQ(made.status().code(), Code::invalid_argument);
    EXPECT_NE(made.status().text().find(name), std::string::npos) << made.status().text();
    EXPECT_NE(made.status().text().find(value), std::string::npos) << made.status().text();
  }
}

TEST(BadCreation, AnotherKeyAndAMissingRank) {
  const auto alone =
      Communicator::create(0, 2, fresh_address(), {.init_timeout = std::chrono::milliseconds(300), .job_key = "k"});
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(alone.status().code(), Code::timeout) << alone.status().to_string();
  EXPECT_NE(alone.status().text().find("1"), std::string::npos) << alone.status().text();
}

// Both calls in every rank's text.
void expect_mismatch(int n, const std::function<Work(Communicator&)>& usual,
                     const std::function<Work(Communicator&)>& odd, const std::vector<std::string>& words,
                     const char* transport) {
  World world(n, {{"TUTTI_TRANSPORT", transport}, {"TUTTI_TIMEOUT", "8s"}});
  world.run([&](Communicator& comm) {
    const auto start = std::chrono::steady_clock::now();
    const Status status = (comm.rank() == n - 1 ? odd : usual)(comm).wait();
    Status later = status;
    while (later.ok()) later = comm.barrier().wait();  // who had finished learns at the next call
    EXPECT_EQ(later.code(), Code::mismatch) << later.to_string();
    for (const auto& word : words)
      EXPECT_NE(later.text().find(word), std::string::npos) << '"' << word << "\" is not in: " << later.text();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_EQ(comm.barrier().wait(), later) << "the first cause stays";
  });
}

class Mismatch : public testing::TestWithParam<const char*> {
 protected:
  // Buffers of a rank's own.
  static double* mine(Communicator& c) {
    static std::array<std::vector<double>, 8> memory;
    auto& buffer = memory[std::size_t(c.rank())];
    buffer.resize(12000);
    return buffer.data();
  }
};

TEST_P(Mismatch, Collectives) {
  expect_mismatch(
      3,
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 100});
      },
      [](Communicator& c) {
        return c.all_gather({mine(c), mine(c) + 4000, 100});
      },
      {"all_reduce f32[100]", "all_gather f32[100]"}, GetParam());
}
TEST_P(Mismatch, Counts) {
  expect_mismatch(
      4,
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 100});
      },
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 101});
      },
      {"f32[100]", "f32[101]"}, GetParam());
}
TEST_P(Mismatch, SmallAndLargeCounts) {
  expect_mismatch(
      4,
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 1});
      },
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 8000});
      },
      {"f32[1]", "f32[8000]"}, GetParam());
}
TEST_P(Mismatch, Types) {
  expect_mismatch(
      2,
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 100, DataType::f32});
      },
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 100, DataType::i32});
      },
      {"f32[100]", "i32[100]"}, GetParam());
}
TEST_P(Mismatch, Reductions) {
  expect_mismatch(
      3,
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 100, DataType::f32, ReduceOp::sum});
      },
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 100, DataType::f32, ReduceOp::max});
      },
      {"f32[100] sum", "f32[100] max"}, GetParam());
}
TEST_P(Mismatch, Roots) {
  expect_mismatch(
      3,
      [](Communicator& c) {
        return c.broadcast({mine(c), mine(c) + 4000, 100, DataType::f32, 0});
      },
      [](Communicator& c) {
        return c.broadcast({mine(c), mine(c) + 4000, 100, DataType::f32, 1});
      },
      {"root 0", "root 1"}, GetParam());
}
TEST_P(Mismatch, BothRanksThinkTheyAreTheRoot) {
  expect_mismatch(
      2,
      [](Communicator& c) {
        return c.broadcast({mine(c), mine(c) + 4000, 100, DataType::f32, 0});
      },
      [](Communicator& c) {
        return c.broadcast({mine(c), mine(c) + 4000, 100, DataType::f32, 1});
      },
      {"root 0", "root 1"}, GetParam());
}
TEST_P(Mismatch, ABarrierAndACollective) {
  expect_mismatch(
      3, [](Communicator& c) { return c.barrier(); },
      [](Communicator& c) {
        return c.all_reduce({mine(c), mine(c) + 4000, 1, DataType::u8, ReduceOp::max});
      },
      {"barrier", "all_reduce u8[1] max"}, GetParam());
}
TEST_P(Mismatch, SendAndRecv) {
  expect_mismatch(
      2,
      [](Communicator& c) {
        return c.send({mine(c), 100, DataType::f32, 1});
      },
      [](Communicator& c) {
        return c.recv({mine(c), 99, DataType::f32, 0});
      },
      {"f32[100]", "f32[99]"}, GetParam());
}
TEST_P(Mismatch, CountsOfVForms) {
  expect_mismatch(
      2,
      [](Communicator& c) {
        return c.all_to_all_v({mine(c), mine(c) + 4000, {5, 5}, {5, 5}, {}, {}});
      },
      [](Communicator& c) {
        return c.all_to_all_v({mine(c), mine(c) + 4000, {6, 5}, {5, 5}, {}, {}});
      },
      {"all_to_all"}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Wires, Mismatch, testing::Values("shm", "tcp"));

}  // namespace
}  // namespace tutti::test
