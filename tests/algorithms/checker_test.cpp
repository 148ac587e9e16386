// What the checker says about schedules written by hand: right ones, and each kind of wrong one, with rank and step
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "algorithms/checker.h"
#include "algorithms/steps.h"

namespace tutti::algorithms::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Request request_for(Collective what, int rank_count, bool in_place = false) {
  return {.collective = what, .rank_count = rank_count, .root = 0, .in_place = in_place, .levels = {}};
}

Schedule steps(std::vector<Step> list, std::uint32_t blocks = 1, std::vector<std::uint32_t> scratch_shapes = {}) {
  return {.blocks = blocks, .slices = 1, .scratch = std::move(scratch_shapes), .steps = std::move(list)};
}

// Two ranks swap inputs and add what came by a step of its own.
std::vector<Schedule> swapped_and_reduced() {
  std::vector<Schedule> out;
  for (int rank : {0, 1}) {
    out.push_back(steps({send(input(0), 1 - rank), recv(scratch(0), 1 - rank), copy(output(0), input(0)),
                         reduce(output(0), scratch(0), true)},
                        1, {0}));
  }
  return out;
}

TEST(Checker, accepts_recv_then_reduce_and_counts_it) {
  const Verdict verdict = check(request_for(Collective::all_reduce, 2), swapped_and_reduced());
  EXPECT_EQ(verdict.error, "");
  EXPECT_TRUE(verdict.canonical);
  EXPECT_TRUE(verdict.same_bits);
  EXPECT_EQ(verdict.cost.rounds, 1);
  EXPECT_EQ(verdict.cost.messages, 1);
  EXPECT_EQ(verdict.cost.reduced, 2);
}

TEST(Checker, wrong_completes_marks) {
  auto schedules = swapped_and_reduced();
  schedules[1].steps[3].completes = false;
  EXPECT_THAT(check(request_for(Collective::all_reduce, 2), schedules).error,
              AllOf(HasSubstr("rank 1 step 3"), HasSubstr("not marked complete")));
  schedules = swapped_and_reduced();
  schedules[0].steps[2].completes = true;
  EXPECT_THAT(check(request_for(Collective::all_reduce, 2), schedules).error,
              AllOf(HasSubstr("rank 0 step 2"), HasSubstr("only reductions")));
}

TEST(Checker, a_message_without_an_other_end) {
  auto schedules = swapped_and_reduced();
  schedules[0].steps.erase(schedules[0].steps.begin());
  EXPECT_THAT(check(request_for(Collective::all_reduce, 2), schedules).error,
              AllOf(HasSubstr("rank 1 step 1"), HasSubstr("rank 0 sends nothing")));
  schedules = swapped_and_reduced();
  schedules[1].steps.push_back(send(output(0), 0));
  EXPECT_THAT(check(request_for(Collective::all_reduce, 2), schedules).error,
              AllOf(HasSubstr("rank 1 step 4"), HasSubstr("nobody receives")));
}

TEST(Checker, one_shot_in_place_without_scratch_deadlocks) {
  std::vector<Schedule> schedules;
  for (int rank : {0, 1})
    schedules.push_back(steps({send(input(0), 1 - rank), recv_reduce(output(0), input(0), {1 - rank}, true)}));
  EXPECT_EQ(check(request_for(Collective::all_reduce, 2), schedules).error, "");
  EXPECT_THAT(check(request_for(Collective::all_reduce, 2, true), schedules).error,
              AllOf(HasSubstr("deadlock"), HasSubstr("step 1")));
}

TEST(Checker, a_cycle_of_three_is_told_as_one) {
  // Everybody receives before it sends, all around.
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < 3; ++rank) {
    const int next = wrap(rank + 1, 3), prev = wrap(rank - 1, 3);
    schedules.push_back(steps({recv(output(0), prev), send(output(0), next)}));
  }
  EXPECT_THAT(check(request_for(Collective::broadcast, 3), schedules).error,
              AllOf(HasSubstr("deadlock"), HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("rank 2")));
}

