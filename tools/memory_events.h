#pragma once
// How many processes the kernel has killed for want of memory in this process's control group: evidence for "SIGKILL,
// but from whom?". It knows both versions of cgroups and changes neither.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tutti::tools {

struct MemoryEvents {
  std::string group;                 // as in /proc/self/cgroup
  std::uint64_t kills = 0;           // since the group was made
};

// Empty where the kernel or the container does not show it. The arguments are for tests.
std::optional<MemoryEvents> memory_events(const std::filesystem::path& membership = "/proc/self/cgroup",
                                          const std::filesystem::path& mount = "/sys/fs/cgroup");

// "out of memory: ..." or why that can be excluded or not said, from the counts before and after.
std::string memory_verdict(const std::optional<MemoryEvents>& before, const std::optional<MemoryEvents>& after);

}  // namespace tutti::tools
