#pragma once
// Interpreter: runs the schedules of all ranks on real words of memory, one random legal event after another, and
// compares what comes out with the collective's definition. It shares nothing with the checker but the schedule's
// types, so it can judge it.
#include <cstdint>
#include <string>
#include <vector>
#include "algorithms/schedule.h"

namespace tutti::algorithms::test {

// How words are added: `sum` is exact modulo 2^64 (which tree does not matter); `mixing` commutes but is not
// associative, so different trees give different words.
enum class Addition { sum, mixing };

struct Outcome {
  std::string error;                                 // empty: finished, and every output and input is as it should be
  std::vector<std::vector<std::uint64_t>> outputs;   // by rank, all words of the output
  std::vector<std::uint64_t> canonical;   // mixing only: the words of the full vector under the canonical tree
};

// `in_place` by rank. With `mixing` the words of reductions are not compared, only given.
Outcome interpret(const Request& request, const std::vector<Schedule>& schedules, const std::vector<bool>& in_place,
                  std::uint64_t seed, Addition addition = Addition::sum);

}  // namespace tutti::algorithms::test
