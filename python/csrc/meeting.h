#pragma once
// Meeting: how the ranks of a process group find each other: through the store that torch gives to a backend. And how ranks without
// a store come to one: through the names that launchers leave.
#include <tutti/communicator.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti_torch {

// The communicator of a group. Waits up to `limit` for all ranks to come, so they may be late; from there on TUTTI_INIT_TIMEOUT counts.
// `limit` is also the communicator's Options::timeout. Throws Failure: timeout, which names the ranks that have not come,
// and what Communicator::create gives; c10::Error where the store fails.
tutti::Communicator meet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int rank_count, std::chrono::milliseconds limit);

// The ranks as their launcher has named them, as Communicator::from_environment reads it.
class World {
 public:
  explicit World(std::chrono::milliseconds limit);
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.rank_count(); }
  bool on_one_host() const { return communicator_.local_rank_count() == size(); }
  // Rank 0's text, of up to kLongest bytes, on all ranks. Returns when all have it.
  std::string share(const std::string& text);

 private:
  static constexpr std::size_t kLongest = 300;
  tutti::Communicator communicator_;
};

}  // namespace tutti_torch
