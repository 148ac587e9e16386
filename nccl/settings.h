#pragma once
// Settings of a communicator: what a program says in an ncclConfig_t, checked. What only steers NVIDIA's kernels is
// checked for its range and has no effect.
#include <string>

#include "nccl/outcome.h"

namespace tutti::nccl {

struct CommSettings {
  bool blocking = true;
  std::string name;  // commName
};

// Fields that nobody set, or that its version did not have, stay as they are; `given` may be null. NCCL_COMM_BLOCKING
// wins.
Outcome read_config(const ncclConfig_t* given, CommSettings& settings);

}  // namespace tutti::nccl
