// Every algorithm by name, on every collective it serves, over both wires; explain() says that it is the one.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/process/calls.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

struct Served {
  const char* algorithm;
  std::vector<Kind> kinds;
};

std::ostream& operator<<(std::ostream& out, const Served& served) { return out << served.algorithm; }

// Must be able to serve at least these, for some rank count.
const std::vector<Served> kServed = {
    {"direct",
     {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::broadcast, Kind::reduce, Kind::gather,
      Kind::scatter, Kind::all_to_all}},
    {"two_shot", {Kind::all_reduce}},
    {"ring", {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather}},
    {"bidirectional_ring", {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather}},
    {"tree", {Kind::all_reduce}},
    {"recursive_doubling", {Kind::all_reduce}},
    {"circulant", {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather}},
    {"hierarchical", {}},  // needs several hosts
    {"bruck", {Kind::all_gather, Kind::all_to_all}},
    {"pat", {Kind::all_gather, Kind::reduce_scatter}},
    {"binomial", {Kind::broadcast, Kind::reduce, Kind::gather, Kind::scatter}},
    {"scatter_all_gather", {Kind::broadcast}},
    {"chain", {Kind::broadcast}},
    {"pairwise", {Kind::all_to_all}},
};

Collective collective_of(Kind kind) { return Collective(int(kind)); }

bool chosen(Communicator& comm, Kind kind, std::size_t count, const std::string& algorithm,
            const std::string& transport) {
  const auto choice = comm.explain(collective_of(kind), count, DataType::f32);
  EXPECT_TRUE(choice.ok()) << choice.status().to_string();
  if (!choice.ok() || choice->algorithm != algorithm) return false;
  EXPECT_EQ(choice->transport, transport) << algorithm << " for " << name_of(kind);
  return true;
}

class Forced : public testing::TestWithParam<std::tuple<Served, const char*>> {};

// Returns which kinds were served among n ranks.
std::vector<bool> serve(const std::string& algorithm, const std::string& transport, int n) {
  World world(n, {{"TUTTI_ALGO", algorithm}, {"TUTTI_TRANSPORT", transport}});
  std::vector<std::atomic<bool>> served(8);
  world.run([&](Communicator& comm) {
    for (int kind = 0; kind <= int(Kind::all_to_all); ++kind)
      for (std::size_t count : {1, 1001, 30011}) {
        if (!chosen(comm, Kind(kind), count, algorithm, transport)) continue;
        served[std::size_t(kind)] = true;
        Case test;
        test.kind = Kind(kind);
        test.count = count;
        test.root = (kind + 1) % n;
        test.filling.type = count == 1001 ? DataType::bf16 : DataType::f32;
        for (bool in_place : {false, true}) {
          test.in_place = in_place;
          EXPECT_EQ(tried(comm, test), "");
        }
      }
  });
  return {served.begin(), served.end()};
}

TEST(Channels, CutAVectorForSeveralRings) {
  for (const char* channels : {"2", "3", "5"}) {
    World world(4, {{"TUTTI_ALGO", "ring"}, {"TUTTI_CHANNELS", channels}});
    world.run([&](Communicator& comm) {
      for (const Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather})
        for (const std::size_t count : {1, 1001, 30011}) {
          Case test;
          test.kind = kind;
          test.count = count;
          EXPECT_EQ(tried(comm, test), "") << channels << " channels";
        }
    });
  }
}

TEST_P(Forced, ServesItsCollectivesAndIsNamed) {
  const auto& [served, transport] = GetParam();
  std::vector<bool> all(8);
  for (int n : {2, 3, 4, 7, 8}) {
    const auto now = serve(served.algorithm, transport, n);
    for (std::size_t k = 0; k < 8; ++k) all[k] = all[k] || now[k];
    if (HasFailure()) return;
  }
  for (Kind kind : served.kinds)
    EXPECT_TRUE(all[std::size_t(kind)]) << served.algorithm << " never served " << name_of(kind);
}

// Over 4 MB a message: more than any pool of slots or window of credits holds at once.
TEST_P(Forced, LargeVectors) {
  const auto& [served, transport] = GetParam();
  for (int n : {transport == std::string("shm") ? 4 : 3}) {
    World world(n, {{"TUTTI_ALGO", served.algorithm}, {"TUTTI_TRANSPORT", transport}});
    world.run([&, &algorithm = served.algorithm, &wire = transport](Communicator& comm) {
      for (int kind = 0; kind <= int(Kind::all_to_all); ++kind) {
        Case test;
        test.kind = Kind(kind);
        test.filling.type = DataType::i32;
        test.count = kind == int(Kind::all_reduce) || kind == int(Kind::broadcast) || kind == int(Kind::reduce)
                         ? 1300001
                         : 1100003 / std::size_t(n);
        test.root = n - 1;
        test.in_place = n == 3;
        if (!chosen(comm, Kind(kind), test.count, algorithm, wire)) continue;
        EXPECT_EQ(tried(comm, test), "");
      }
    });
    if (HasFailure()) return;
  }
}

std::string case_name(const testing::TestParamInfo<Forced::ParamType>& info) {
  return std::string(std::get<0>(info.param).algorithm) + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Forced,
                         testing::Combine(testing::ValuesIn(kServed), testing::Values("shm", "tcp")), case_name);

TEST(Rules, ByCollectiveAndBytes) {
  World world(3, {{"TUTTI_ALGO", "all_reduce:direct:-32K,tree:32K-1M,ring:1M-"}});
  for (const auto& [count, algorithm] : std::vector<std::pair<std::size_t, std::string>>{
           {1, "direct"}, {8191, "direct"}, {8192, "tree"}, {262143, "tree"}, {262144, "ring"}}) {
    const auto choice = world[0].explain(Collective::all_reduce, count, DataType::f32);
    ASSERT_TRUE(choice.ok()) << choice.status().to_string();
    EXPECT_EQ(choice->algorithm, algorithm) << count;
  }
  world.run([](Communicator& comm) {
    for (std::size_t count : {8191, 8192, 262143, 262144}) {
      Case test;
      test.count = count;
      EXPECT_EQ(tried(comm, test), "");
    }
  });
}

TEST(Rules, AnUnknownAlgorithmIsNamedAtCreation) {
  const Environment environment(Settings{{"TUTTI_ALGO", "all_reduce:rign"}});
  const auto made = Communicator::create(0, 1, fresh_address());
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::invalid_argument);
  EXPECT_NE(made.status().text().find("rign"), std::string::npos) << made.status().text();
}

}  // namespace
}  // namespace tutti::test
