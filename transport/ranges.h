#pragma once
// Ranges: memory of this process that stays mapped until it is said to go, so that a device may keep it registered: what users have by
// allocate(), or have registered. One table a process; any thread.
#include <tutti/status.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti::transport {

struct Range {
  std::uint64_t token = 0;             // no two of a process have the same, one after the other at one place neither
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool of_gpu = false;                 // it cannot be touched by the host
  const void* owner = nullptr;         // then: the GPU, and the allocation's number, as the GPU's driver counts
  std::uint64_t allocation = 0;
};

// `fresh`: it has just been mapped, so whatever the table says of it is over. invalid_argument: no bytes, or a part of it is in the table
// already.
Status add_range(const std::byte* data, std::size_t bytes, bool fresh = false, bool of_gpu = false);
// An allocation of a GPU, as it is now: whatever else the table says of its bytes is over. Whether it is new.
bool note_gpu_range(const std::byte* data, std::size_t bytes, const void* owner, std::uint64_t allocation);
// These bytes are the host's now: what was noted of them is over.
void forget_gpu_ranges(const std::byte* data, std::size_t bytes);
std::vector<Range> ranges_of_gpu(const void* owner);
// False: no range begins there.
bool drop_range(const std::byte* data);
// The one that all these bytes are in. Some 50 ns; 1 ns while there are none.
std::optional<Range> range_of(const std::byte* data, std::size_t bytes);
// Whether they are in one of a GPU.
bool of_gpu(const std::byte* data, std::size_t bytes);
bool lives(std::uint64_t token);
// How many have been dropped so far.
std::uint64_t dropped_ranges();

}  // namespace tutti::transport
