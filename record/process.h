#pragma once
// What /proc tells of a process of this host. Reads only.
#include <cstdint>

namespace tutti::record {

struct ProcessState {
  bool there = false;
  bool stopped = false;             // by a signal, or a debugger
  std::uint64_t start = 0;          // clock ticks since boot
};
ProcessState process_state(int pid);
inline std::uint64_t process_start(int pid) { return process_state(pid).start; }

}  // namespace tutti::record
