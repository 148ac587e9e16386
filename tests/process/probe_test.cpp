// The start-up probe with real ranks: when it runs, what it leaves, and that all ranks plan alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/process/world.h"

namespace tutti::test {
namespace {

class Probe : public testing::Test {
 protected:
  Probe() : cache_(testing::TempDir() + "/probe-" + std::to_string(::getpid())) { std::filesystem::remove_all(cache_); }
  ~Probe() override { std::filesystem::remove_all(cache_); }

  Settings settings(const std::string& probe, const std::string& transport = "auto") const {
    return {{"TUTTI_PROBE", probe}, {"XDG_CACHE_HOME", cache_}, {"TUTTI_TRANSPORT", transport}};
  }
  std::vector<std::filesystem::path> profiles() const {
    std::error_code none;
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::directory_iterator(cache_ + "/tutti", none)) out.push_back(entry.path());
    return out;
  }
  std::string text() const {
    std::ifstream file(profiles().at(0));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string cache_;
};

// The choices of all ranks for many sizes, one string a rank; a call too, so that ranks that disagree fail.
std::vector<std::string> choices(World& world) {
  std::vector<std::string> out(world.size());
  world.run([&](Communicator& comm) {
    std::string& mine = out[std::size_t(comm.rank())];
    for (std::size_t count = 2; count <= (4u << 20); count *= 2) {
      const auto choice = comm.explain(Collective::all_reduce, count, DataType::f32, ReduceOp::sum);
      ASSERT_TRUE(choice.ok()) << choice.status().to_string();
      mine += choice->algorithm + " ";
    }
    for (const std::size_t count : {2u, 3000u, 200000u}) {
      std::vector<float> numbers(count, float(comm.rank() + 1));
      ASSERT_EQ(comm.all_reduce({.input = numbers.data(), .output = numbers.data(), .count = count}).wait().to_string(),
                Status().to_string());
      const int n = comm.rank_count();
      EXPECT_EQ(numbers.back(), float(n * (n + 1) / 2));
    }
  });
  return out;
}

TEST_F(Probe, AllRanksChooseAlikeWithAndWithoutAProfile) {
  for (const char* transport : {"shm", "tcp"}) {
    std::filesystem::remove_all(cache_);
    World first(4, settings("1", transport));
    ASSERT_EQ(profiles().size(), 1u);
    const std::vector<std::string> measured = choices(first);
    EXPECT_THAT(measured, testing::Each(measured[0]));
    const std::string kept = text();
    World second(4, settings("1", transport));
    EXPECT_EQ(choices(second), measured) << "the profile says what was measured";
    EXPECT_EQ(text(), kept) << "measured again";
  }
}

TEST_F(Probe, SwitchedOffNothingIsMeasuredOrRead) {
  World off(4, settings("0"));
  EXPECT_TRUE(profiles().empty());
  const std::vector<std::string> assumed = choices(off);
  EXPECT_THAT(assumed, testing::Each(assumed[0]));
  { World on(4, settings("1")); }
  EXPECT_EQ(profiles().size(), 1u);
  World again(4, settings("0"));
  EXPECT_EQ(choices(again), assumed);
}

TEST_F(Probe, AProfileGrowsByWhatOtherWorldsNeed) {
  { World world(2, settings("1", "shm")); }
  const std::string memory = text();
  EXPECT_THAT(memory, testing::AllOf(testing::HasSubstr("\"memory"), testing::Not(testing::HasSubstr("\"sockets"))));
  { World world(2, settings("1", "tcp")); }
  EXPECT_EQ(profiles().size(), 1u);
  EXPECT_THAT(text(), testing::AllOf(testing::HasSubstr("\"memory"), testing::HasSubstr("\"sockets")));
}

TEST_F(Probe, ADamagedProfileIsMeasuredAnew) {
  { World world(2, settings("1")); }
  const auto path = profiles().at(0);
  std::ofstream(path) << "{ \"format\": 1, ";
  { World world(2, settings("1")); }
  EXPECT_THAT(text(), testing::HasSubstr("beta_s_per_byte"));
}

TEST_F(Probe, AFolderThatCannotBeWrittenFailsNobody) {
  std::ofstream(cache_) << "a file where the folder should be";
  World world(2, settings("1"));
  const std::vector<std::string> measured = choices(world);
  EXPECT_THAT(measured, testing::Each(measured[0]));
}

TEST_F(Probe, DoesNotCountAmongTheOperations) {
  World world(3, settings("1"));
  world.run([&](Communicator& comm) {
    auto part = comm.split(0, comm.rank());
    ASSERT_TRUE(part.ok());
    EXPECT_TRUE(part->barrier().wait().ok());
  });
  EXPECT_FALSE(choices(world).empty());
}

}  // namespace
}  // namespace tutti::test
