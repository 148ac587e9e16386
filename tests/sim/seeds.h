#pragma once
// Which seeds a test runs: its own range, or the one of the command line: test_sim --gtest_filter=NAME --seed 123
#include <cstdint>
#include <vector>

namespace tutti::sim {

// 1..count, or just the seed that was asked for.
std::vector<std::uint64_t> seeds(std::uint64_t count);
// False: one seed was asked for, and statements about the whole range say nothing.
bool whole_range();

}  // namespace tutti::sim
