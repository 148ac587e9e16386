#pragma once
// Program: a schedule made ready to run: which steps wait for which, and which message of which lane each step is.
// Knows chunks, not bytes; one Program serves every size. Immutable once built, shared by all operations that use it.
#include <compare>
#include <cstdint>
#include <vector>

#include "algorithms/schedule.h"

namespace tutti::comm {

enum class Side : std::uint8_t { source, target };

// Two steps touch the same memory, and one of them writes there. The later
// one may go as far as the earlier one has come.
struct Dependency {
  std::uint32_t step = 0;   // the other one
  Side earlier = Side::source, later = Side::source;   // where they meet
  friend auto operator<=>(const Dependency&, const Dependency&) = default;
};

struct ProgramStep {
  algorithms::Step step;
  std::vector<Dependency> after;           // earlier steps that this one waits for
  std::vector<std::uint32_t> before;       // later steps that wait for this one
  std::vector<std::uint32_t> message;      // for each peer: the number of the message on its lane
  std::vector<std::int32_t>
      previous;  // send, for each peer: the step that sends the message before on this lane, or -1
};

// The receive that the k-th message from a peer belongs to.
struct Arrival {
  std::uint32_t step = 0;
  std::uint32_t position = 0;              // of the sender in step.peers
};

struct Program {
  algorithms::Request request;
  int rank = 0;
  std::string algorithm;
  std::uint32_t blocks = 1;
  std::uint32_t slices = 1;
  std::vector<std::uint32_t> scratch;
  std::vector<ProgramStep> steps;
  std::vector<std::vector<Arrival>> arrivals;   // [peer][message]
  std::vector<int> peers;                       // all that this rank exchanges messages with, ascending
  bool sends_partials = false;                  // Generator::sends_partials: of all ranks' programs alike
  bool single_blocks = true;                    // no step names chunks of several blocks
  std::uint32_t hash = 0;                       // of algorithm and request: both ends of a message must agree
};

Program compile(const algorithms::Request& request, int rank, std::string algorithm, algorithms::Schedule schedule);

}  // namespace tutti::comm
