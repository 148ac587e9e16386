#pragma once
// What TUTTI_MEMORY_LIMIT is spent on. The rest is for headers, lanes, and
// the slots that are set aside against deadlock.
#include "core/config.h"

namespace tutti::comm {

struct Budget {
  explicit Budget(ByteCount limit) : granted(limit / 8 * 3), eager(limit / 8), slots(limit / 4), scratch(limit / 8) {}
  ByteCount granted, eager;   // TCP: where such segments land
  ByteCount slots;     // shared memory
  ByteCount scratch;   // of idle executions
};

}  // namespace tutti::comm
