// Proofs: every generator, every request that it serves, 1 to 64 ranks and a few beyond; and every card counted.
#include <cmath>
#include <gtest/gtest.h>
#include <set>
#include "algorithms/checker.h"
#include "tests/algorithms/requests.h"

namespace tutti::algorithms::test {
namespace {

class Proofs : public testing::TestWithParam<const Generator*> {};

std::vector<int> rank_counts() {
#if defined(__SANITIZE_ADDRESS__)      // what is wrong with memory shows early; the proofs themselves are made without
  const int highest = 20;
  std::vector<int> counts = {33};
#else
  const int highest = 64;
  std::vector<int> counts = {100, 127, 128};
#endif
  for (int p = 1; p <= highest; ++p) counts.push_back(p);
  return counts;
}

void expect_card(const Generator& generator, const Request& request, const Verdict& verdict) {
  const Cost card = generator.cost(request), counted = verdict.cost;
  EXPECT_EQ(card.rounds, counted.rounds);
  EXPECT_NEAR(card.sent, counted.sent, 1e-9);
  EXPECT_NEAR(card.written, counted.written, 1e-9);
  EXPECT_NEAR(card.reduced, counted.reduced, 1e-9);
  EXPECT_EQ(card.messages, counted.messages);
  EXPECT_EQ(generator.canonical(request), verdict.canonical);
  EXPECT_EQ(generator.same_bits(request), verdict.same_bits);
}

TEST_P(Proofs, every_request_is_proved_and_its_card_is_true) {
  const Generator& generator = *GetParam();
  int proved = 0;
  for (int p : rank_counts()) {
    for (const Request& request : requests(generator, p)) {
      const Verdict verdict = check(request, generator);
      ASSERT_EQ(verdict.error, "") << described(request);
      expect_card(generator, request, verdict);
      ASSERT_FALSE(HasFailure()) << described(request);
      ++proved;
    }
  }
  EXPECT_GT(proved, 10);
}

// Ranks decide by themselves whether they work in place, so every mixture must work. Half of all ranks, and all but
// one.
TEST_P(Proofs, ranks_in_place_meet_ranks_that_are_not) {
  const Generator& generator = *GetParam();
  for (int p = 2; p <= 17; ++p) {
    for (Request request : requests(generator, p)) {
      for (int modulus : {2, p}) {
        std::vector<bool> in_place;
        std::vector<Schedule> schedules;
        for (int rank = 0; rank < p; ++rank) {
          in_place.push_back((rank % modulus == 0) == request.in_place);
          Request own = request;
          own.in_place = in_place.back();
          schedules.push_back(generator.generate(own, rank));
        }
        ASSERT_EQ(check(request, schedules, in_place).error, "") << described(request);
      }
    }
  }
}

// From the schedules alone: a send of what a reduction that does not complete has written.
bool partials_are_sent(const Generator& generator, const Request& request) {
  for (int rank = 0; rank < request.rank_count; ++rank) {
    std::set<std::pair<Space, std::uint32_t>> partial;
    for (const Step& step : generator.generate(request, rank).steps) {
      for (std::uint32_t i = 0; step.kind == StepKind::send && i < step.source.count; ++i)
        if (partial.count({step.source.space, step.source.first + i})) return true;
      const bool sums = (step.kind == StepKind::recv_reduce || step.kind == StepKind::reduce) && !step.completes;
      for (std::uint32_t i = 0; step.kind != StepKind::send && i < step.target.count; ++i) {
        const std::pair chunk{step.target.space, step.target.first + i};
        if (sums) partial.insert(chunk);
        else partial.erase(chunk);
      }
    }
  }
  return false;
}

TEST_P(Proofs, partial_sums_travel_only_where_the_generator_says_so) {
  const Generator& generator = *GetParam();
  int found = 0;
  for (int p = 2; p <= 17; ++p) {
    for (const Request& request : requests(generator, p)) {
      const bool sent = partials_are_sent(generator, request);
      EXPECT_TRUE(!sent || generator.sends_partials(request)) << described(request);
      found += sent;
    }
  }
  if (generator.name() == "ring" || generator.name() == "tree") {
    EXPECT_GT(found, 0);
  }
}

std::string generator_name(const testing::TestParamInfo<const Generator*>& info) {
  return std::string(info.param->name());
}

INSTANTIATE_TEST_SUITE_P(All, Proofs, testing::ValuesIn(generators().begin(), generators().end()), generator_name);

}  // namespace
}  // namespace tutti::algorithms::test
