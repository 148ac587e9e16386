#pragma once
// Calls: one collective call on one rank, made and judged: the right elements, guards around the buffers and gaps in
// them intact, out-of-place inputs unchanged.
#include <tutti/tutti.h>
#include <string>
#include <vector>

#include "tests/process/numbers.h"

namespace tutti::test {

enum class Kind {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v
};
inline constexpr int kKindCount = 11;
const char* name_of(Kind kind);
bool reduces(Kind kind);

struct Case {
  Kind kind = Kind::all_reduce;
  std::size_t count = 1;
  Filling filling;
  int root = 0;
  bool in_place = false;
  std::size_t shift = 0;  // bytes that the buffers lie off the alignment of 64
  bool allocated = false; // the buffers, by tutti::allocate; else ordinary memory
  bool gaps = false;      // v forms: blocks with gaps, in reverse order
  std::string text() const;
};

// Makes the call on this rank and waits. All ranks call it with the same case. "" when all is well, else what is not.
std::string tried(Communicator& comm, const Case& test);

}  // namespace tutti::test
