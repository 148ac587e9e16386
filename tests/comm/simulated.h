#pragma once
// Simulated: what tests of simulations share: requests, groups, and the fold that must be the whole.
#include <gtest/gtest.h>

#include "comm/simulation.h"

namespace tutti::comm::test {

inline std::vector<int> in_groups_of(int size, int ranks) {
  std::vector<int> out;
  for (int r = 0; r < ranks; ++r) out.push_back(r / size);
  return out;
}

inline algorithms::Request request_of(Collective what, int ranks, std::vector<std::vector<int>> levels = {}) {
  return {.collective = what, .rank_count = ranks, .levels = std::move(levels)};
}

inline Simulation run(const char* algorithm, const algorithms::Request& request, const Placement& machine,
                      const Load& load, const SimulationOptions& options = {}) {
  const auto result = simulate(*algorithms::find_generator(algorithm), request, machine, load, options);
  EXPECT_TRUE(result.ok()) << algorithm << ": " << result.status().to_string();
  return result.ok() ? *result : Simulation{};
}

// The rings and exchanges that are folded beyond what fits: in full and folded they must be the same, machine levels or
// not.
inline void expect_fold(const char* name, Collective what, int p, int host, std::uint64_t bytes) {
  Placement machine{{}, {}};
  algorithms::Request request = request_of(what, p);
  if (host) {
    machine.levels = {in_groups_of(host, p)};
    machine.prices.borders.insert(machine.prices.borders.begin(), BorderPrice{"host", 10e-6, 3e-6, 1 / 2.5e9});
    request.levels = machine.levels;
  }
  const Load load{.bytes = bytes, .segment_bytes = 64 << 10};
  const Simulation all = run(name, request, machine, load, {.folding = Folding::never, .find_critical = false});
  const Simulation folded = run(name, request, machine, load, {.folding = Folding::always, .find_critical = false});
  EXPECT_EQ(folded.width, host ? host : 1) << name;
  EXPECT_FALSE(folded.exact());
  EXPECT_NEAR(folded.seconds / all.seconds, 1, 1e-9) << name << " " << name_of(what) << " " << p << " " << host;
  EXPECT_EQ(folded.bytes, bytes);
  for (std::size_t i = 0; i < all.borders.size(); ++i) {
    EXPECT_NEAR(folded.borders[i].bytes, all.borders[i].bytes, 1e-6 * all.borders[i].bytes) << name;
    EXPECT_EQ(folded.borders[i].messages, all.borders[i].messages) << name;
    EXPECT_NEAR(folded.borders[i].utilisation, all.borders[i].utilisation, 1e-9) << name;
  }
}

}  // namespace tutti::comm::test
