#pragma once
// Facts about this process's host that ranks tell each other. Read once at start; nothing here changes anything.
#include <cstdint>
#include <string>

namespace tutti {

struct HostFacts {
  std::string name;            // for people
  std::uint64_t identity = 0;  // equal for two processes: same kernel and same network namespace, so that abstract Unix
                               // sockets and loopback addresses reach from one to the other
  int pid = 0;
  int cores = 1;  // that this process may use: affinity and cgroup quota, rounded up
};
HostFacts read_host_facts();

}  // namespace tutti
