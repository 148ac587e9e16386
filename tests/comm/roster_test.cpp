// The roster of a job whose ranks come and go: what its lines mean, in any order that hosts may see them in.
#include "comm/roster.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <thread>

namespace tutti::comm {
namespace {

using State = Roster::State;

class RosterTest : public testing::Test {
 protected:
  RosterTest() : file_(memfd_create("roster", MFD_CLOEXEC)), roster_(file_) {}
  ~RosterTest() override { close(file_); }
  void add(const std::string& line) {
    ASSERT_TRUE(roster_.add(line).ok());
    ASSERT_TRUE(roster_.read().ok());
  }
  std::string path() const { return fmt::format("/proc/self/fd/{}", file_); }
  const int file_;
  Roster roster_;
};

UniqueId some_id() {
  std::mt19937 random(7);
  UniqueId id;
  for (std::byte& byte : id.bytes) byte = std::byte(random());
  return id;
}

TEST_F(RosterTest, ARankComesIsOfferedAPlaceAndIsAtWork) {
  add("job 3 2");
  EXPECT_EQ(roster_.ranks(), 3);
  EXPECT_EQ(roster_.least(), 2);
  EXPECT_EQ(roster_.count(State::absent), 3);
  add("wait 1 00000000000000aa");
  ASSERT_EQ(roster_.waiting().size(), 1u);
  EXPECT_EQ(roster_.waiting()[0].slot, 1);
  EXPECT_TRUE(roster_.has_waited(1));
  EXPECT_FALSE(roster_.has_waited(0));
  add(Roster::offer_line("00000000000000aa", {0, 2, some_id()}));
  EXPECT_EQ(roster_.state(1), State::offered);
  const auto offer = roster_.offer("00000000000000aa");
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->rank, 0);
  EXPECT_EQ(offer->count, 2);
  EXPECT_EQ(offer->id, some_id());
  EXPECT_FALSE(roster_.offer("00000000000000ab"));
  add("formed 1:00000000000000aa 2:00000000000000cc");
  EXPECT_EQ(roster_.state(1), State::member);
  EXPECT_EQ(roster_.state(2), State::member);
  EXPECT_EQ(roster_.worlds(), 1);
}

TEST_F(RosterTest, WhoDiesAndWaitsAgainKeepsWaitingWhileTheOthersFindOut) {
  add("job 2 1");
  add("formed 0:a 1:b");
  add("wait 1 c");
  add("formed 0:a");
  EXPECT_EQ(roster_.state(0), State::member);
  EXPECT_EQ(roster_.state(1), State::waiting);
  add("formed 0:a 1:c");
  EXPECT_EQ(roster_.state(1), State::member);
}

TEST_F(RosterTest, LinesOfAnotherHostMayComeLate) {
  add("job 2 1");
  add(Roster::offer_line("b", {1, 2, some_id()}));
  add("formed 0:a 1:b");
  add("wait 1 b");
  EXPECT_EQ(roster_.state(1), State::member) << "it waited before that world, not after";
  add("gone 1");
  add("formed 0:a 1:b");
  EXPECT_EQ(roster_.state(1), State::gone);
  add("wait 1 d");
  EXPECT_EQ(roster_.state(1), State::waiting);
  add("formed 0:a 1:b");
  EXPECT_EQ(roster_.state(1), State::waiting) << "b is out of date";
}

TEST_F(RosterTest, TheFirstEndCountsAndNonsenseCountsNothing) {
  add("job 2 1");
  for (const char* line :
       {"wait", "wait 2 a", "wait -1 a", "wait x a", "offer a 0 2 zz", "formed 7:a", "gone 9", "", "formed", "job 5 5"})
    add(line);
  EXPECT_EQ(roster_.count(State::absent), 2);
  EXPECT_EQ(roster_.ranks(), 2);
  EXPECT_FALSE(roster_.end());
  add("end all 20 steps are done");
  add("end something else");
  EXPECT_EQ(roster_.end(), "all 20 steps are done");
  add("host 1 b");
  EXPECT_EQ(roster_.other_lines().back(), "host 1 b");
}

TEST_F(RosterTest, OpenWantsAJob) {
  EXPECT_EQ(Roster::open(path()).status().code(), Code::invalid_argument);
  EXPECT_NE(Roster::open("/nonexistent/roster").status().text().find("/nonexistent/roster"), std::string::npos);
  add("job 4 4");
  auto opened = Roster::open(path());
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->ranks(), 4);
}

// Many writers, each with a descriptor of its own: no line is lost, none is torn.
TEST_F(RosterTest, LinesOfManyStayWhole) {
  add("job 64 1");
  std::vector<std::thread> writers;
  for (int slot = 0; slot < 64; ++slot) {
    writers.emplace_back([&, slot] {
      auto own = Roster::open(path());
      ASSERT_TRUE(own.ok());
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(own->add(fmt::format("wait {} {:016x}", slot, slot * 100 + i)).ok());
    });
  }
  for (auto& writer : writers) writer.join();
  ASSERT_TRUE(roster_.read().ok());
  ASSERT_EQ(roster_.waiting().size(), 64u);
  for (const auto& waiting : roster_.waiting())
    EXPECT_EQ(waiting.ticket, fmt::format("{:016x}", waiting.slot * 100 + 19));
}

}  // namespace
}  // namespace tutti::comm
