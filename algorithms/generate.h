#pragma once
// The generators: every algorithm that the planner can choose, each with its card.
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>
#include "algorithms/schedule.h"

namespace tutti::algorithms {

// Figures of one rank's worst case, for a vector of n bytes (block collectives: n = all blocks together, taken as
// equal; all_to_all: the blocks of one rank). Tests count them.
struct Cost {
  int rounds = 0;       // longest chain of messages, each made of what the one before brought
  double sent = 0;      // bytes sent by the busiest rank, as a multiple of n (multicast counted once a receiver)
  double written = 0;   // the same with a multicast counted once (shared memory)
  double reduced = 0;   // bytes read as operands of reductions by the busiest rank, as a multiple of n
  int messages = 0;     // sent by the busiest rank (multicast counted once a receiver)
};

// What crosses the border between groups of one level that lie in one group of the level around it; the last: between
// ranks of one innermost group.
struct Border {
  // Messages that cross here on the longest chain, each made of what the one before brought; of all chains the one with
  // most hops outermost. What only waits for its lane is not counted: wires carry more than one message at a time.
  int hops = 0;
  double bytes =
      0;  // leaving the busiest group, as a multiple of n (see Cost); the last border: leaving the busiest rank
  int messages = 0;   // across here, sent by the busiest rank
  bool operator==(const Border&) const = default;
};
inline constexpr int kMaxLevels = 3;   // of a request

class Generator {
 public:
  virtual ~Generator() = default;
  virtual std::string_view name() const = 0;     // "ring", "bidirectional_ring", "direct", "two_shot", "tree", ...
  virtual std::string_view source() const = 0;   // paper and section
  virtual std::string_view best_when() const = 0;
  // Empty when this request can be generated; else why not ("needs an even rank count").
  virtual std::string_view refusal(const Request& request) const = 0;
  virtual Cost cost(const Request& request) const = 0;
  // One more than request.levels, outermost first. Here: counted from the schedules of all ranks.
  virtual std::vector<Border> borders(const Request& request) const;
  // Whether every reduced element has the canonical tree on all ranks (proved in tests).
  virtual bool canonical(const Request& request) const = 0;
  // Whether any rank ever sends a sum of some, but not all, contributions (counted in tests). The same on all ranks.
  virtual bool sends_partials(const Request& request) const = 0;
  // Whether all ranks get the same bits (proved in tests).
  virtual bool same_bits(const Request& request) const = 0;
  // One rank's schedule. Pure and lazy: needs no other rank's. refusal() must be empty.
  virtual Schedule generate(const Request& request, int rank) const = 0;
  // The same for those who go through many ranks of one request: what is of all
  // ranks is made once. It copies the request.
  virtual std::function<Schedule(int rank)> schedules(const Request& request) const {
    return [this, request](int rank) { return generate(request, rank); };
  }
};

std::span<const Generator* const> generators();           // all, in a fixed order
const Generator* find_generator(std::string_view name);   // nullptr when unknown

}  // namespace tutti::algorithms
