#pragma once
// How many cores' worth of time this process may use: affinity and cgroup quota, whichever is less. No topology.
#include <filesystem>

namespace tutti::tools {

// At least 1; a quota of 1.5 cores counts as 2.
int usable_cores();

// The cgroup's quota in cores' worth of time, such as 0.5; 0 when there is none. The arguments are for tests.
double cpu_quota(const std::filesystem::path& membership = "/proc/self/cgroup",
                 const std::filesystem::path& mount = "/sys/fs/cgroup");
// The same in whole cores, rounded up.
int quota_cores(const std::filesystem::path& membership = "/proc/self/cgroup",
                const std::filesystem::path& mount = "/sys/fs/cgroup");

}  // namespace tutti::tools
