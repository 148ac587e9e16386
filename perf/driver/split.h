#pragma once
// NCCL_TESTS_SPLIT and NCCL_TESTS_SPLIT_MASK: several groups of ranks run the same test side by side.
#include <optional>

#include <tutti/status.h>

#include "perf/driver/origin.h"

namespace tutti::perf {

struct Split {
  enum class Rule { bit_and, bit_or, modulo, divide } rule = Rule::bit_and;
  int value = 0;
  int color_of(int rank) const;
};

// "AND 3", "&0x3", "OR1", "|1", "MOD2", "%2", "DIV 4", "/4"; the mask is short for AND. None when unset.
// invalid_argument.
Result<std::optional<Split>> split_from(const Environment& environment);

}  // namespace tutti::perf
