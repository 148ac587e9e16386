#pragma once
// NoMemory: a large piece of memory that could not be had, and what it was for. `grow` throws it, whoever starts the
// operation that wanted it catches it. For small pieces there is no such care: a process that cannot have those ends.
#include <cstddef>
#include <new>
#include <vector>

namespace tutti {

struct NoMemory : std::bad_alloc {
  NoMemory(std::size_t wanted, const char* purpose) : bytes(wanted), what_for(purpose) {}
  std::size_t bytes;
  const char* what_for;
};

// At least so many bytes from now on.
inline void grow(std::vector<std::byte>& memory, std::size_t bytes, const char* what_for) {
  if (memory.size() >= bytes) return;
  try {
    memory.resize(bytes);
  } catch (const std::bad_alloc&) {
    throw NoMemory(bytes, what_for);
  }
}

}  // namespace tutti
