// Verdict: figures small enough to be judged by hand.
#include "perf/regret/verdict.h"

#include <gtest/gtest.h>

namespace tutti::perf::regret {
namespace {

Point point(const std::string& choice, std::vector<Times> times) { return {"shm", 4, 65536, choice, std::move(times)}; }

// tree wins the even rounds by luck; ring is what the odd ones say, but the best was chosen already.
TEST(Verdict, TheBestIsChosenOnEvenRoundsAndScoredOnOddOnes) {
  const Verdict v = judge(point("ring", {{"ring", {10, 6, 10, 6}}, {"tree", {5, 12, 5, 12}}}));
  EXPECT_EQ(v.best, "tree");
  EXPECT_EQ(v.best_us, 12);
  EXPECT_EQ(v.choice_us, 6);
  EXPECT_DOUBLE_EQ(v.ratio, 0.5);
}

TEST(Verdict, WhatIsTheBestCostsNothing) {
  const Verdict v = judge(point("tree", {{"ring", {10, 10}}, {"tree", {5, 7}}}));
  EXPECT_EQ(v.best, "tree");
  EXPECT_EQ(v.ratio, 1);
}

TEST(Verdict, WhoWasGivenUpIsNotTheBest) {
  const Verdict v = judge(point("ring", {{"ring", {10, 10, 10, 10}}, {"direct", {1, 1}}}));
  EXPECT_EQ(v.best, "ring");
}

TEST(Verdict, AChoiceThatWasNotMeasuredIsNoVerdict) {
  EXPECT_EQ(judge(point("tree", {{"ring", {10, 10}}})).best, "");
  EXPECT_EQ(judge(point("tree", {})).ratio, 1);
}

TEST(Verdict, TheShareCountsPointsWithinTenPercent) {
  const auto of = [](double choice) { return point("ring", {{"ring", {choice, choice}}, {"tree", {100, 100}}}); };
  EXPECT_EQ(share_within({}), 1);
  EXPECT_EQ(share_within({of(90), of(109), of(111), of(150)}), 0.5);
  EXPECT_NE(table_row(of(150)).find("1.50 !"), std::string::npos);
  EXPECT_EQ(table_row(of(109)).find('!'), std::string::npos);
}

TEST(Verdict, AnswersWithAllMediansBestFirst) {
  EXPECT_EQ(details(point("ring", {{"ring", {10, 12, 14}}, {"tree", {5, 5}}})), "tree 5.0  ring 12.0");
}

TEST(Verdict, JsonKeepsThePoint) {
  const Point before = point("ring", {{"ring", {10, 12}}, {"tree", {5.5}}}), after = point_from_json(to_json(before));
  EXPECT_EQ(after.transport, before.transport);
  EXPECT_EQ(after.ranks, before.ranks);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(after.choice, before.choice);
  ASSERT_EQ(after.times.size(), 2u);
  EXPECT_EQ(after.times[0].algorithm, "ring");
  EXPECT_EQ(after.times[1].us, before.times[1].us);
}

}  // namespace
}  // namespace tutti::perf::regret
