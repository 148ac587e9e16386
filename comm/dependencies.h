#pragma once
// Dependencies: which steps of one rank wait for which, because they touch the same chunks. Knows chunks, not bytes.
// Order on lanes is not its business: who runs a schedule numbers the messages.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/program.h"

namespace tutti::comm {

// The buffer with only the rank's own block, where the other one has all ranks' blocks and in place contains it.
std::optional<algorithms::Space> own_block(Collective collective);

// For each step, the earlier ones that it waits for, ascending; one for each way in which they meet. In time close to
// linear in steps and answers.
std::vector<std::vector<Dependency>> find_dependencies(const algorithms::Request& request, int rank,
                                                       std::uint32_t slices, std::span<const algorithms::Step> steps);

}  // namespace tutti::comm
