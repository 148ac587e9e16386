#include "trainer/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace tutti::trainer {

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cores = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : 1;
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (file >> quota >> period && quota != "max" && period > 0) {
    cores = std::min(cores, int(std::ceil(std::strtod(quota.c_str(), nullptr) / period)));
  }
  return std::max(cores, 1);
}

}  // namespace tutti::trainer
