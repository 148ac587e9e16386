#pragma once
// Rules: what the user wants of the choice of algorithms.
//
// TUTTI_ALGO is a list of rules, separated by commas: [collective:]algorithm[:range], e.g.
//   ring                                            wherever ring exists
//   all_reduce:direct:-32K,tree:32K-1M,ring:1M-     by bytes (of the whole vector); the collective holds until the next
//   ^bruck                                          never this one
// TUTTI_DIRECT_THRESHOLD, _TREE_THRESHOLD: that algorithm up to so many bytes;
// TUTTI_RING_THRESHOLD: ring from so many on.
#include <cstdint>
#include <string>
#include <tutti/status.h>
#include <tutti/types.h>
#include <vector>

#include "core/config.h"

namespace tutti::comm {

struct Rule {
  bool exclude = false, any_collective = true;
  Collective collective = Collective::all_reduce;
  std::string algorithm;
  std::uint64_t from = 0, to = ~std::uint64_t(0);   // from <= bytes < to
  std::string text;                                 // as it was set, with the variable's name
};

// TUTTI_ALGO and the thresholds, in this order. invalid_argument: names the rule and what was wanted.
Result<std::vector<Rule>> parse_rules(const Settings& settings);

}  // namespace tutti::comm
