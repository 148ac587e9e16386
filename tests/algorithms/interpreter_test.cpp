// The interpreter's second opinion on what the checker proves: the words that come out, and the trees they were added
// by.
#include <gtest/gtest.h>
#include "algorithms/checker.h"
#include "tests/algorithms/interpreter.h"
#include "tests/algorithms/requests.h"

namespace tutti::algorithms::test {
namespace {

class Runs : public testing::TestWithParam<const Generator*> {};

std::vector<Schedule> schedules_of(const Generator& generator, const Request& request) {
  std::vector<Schedule> out;
  for (int rank = 0; rank < request.rank_count; ++rank) out.push_back(generator.generate(request, rank));
  return out;
}

TEST_P(Runs, random_orders_give_what_the_collective_means) {
  const Generator& generator = *GetParam();
  for (int p = 1; p <= 9; ++p) {
    for (const Request& request : requests(generator, p)) {
      const std::vector<bool> in_place(std::size_t(p), request.in_place);
      for (std::uint64_t seed : {1, 2}) {
        ASSERT_EQ(interpret(request, schedules_of(generator, request), in_place, seed).error, "") << described(request);
      }
    }
  }
}

// Words under an addition that is not associative: canonical and same bits are what comes out, not only what trees say.
TEST_P(Runs, bits_are_the_same_or_canonical_exactly_where_claimed) {
  const Generator& generator = *GetParam();
  for (int p = 2; p <= 9; ++p) {
    for (const Request& request : requests(generator, p)) {
      const bool all = request.collective == Collective::all_reduce;
      if (!all && request.collective != Collective::reduce && request.collective != Collective::reduce_scatter)
        continue;
      const std::vector<bool> in_place(std::size_t(p), request.in_place);
      const Outcome outcome = interpret(request, schedules_of(generator, request), in_place, 7, Addition::mixing);
      ASSERT_EQ(outcome.error, "") << described(request);
      std::vector<std::uint64_t>
          blocks;   // all outputs one behind another: of a reduce_scatter that is the whole vector
      bool same = true;
      for (const auto& output : outcome.outputs) {
        if (all && !blocks.empty()) same = same && output == blocks;
        else blocks.insert(blocks.end(), output.begin(), output.end());
      }
      EXPECT_EQ(same, generator.same_bits(request)) << described(request);
      EXPECT_EQ(same && blocks == outcome.canonical, generator.canonical(request)) << described(request);
    }
  }
}

std::string generator_name(const testing::TestParamInfo<const Generator*>& info) {
  return std::string(info.param->name());
}

INSTANTIATE_TEST_SUITE_P(All, Runs, testing::ValuesIn(generators().begin(), generators().end()), generator_name);

}  // namespace
}  // namespace tutti::algorithms::test
