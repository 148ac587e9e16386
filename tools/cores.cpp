// Affinity and quota, see cores.h.
#include "tools/cores.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <sched.h>
#include <string>

namespace tutti::tools {
namespace {

namespace fs = std::filesystem;

double cores_of(double quota, double period) { return quota > 0 && period > 0 ? quota / period : 0; }

double quota_in(const fs::path& folder) {
  double quota = 0, period = 0;
  if (std::ifstream both(folder / "cpu.max"); both >> quota >> period)
    return cores_of(quota, period);  // "max 100000" does not parse
  std::ifstream quota_file(folder / "cpu.cfs_quota_us"), period_file(folder / "cpu.cfs_period_us");
  return quota_file >> quota && period_file >> period ? cores_of(quota, period) : 0;
}

}  // namespace

double cpu_quota(const fs::path& membership, const fs::path& mount) {
  double least = 0;
  std::ifstream stream(membership);
  for (std::string line; std::getline(stream, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    // Each ancestor may have a quota of its own; in a container only the mount itself may be visible.
    const fs::path root = unified ? mount : mount / "cpu";
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      const double cores = quota_in(root / group);
      if (cores > 0) least = least == 0 ? cores : std::min(least, cores);
      if (group.empty()) break;
    }
  }
  return least;
}

int quota_cores(const fs::path& membership, const fs::path& mount) {
  return int(std::ceil(cpu_quota(membership, mount)));
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const int quota = quota_cores(); quota > 0) cores = std::min(cores, quota);
  return std::max(1, cores);
}

}  // namespace tutti::tools
