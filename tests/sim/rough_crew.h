#pragma once
// Crews in rough worlds, as most tests of the whole library want them, and what they expect of them.
#include <gtest/gtest.h>

#include "tests/sim/crew.h"

namespace tutti::sim {

inline constexpr int kForEver = 1'000'000;       // exchanges: until something happens

// The same for all ranks, by its number.
Agenda random_agenda(std::uint64_t seed, int ranks, std::size_t most_bytes);
// So that a run stays within some 10,000 events where segments or windows are tiny.
std::size_t bearable_bytes(const SimOptions& options, std::size_t most);
// A rough world of two to eight ranks on up to three hosts; half of them over tcp alone.
CrewOptions rough_crew(std::uint64_t seed, std::size_t most_bytes);
// Runs until all ranks but one have reached the middle of their work, or a limit has gone by.
void run_into_work(Crew& crew);
// Pairs of ranks with connections for data, at both ends.
std::vector<std::pair<int, int>> connected_pairs(Crew& crew);

void expect_right(const Crew& crew);
// All that failed say the same, and at the right time; no input was touched.
void expect_one_verdict(Crew& crew, TimePoint since, Nanoseconds within, int except = -1);

}  // namespace tutti::sim
