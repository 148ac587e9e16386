#pragma once
// GOAL: schedules in the text of the Group Operation Assembly Language (Hoefler, Siebert, Lumsdaine: Group Operation
// Assembly Language, 2009), which LogGOPSim's txt2bin reads, so that others' simulators can check ours. It only writes,
// and knows no wires.
//
//   num_ranks 2
//
//   rank 0 {
//   l0s0: send 64b to 1 tag 0
//   l1r0: recv 64b from 1 tag 0
//   l1: calc 11
//   l1 requires l1r0
//   l2s0: send 64b to 1 tag 1
//   l2s0 requires l1
//   }
//
// Step i is named l<i>; its sends l<i>s<k> and receives l<i>r<k>, one a peer. A tag is the number of the message on its
// lane. `calc` is in nanoseconds: a reduction costs bytes * operands * gamma, a copy nothing. Messages are whole: the
// language has no segments, so that pipelining is lost. Steps without bytes are left out.
#include <iosfwd>
#include <tutti/status.h>

#include "comm/part.h"

namespace tutti::comm {

// One rank's schedule at a time is in memory. unsupported: the generator refuses the request. The stream's own state
// says whether writing went well.
Status write_goal(std::ostream& out, const algorithms::Generator& generator, const algorithms::Request& request,
                  const Load& load, double gamma_seconds_per_byte);

}  // namespace tutti::comm
