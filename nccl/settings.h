#pragma once
// Settings of a communicator: what a program says in an ncclConfig_t, checked. What only steers NVIDIA's kernels is checked for its
// range and has no effect.
#include <string>

#include "nccl/outcome.h"

namespace tutti::nccl {

struct CommSettings {
  bool blocking = true;
  std::string name;       // commName
  std::string net;        // netName
};

// `given` null: `inherited`. Fields that nobody set, or that its version did not have, are `inherited`'s.
Outcome read_config(const ncclConfig_t* given, const CommSettings& inherited, CommSettings& out);

}  // namespace tutti::nccl
