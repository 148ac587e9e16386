#pragma once
// Faults on the real sockets of this process: recv, send and sendmsg of the whole program go through here, since a
// program's own functions come before the C library's. Without a fault they are system calls and nothing else.
#include <cstddef>

namespace tutti::test {

enum class Fault {
  none,
  flip,        // one bit of the next long enough read
  reset,       // the connection is shut down at both ends, once
  silent,      // nothing moves on it any more, and nothing is reported
  slow,        // no more than some KB at a time, with pauses
};

// On the TCP socket that has sent most since the last call of forget_traffic(), of those without a fault yet. False:
// there is none that sent `least` bytes.
bool inject(Fault fault, std::size_t least);
// How often a fault has struck since the last forget_traffic().
int strikes();
// Faults, too.
void forget_traffic();

}  // namespace tutti::test
