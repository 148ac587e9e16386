#pragma once
// Regions: memory of this process that ranks of the same host may map and read in place. One table a process; any
// thread. A region is a memfd: peers open it by /proc/PID/fd, and its first
// page says whether it is the one that was meant.
#include <tutti/status.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/shm/memory.h"

namespace tutti::transport::shm {

// Where bytes lie, for another process: in a region, or in memory of its own (then without a token).
struct RegionPart {
  std::uint64_t token = 0;       // of the region; no two of a host are equal, but by a chance of 2^-64
  std::uint64_t offset = 0;      // of the part; without a token its address
  std::int32_t process = 0, descriptor = 0;
};

Result<std::byte*> make_region(std::size_t bytes);
void drop_region(std::byte* data);
// nullopt: not, or not wholly, in a region. Some 50 ns; 1 ns while there are none.
std::optional<RegionPart> region_part(const std::byte* data, std::size_t bytes);

// A process's descriptor as a descriptor of ours, -1: not to be had (another user, another PID namespace, no /proc).
int foreign_descriptor(int process, int descriptor);
// A peer's region. unsupported: it cannot be opened, or is another one.
Result<SharedMemory> open_region(const RegionPart& part);
// Whether its owner has dropped it.
bool is_dropped(const SharedMemory& region);

}  // namespace tutti::transport::shm
