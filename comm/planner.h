#pragma once
// Planner: which algorithm serves a call. Prices every candidate from its card (rounds, bytes, reductions) with the
// costs of the wires, obeys the user's rules, and decides from data that all ranks share, so that all decide alike.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <tutti/status.h>
#include <vector>

#include "algorithms/borders.h"
#include "algorithms/generate.h"
#include "comm/rules.h"
#include "comm/trials.h"

namespace tutti::comm {

// Of one border between groups (see algorithms/borders.h); the last is between ranks of an innermost group.
struct BorderPrice {
  const char* name = "rank";      // what the groups are: "host", "package", "NUMA node"; "rank"
  double alpha = 0.4e-6;          // seconds a message on its way
  double message = 0.1e-6;        // seconds of a processor for each message
  double beta = 1 / 9e9;          // seconds a byte that leaves the group; the last: the rank
  bool measured = false;          // else assumed
};

struct Prices {
  std::vector<BorderPrice> borders = {BorderPrice{}};   // one more than levels, outermost first
  double gamma = 1 / 40e9;        // seconds a byte of operands reduced, while they are in a cache
  double gamma_memory = 1 / 20e9; // from kCachedBytes on
  bool shares_writes = true;      // within innermost groups a multicast costs one write
  Trials trials;                  // of ranks like these
  std::optional<std::uint64_t> lend_from;   // bytes of a message that its receiver had better fetch (SegmentHeader::lend); nullopt: of none
  double crowding = 1;            // ranks a core, at least 1: how many share each of the above
};

// Vectors up to this size stay in a core's own cache while they are sent and reduced.
inline constexpr std::uint64_t kCachedBytes = 1 << 20;

struct Question {
  algorithms::Request request;
  std::uint64_t bytes = 0;        // of the whole vector
  bool uniform = true;            // blocks of one size
};

struct Plan {
  const algorithms::Generator* generator = nullptr;
  double seconds = 0;             // predicted
  std::string reason;
  std::optional<double> measured; // by a trial of a size near by, scaled as the prediction says
};

class Planner {
 public:
  Planner(std::vector<Rule> rules, bool canonical, Prices prices)
      : rules_(std::move(rules)), canonical_(canonical), prices_(std::move(prices)) {}
  // For other ranks at the same prices.
  Planner fresh() const { return at(prices_); }
  Planner at(Prices prices) const { return Planner(rules_, canonical_, std::move(prices)); }
  // All candidates, best first. Empty: invalid_argument or unsupported, when a rule cannot be obeyed.
  Result<std::vector<Plan>> plans(const Question& question);

  // What an algorithm does at each border, and what that costs.
  struct Card {
    algorithms::Cost cost;
    std::vector<algorithms::Border> borders;
  };
  double seconds(const Card& card, std::uint64_t bytes) const;
  // The border that takes the most of it.
  std::size_t limiting_border(const Card& card, std::uint64_t bytes) const;
  const Card& card(const algorithms::Generator& generator, const algorithms::Request& request);
  const Prices& prices() const { return prices_; }

 private:
  std::vector<Rule> rules_;
  bool canonical_ = false;
  Prices prices_;
  void compare(const Question& question, std::vector<Plan>& plans);
  double border_seconds(const Card& card, std::size_t border, std::uint64_t bytes) const;
  // The same for every size; some take milliseconds to count.
  std::map<std::tuple<const algorithms::Generator*, Collective, int, bool>, Card> cards_;
};

}  // namespace tutti::comm