TEST(Checker, ends_that_do_not_fit) {
  std::vector<Schedule> schedules = {steps({send(input(0), 1), recv(output(1), 1), copy(output(0), input(0))}, 2),
                                     steps({send(input(0), 0), recv(output(1), 0), copy(output(1), input(0))}, 2)};
  EXPECT_THAT(check(request_for(Collective::all_gather, 2), schedules).error,
              AllOf(HasSubstr("shapes differ"), HasSubstr("rank 1 step 1")));
  schedules[1].steps[1] = recv(output(0, 2), 0);
  EXPECT_THAT(check(request_for(Collective::all_gather, 2), schedules).error, HasSubstr("counts differ"));
  schedules[1].steps[1] = recv(output(7), 0);
  EXPECT_THAT(check(request_for(Collective::all_gather, 2), schedules).error,
              AllOf(HasSubstr("no such chunk"), HasSubstr("rank 1 step 1")));
  schedules[1].steps[1] = recv(input(0), 0);
  EXPECT_THAT(check(request_for(Collective::all_gather, 2), schedules).error, HasSubstr("writes input"));
  schedules[1].blocks = 3;
  EXPECT_THAT(check(request_for(Collective::all_gather, 2), schedules).error, HasSubstr("rank 1: 3 blocks"));
}

TEST(Checker, what_is_read_must_have_been_written) {
  std::vector<Schedule> schedules = {steps({send(scratch(0), 1), copy(output(0), input(0))}, 1, {0}),
                                     steps({recv(output(0), 0)})};
  EXPECT_THAT(check(request_for(Collective::broadcast, 2), schedules).error,
              AllOf(HasSubstr("rank 0 step 0"), HasSubstr("nobody has written")));
  schedules = {steps({send(input(0), 1)}), steps({recv(output(0), 0)})};
  EXPECT_THAT(check(request_for(Collective::broadcast, 2), schedules).error,
              HasSubstr("rank 0: output[0] is never written"));
  EXPECT_EQ(check(request_for(Collective::broadcast, 2, true), schedules).error, "");
}

TEST(Checker, every_contribution_exactly_once) {
  // Rank 1 is added twice at rank 0, and rank 2 is left out.
  std::vector<Schedule> schedules = {
      steps({recv_reduce(scratch(0), input(0), {1}, false), recv_reduce(output(0), scratch(0), {1}, true)}, 1, {0}),
      steps({send(input(0), 0), send(input(0), 0)}), steps({})};
  EXPECT_THAT(check(request_for(Collective::reduce, 3), schedules).error,
              AllOf(HasSubstr("rank 0 step 1"), HasSubstr("not the sum")));
}

TEST(Checker, own_data_of_reductions_is_named_as_input) {
  std::vector<Schedule> schedules = {steps({recv_reduce(output(0), output(0), {1}, true)}), steps({send(input(0), 0)})};
  EXPECT_THAT(check(request_for(Collective::reduce, 2, true), schedules).error, HasSubstr("named as input"));
}

TEST(Checker, different_trees_are_not_the_same_bits) {
  // Rank 0 adds (0+1)+2, rank 1 gets that, rank 2 adds (0+2)+1 by itself.
  std::vector<Schedule> schedules = {steps({send(input(0), 2), recv_reduce(scratch(0), input(0), {1}, false),
                                            recv_reduce(output(0), scratch(0), {2}, true), send(output(0), 1)},
                                           1, {0}),
                                     steps({send(input(0), {0, 2}), recv(output(0), 0)}),
                                     steps({recv_reduce(scratch(0), input(0), {0}, false),
                                            recv_reduce(output(0), scratch(0), {1}, true), send(input(0), 0)},
                                           1, {0})};
  const Verdict verdict = check(request_for(Collective::all_reduce, 3), schedules);
  // The multicast of rank 1 is taken by rank 0 and rank 2 at once, and rank 2 then still has to send: no deadlock.
  EXPECT_EQ(verdict.error, "");
  EXPECT_FALSE(verdict.same_bits);
  EXPECT_FALSE(verdict.canonical);
}

TEST(Checker, refuses_other_numbers_of_schedules_and_other_collectives) {
  EXPECT_THAT(check(request_for(Collective::all_reduce, 2), std::vector<Schedule>(1)).error,
              HasSubstr("1 schedules for 2 ranks"));
  EXPECT_NE(check(request_for(Collective::barrier, 2), std::vector<Schedule>(2)).error, "");
}

}  // namespace
}  // namespace tutti::algorithms::test
