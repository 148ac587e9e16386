// Watch: reasoning over what ranks say; Word: its encoding.
#include "comm/watch.h"

#include <gtest/gtest.h>

namespace tutti::comm {
namespace {

using std::chrono::seconds;
using Why = Holdup::Why;

const TimePoint kNow = TimePoint{} + seconds(100);

Watch::Question question(std::vector<int> awaited, std::uint32_t sequence = 7) {
  return {std::move(awaited), true, sequence, kNow - seconds(10)};
}

TEST(Watch, ARankThatNeverAnsweredIsSilent) {
  Watch watch;
  watch.heard(1, {8, true, {2}}, kNow);
  watch.heard(2, {8, true, {5, 3}}, kNow);
  watch.heard(3, {8, true, {0}}, kNow);
  watch.heard(0, {8, true, {1}}, kNow);
  const Holdup holdup = watch.find(question({1}));
  EXPECT_EQ(holdup.why, Why::silent);
  EXPECT_EQ(holdup.rank, 5);
}

TEST(Watch, AnOldAnswerDoesNotCount) {
  Watch watch;
  watch.heard(1, {8, true, {0}}, kNow - seconds(11));
  EXPECT_EQ(watch.find(question({1})).why, Why::silent);
}

TEST(Watch, ARankThatWaitsForNobodyAndHasNotCalledIsAbsent) {
  Watch watch;
  watch.heard(1, {8, true, {2}}, kNow);
  watch.heard(2, {7, false, {}}, kNow);
  const Holdup holdup = watch.find(question({1}));
  EXPECT_EQ(holdup.why, Why::absent);
  EXPECT_EQ(holdup.rank, 2);
  EXPECT_EQ(holdup.started, 7u);
}

TEST(Watch, ARankHeldUpInAnEarlierOperationIsNotTheCulprit) {
  Watch watch;
  watch.heard(2, {5, true, {4}}, kNow);
  watch.heard(4, {3, false, {}}, kNow);
  EXPECT_EQ(watch.find(question({2})).rank, 4);
}

TEST(Watch, SilenceComesBeforeAbsence) {
  Watch watch;
  watch.heard(1, {2, false, {}}, kNow);
  const Holdup holdup = watch.find(question({1, 3}));
  EXPECT_EQ(holdup.why, Why::silent);
  EXPECT_EQ(holdup.rank, 3);
}

TEST(Watch, ACircleIsStuck) {
  Watch watch;
  watch.heard(1, {8, true, {2}}, kNow);
  watch.heard(2, {8, true, {1}}, kNow);
  const Holdup holdup = watch.find(question({2}));
  EXPECT_EQ(holdup.why, Why::stuck);
  EXPECT_EQ(holdup.rank, 2);
}

TEST(Watch, CountsOperationsModulo) {
  Watch watch;
  watch.heard(1, {3, true, {}}, kNow);                        // beyond the wrap: has called
  EXPECT_EQ(watch.find(question({1}, 0xfffffff0u)).why, Why::stuck);
}

TEST(Watch, AsksWhoeverIsOnTheWayOnce) {
  Watch watch;
  watch.heard(1, {8, true, {2}}, kNow);
  EXPECT_EQ(watch.to_ask(question({1}), kNow - seconds(1)), (std::set<int>{1, 2}));
  watch.asked(1, kNow);
  EXPECT_EQ(watch.to_ask(question({1}), kNow - seconds(1)), (std::set<int>{2}));
  EXPECT_EQ(watch.to_ask(question({1}), kNow), (std::set<int>{1, 2}));
}

TEST(Word, SurvivesTheWire) {
  Word cause{.kind = Word::Kind::verdict, .communicator = 9, .status = Status(Code::timeout, "rank 3 is gone", 3)};
  Word report{.kind = Word::Kind::report,
              .communicator = 1,
              .report = {77, true, {0, 4, 9}, {{1, 6, 3, true, 2, 64, 128, 76, true, 0x123456789ab}}}};
  Word ask{.kind = Word::Kind::ask, .communicator = 1, .about = 12};
  Word hang{.kind = Word::Kind::hang, .communicator = 1, .hang = std::string("a\0b", 3)};
  for (const Word& word : {cause, report, ask, hang}) {
    const auto back = Word::decode(word.encode());
    ASSERT_TRUE(back);
    EXPECT_EQ(back->kind, word.kind);
    EXPECT_EQ(back->communicator, word.communicator);
    EXPECT_EQ(back->about, word.about);
    EXPECT_EQ(back->status, word.status);
    EXPECT_EQ(back->report, word.report);
    EXPECT_EQ(back->hang, word.hang);
  }
}

TEST(Word, WhatMakesNoSenseIsNotOne) {
  const auto good =
      Word{.kind = Word::Kind::cause, .communicator = 9, .status = Status(Code::timeout, "late", 3)}.encode();
  for (std::size_t cut = 0; cut < good.size(); ++cut) EXPECT_FALSE(Word::decode(std::span(good).first(cut))) << cut;
  auto bad = good;
  bad[0] = std::byte{99};
  EXPECT_FALSE(Word::decode(bad));
  auto mute = Word{.kind = Word::Kind::ask}.encode();
  mute[0] = std::byte(Word::Kind::verdict);                   // a verdict of nothing
  EXPECT_FALSE(Word::decode(mute));
}

}  // namespace
}  // namespace tutti::comm
