#pragma once
// The checker: proves that the schedules of all ranks together are the collective that was asked for.
//
// Exact, not sampled. The k-th send of a lane meets the k-th receive; a message and its receives (all receivers of a
// multicast, all senders of an n-input recv_reduce) happen together, since nobody may count on buffering, and become
// one node of a graph. Edges are what a rank's own steps wait for: conflicts on a chunk, order on a lane. Without a
// cycle no wire and no timing can deadlock, and one topological order has the values of all orders. Values are followed
// as trees of additions over (rank, chunk). It knows nothing of bytes or time, and never repairs what it finds.
#include <functional>
#include <span>
#include <string>
#include <vector>
#include "algorithms/generate.h"

namespace tutti::algorithms {

struct Verdict {
  std::string
      error;   // empty: proved. Else names rank and step and says what is wrong; what follows is then meaningless
  bool canonical = false;   // every reduced element has the canonical tree (true where nothing is reduced)
  bool same_bits = false;   // ranks that get the same element get the same tree
  Cost cost;                // counted
  bool proved() const { return error.empty(); }
};

// One schedule a rank, in order. `in_place`: one flag a rank where ranks differ; empty: all as the request says.
Verdict check(const Request& request, std::span<const Schedule> schedules, const std::vector<bool>& in_place = {});
Verdict check(const Request& request, const std::function<Schedule(int rank)>& schedule_of);
Verdict check(const Request& request, const Generator& generator);   // refusal() must be empty

// The figures of schedules, without following values. They must be well formed and free of deadlock.
Cost count(const Request& request, std::span<const Schedule> schedules);

}  // namespace tutti::algorithms
