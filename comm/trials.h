#pragma once
// Trials: how long all_reduces and broadcasts of a few sizes took among all ranks of a world, of those algorithms whose
// predictions lie close together. Where the model is wrong by a little, a clock decides. A value; probe.h takes the
// times, profile.h keeps them.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/types.h>
#include <vector>

namespace tutti::comm {

struct Trial {
  std::string algorithm;
  std::uint64_t bytes = 0;      // of the vector
  double seconds = 0;           // of the slowest rank, the median of its times, one after another
  Collective collective = Collective::all_reduce;
  bool operator==(const Trial&) const = default;
};

struct Trials {
  int ranks = 0;                // 0: none
  std::string shape;            // shape_of their levels
  std::vector<Trial> times;
  bool operator==(const Trials&) const = default;
};

inline constexpr Collective kTried[] = {Collective::all_reduce, Collective::broadcast};
inline constexpr std::uint64_t kTrialSizes[] = {8, 32, 128, 512, 2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20};
// Predictions up to this many times the best are tried. Those of broadcasts say how long one takes; of several in a row each takes less,
// the more so the less ranks wait for each other, but where one write serves all.
constexpr double trial_nearness(Collective what, bool shares_writes) { return what == Collective::broadcast && !shares_writes ? 4 : 1.6; }
inline constexpr std::size_t kMostTried = 4;      // algorithms for one size
inline constexpr int kMostTrialRanks = 64;
inline constexpr std::size_t kMostTrials = 96;    // of one Trials

// The size that was tried and speaks for this one: at least half of it, less than twice. nullopt: none.
std::optional<std::uint64_t> trial_size(const Trials& trials, Collective collective, std::uint64_t bytes);
// The groups of every level by their sizes: "4+4/2+2+2+2"; "" of equals.
std::string shape_of(const std::vector<std::vector<int>>& levels);
// Equal on ranks that have equal ones; never 0.
std::uint64_t mark_of(const Trials& trials);
const Trial* find_trial(const Trials& trials, Collective collective, std::string_view algorithm,
                        std::uint64_t bytes);  // nullptr: not tried

}  // namespace tutti::comm
