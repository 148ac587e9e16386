#pragma once
// Planner: which algorithm serves a call. Prices every candidate from its card (rounds, bytes, reductions) with the costs of
// the wires, obeys the user's rules, and decides from data that all ranks share, so that all decide alike.
//
// TUTTI_ALGO is a list of rules, separated by commas: [collective:]algorithm[:range], e.g.
//   ring                                            wherever ring exists
//   all_reduce:direct:-32K,tree:32K-1M,ring:1M-     by bytes (of the whole vector); the collective holds until the next
//   ^bruck                                          never this one
// TUTTI_DIRECT_THRESHOLD, _TREE_THRESHOLD: that algorithm up to so many bytes; TUTTI_RING_THRESHOLD: ring from so many on.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <tutti/status.h>
#include <vector>

#include "algorithms/generate.h"
#include "core/config.h"

namespace tutti::comm {

// Of the slowest wire that a schedule uses. Defaults until something is measured.
struct WireCost {
  double alpha = 0.4e-6;          // seconds a round
  double message = 0.1e-6;        // seconds of a processor for each message
  double beta = 1 / 9e9;          // seconds a byte sent
  double gamma = 1 / 12e9;        // seconds a byte reduced
  bool shares_writes = true;      // a multicast costs one write
  double crowding = 1;            // ranks a core, at least 1: how many share each of the above
};

struct Question {
  algorithms::Request request;
  std::uint64_t bytes = 0;        // of the whole vector
  bool reduces = false;
  bool uniform = true;            // blocks of one size
};

struct Plan {
  const algorithms::Generator* generator = nullptr;
  double seconds = 0;             // predicted
  std::string reason;
};

class Planner {
 public:
  struct Rule {
    bool exclude = false, any_collective = true;
    Collective collective = Collective::all_reduce;
    std::string algorithm;
    std::uint64_t from = 0, to = ~std::uint64_t(0);   // from <= bytes < to
    std::string text;
  };
  // invalid_argument: names the rule and what was wanted.
  static Result<std::vector<Rule>> parse_rules(const Settings& settings);

  Planner(std::vector<Rule> rules, bool canonical, WireCost cost) : rules_(std::move(rules)), canonical_(canonical), cost_(cost) {}
  // All candidates, best first. Empty: invalid_argument or unsupported, when a rule cannot be obeyed.
  Result<std::vector<Plan>> plans(const Question& question);
  double seconds(const algorithms::Cost& cost, std::uint64_t bytes) const;

 private:
  std::vector<Rule> rules_;
  bool canonical_ = false;
  WireCost cost_;
  // Cards are the same for every size, and some take milliseconds to count.
  const algorithms::Cost& card(const algorithms::Generator& generator, const algorithms::Request& request);
  std::map<std::tuple<const algorithms::Generator*, Collective, int, bool>, algorithms::Cost> cards_;
};

}  // namespace tutti::comm
