#pragma once
// Meeting: how the ranks of a process group find each other: through the store that torch gives to a backend.
#include <tutti/communicator.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti_torch {

// The communicator of a group. Waits up to `limit` for all ranks to come, so they may be late; from there on TUTTI_INIT_TIMEOUT counts.
// `limit` is also the communicator's Options::timeout. Throws Failure: timeout, which names the ranks that have not come,
// and what Communicator::create gives; c10::Error where the store fails.
tutti::Communicator meet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int rank_count, std::chrono::milliseconds limit);

}  // namespace tutti_torch
