#include "topology/place.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace tutti::topology {
namespace {

std::optional<int> whole_number(const std::string& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool within(const CpuSet& cpus, const CpuSet& group) {
  return std::all_of(cpus.ranges().begin(), cpus.ranges().end(), [&group](const auto& r) {
    for (int cpu = r.first; cpu <= r.second; ++cpu)
      if (!group.contains(cpu)) return false;
    return true;
  });
}

int node_of(const CpuSet& cpus, const std::filesystem::path& nodes) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(nodes, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    const auto number = whole_number(name.substr(4));
    const auto own = parse_cpu_list(first_line(entry.path() / "cpulist"));
    if (number && own && !own->empty() && within(cpus, *own)) return *number;
  }
  return -1;
}

int package_of(const CpuSet& cpus, const std::filesystem::path& all) {
  int package = -1;
  for (const auto& [first, last] : cpus.ranges()) {
    for (int cpu = first; cpu <= last; ++cpu) {
      const auto own = whole_number(first_line(all / ("cpu" + std::to_string(cpu)) / "topology/physical_package_id"));
      if (!own || (package >= 0 && *own != package)) return -1;
      package = *own;
    }
  }
  return package;
}

}  // namespace

Place place_of(const CpuSet& cpus, const std::string& root) {
  if (cpus.empty()) return {};
  const std::filesystem::path system = root + "/sys/devices/system";
  return {package_of(cpus, system / "cpu"), node_of(cpus, system / "node")};
}

CpuSet cpus_of_this_thread() {
  CpuSet cpus;
  cpu_set_t* const set = CPU_ALLOC(std::size_t(kMaxCpu));
  const std::size_t bytes = CPU_ALLOC_SIZE(std::size_t(kMaxCpu));
  if (set && sched_getaffinity(0, bytes, set) == 0)
    for (int cpu = 0; cpu < kMaxCpu; ++cpu)
      if (CPU_ISSET_S(std::size_t(cpu), bytes, set)) cpus.insert(cpu, cpu);
  if (set) CPU_FREE(set);
  return cpus;
}

Place place_of_this_thread() { return place_of(cpus_of_this_thread()); }

std::optional<Place> parse_place(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  Place place;
  for (const auto& [part, target] :
       {std::pair{text.substr(0, slash), &place.package}, std::pair{text.substr(slash + 1), &place.numa}}) {
    if (part.empty()) continue;
    const auto number = whole_number(part);
    if (!number) return std::nullopt;
    *target = *number;
  }
  return place;
}

}  // namespace tutti::topology
