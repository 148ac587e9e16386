// Reads memory.events (cgroup v2) or memory.oom_control (v1), see memory_events.h.
#include "tools/memory_events.h"
#include <fmt/format.h>
#include <fstream>

namespace tutti::tools {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> count_in(const fs::path& file) {
  std::ifstream stream(file);
  std::string name;
  std::uint64_t value = 0;
  while (stream >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return std::nullopt;
}

// In a container the group's path may be the host's: then the mount itself is this container's group.
std::optional<MemoryEvents> events_of(const fs::path& root, const std::string& group, const char* file) {
  for (const fs::path& folder : {root / fs::path(group).relative_path(), root}) {
    if (const auto kills = count_in(folder / file)) return MemoryEvents{group, *kills};
  }
  return std::nullopt;
}

}  // namespace

std::optional<MemoryEvents> memory_events(const fs::path& membership, const fs::path& mount) {
  std::ifstream stream(membership);
  for (std::string line; std::getline(stream, line);) {      // "4:memory:/job" (v1), "0::/job" (v2)
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    std::optional<MemoryEvents> found;
    if (controllers == "memory") found = events_of(mount / "memory", group, "memory.oom_control");
    if (controllers.empty()) found = events_of(mount, group, "memory.events");
    if (found) return found;
  }
  return std::nullopt;
}

std::string memory_verdict(const std::optional<MemoryEvents>& before, const std::optional<MemoryEvents>& after) {
  if (!before || !after)
    return "whether for want of memory cannot be seen here (no count in /sys/fs/cgroup): ask dmesg";
  if (after->kills > before->kills) {
    return fmt::format("out of memory: the kernel has killed {} process(es) of cgroup {} meanwhile",
                       after->kills - before->kills, after->group);
  }
  return fmt::format("not for want of memory of cgroup {} (no kill counted): another process sent the signal",
                     after->group);
}

}  // namespace tutti::tools
