#pragma once
// Dependencies: which steps of one rank wait for which, because they touch the same chunks. Knows chunks, not bytes.
// Order on lanes is not its business: who runs a schedule numbers the messages.
#include <cstdint>
#include <span>
#include <vector>

#include "comm/program.h"

namespace tutti::comm {

// For each step, the earlier ones that it waits for, ascending. In time close to linear in steps and answers.
std::vector<std::vector<Dependency>> find_dependencies(const algorithms::Request& request, int rank,
                                                       std::uint32_t slices, std::span<const algorithms::Step> steps);

}  // namespace tutti::comm
