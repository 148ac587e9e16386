#include "core/host.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace tutti {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t host_identity(const std::string& name) {
  std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  struct stat space {};
  std::ostringstream text;
  text << (boot.empty() ? name : boot);
  if (::stat("/proc/self/ns/net", &space) == 0) text << ' ' << space.st_dev << ':' << space.st_ino;
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (char c : text.str()) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3ull;
  return hash;
}

// Cores by the quota of one cgroup folder: version 2's "max 100000" or "150000 100000", or version 1's two files. 0:
// none.
double quota_of(const std::string& folder) {
  std::istringstream v2(first_line(folder + "/cpu.max"));
  double quota = 0, period = 0;
  if (v2 >> quota >> period && period > 0) return quota / period;
  std::istringstream q(first_line(folder + "/cpu.cfs_quota_us")), p(first_line(folder + "/cpu.cfs_period_us"));
  return q >> quota && p >> period && quota > 0 && period > 0 ? quota / period : 0;
}

// The tightest quota between this process's cgroup and the root.
double cgroup_cores() {
  double least = 0;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path" or "4:cpu,cpuacct:/path"
    auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    for (;;) {
      double cores = quota_of(path == "/" ? root : root + path);
      if (cores > 0 && (least == 0 || cores < least)) least = cores;
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return least;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  long cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : ::sysconf(_SC_NPROCESSORS_ONLN);
  double quota = cgroup_cores();
  if (quota > 0) cores = std::min(cores, std::lround(std::ceil(quota)));
  return int(std::max(cores, 1l));
}

}  // namespace

HostFacts read_host_facts() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0 || !*name) std::snprintf(name, sizeof name, "unnamed-host");
  HostFacts facts;
  facts.name = name;
  facts.identity = host_identity(facts.name);
  facts.pid = int(::getpid());
  facts.cores = usable_cores();
  return facts;
}

}  // namespace tutti
