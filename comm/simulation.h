#pragma once
// Simulation: how long a schedule takes on a machine that need not exist, by playing it event by event (see rehearsal.h
// for the machine and the rules). Exact where all ranks are simulated; quadratic schedules among very many ranks are
// folded by their symmetry, and say so. It chooses nothing and prints nothing.
//
//   auto s = simulate(*find_generator("tree"), request, placement, {.bytes = 65536});
//   if (!s) return s.status();
//   fmt::print("{:.1f} us, limited by {}", s->seconds * 1e6, s->borders[s->critical].name);
#include <tutti/status.h>
#include <vector>

#include "comm/placement.h"
#include "comm/rehearsal.h"

namespace tutti::comm {

struct SimulatedBorder {
  const char* name = "";
  double bytes = 0;          // over all links of this border, each message counted at the outermost border it crosses
  double busiest_bytes = 0;  // that left one group (the last border: one rank)
  std::uint64_t messages = 0;
  double utilisation = 0;  // of its busiest link, 0..1
  double saving = 0;       // of the time, 0..1, if all of its prices were halved
};

struct Simulation {
  double seconds = 0;                    // until the last rank has finished
  double earliest = 0;                   // until the first has
  std::vector<SimulatedBorder> borders;  // as placement.prices.borders
  std::size_t critical = 0;              // the border that saves most
  int rank_count = 0;
  int width = 0;             // ranks simulated; fewer than rank_count: folded, each stands for rank_count / width
  std::uint64_t bytes = 0;   // simulated: more than asked for where a fold needs equal blocks
  std::uint64_t events = 0;  // of one run
  std::size_t memory_bytes = 0;
  std::vector<double> finished;  // seconds, by simulated rank
  bool exact() const { return width == rank_count; }
};

enum class Folding { when_needed, never, always };

struct SimulationOptions {
  Folding folding = Folding::when_needed;
  GoOn go_on;                 // while the schedules of the ranks are written, which takes the longest
  bool find_critical = true;  // plays once more for each border where there are several
};

// The schedule is made for `request`, levels and all; where messages cross borders is the machine's matter, which may
// have levels that the request does not know. invalid_argument: the machine's levels do not fit the ranks; no bytes.
// unsupported: the generator refuses the request; or too many messages (Score::kMaxMessages, kMaxSegments) and no
// symmetry to fold by: says which. aborted: options.go_on said no.
Result<Simulation> simulate(const algorithms::Generator& generator, const algorithms::Request& request,
                            const Placement& machine, const Load& load, const SimulationOptions& options = {});

}  // namespace tutti::comm
