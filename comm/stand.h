#pragma once
// Stand: where an operation stands: one step that waits for a peer. A value.
#include <cstdint>

namespace tutti::comm {

struct Stand {
  std::uint32_t step = 0, steps = 0;   // the step's number from 0, and how many there are
  int peer = 0;                        // rank of the communicator
  bool sends = false;                  // to the peer; else receives from it
  std::uint32_t chunk = 0;             // first of those that the step moves
  std::uint64_t done = 0, bytes = 0;
  // Of the operation.
  std::uint32_t sequence = 0;
  bool collective = true;
  std::uint64_t call = 0;              // packed
  bool operator==(const Stand&) const = default;
};

}  // namespace tutti::comm
