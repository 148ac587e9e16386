#pragma once
// What this process holds, by /proc: for tests that nothing grows.
#include <dirent.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace tutti::test {

inline std::size_t entries(const char* folder) {
  std::size_t count = 0;
  DIR* const directory = ::opendir(folder);
  while (directory && ::readdir(directory)) ++count;
  if (directory) ::closedir(directory);
  return count;
}
inline std::size_t descriptors() { return entries("/proc/self/fd"); }

// Private pages, and those of shared memory that are mapped here.
inline std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * std::size_t(sysconf(_SC_PAGESIZE));
}

}  // namespace tutti::test
