#pragma once
// Arguments: checks a user's call and brings it into the one form that everything below works on. Nothing is sent before.
#include <tutti/communicator.h>

#include "comm/call.h"
#include "comm/execution.h"

namespace tutti::comm {

struct Prepared {
  Call call;
  Binding binding;              // without header
  bool in_place = false;
  bool uniform = true;          // all blocks have the same size
  bool contiguous = true;       // blocks lie one behind another
  double factor = 1.0;          // premul_sum
  bool barrier = false;         // the all_reduce that serves a barrier
  std::uint64_t bytes = 0;      // the whole vector: what nccl-tests calls size
};

// As the user knows it.
inline Call named(const Prepared& prepared) {
  Call call = prepared.call;
  if (prepared.barrier) call.collective = Collective::barrier;
  return call;
}

// An all_reduce of one byte: nobody leaves before all have come.
struct Barrier {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 1;
  DataType type = DataType::u8;
  DeviceStream stream;
};

struct Rank {
  int rank = 0, count = 1;
  bool check = false;           // whether all of each buffer may be read, or written (TUTTI_CHECK)
};

// Each: invalid_argument naming the argument, its value and what was wanted.
Result<Prepared> prepare(const AllReduce& call, Rank self);
Result<Prepared> prepare(const ReduceScatter& call, Rank self);
Result<Prepared> prepare(const AllGather& call, Rank self);
Result<Prepared> prepare(const Broadcast& call, Rank self);
Result<Prepared> prepare(const Reduce& call, Rank self);
Result<Prepared> prepare(const Gather& call, Rank self);
Result<Prepared> prepare(const Scatter& call, Rank self);
Result<Prepared> prepare(const AllToAll& call, Rank self);
Result<Prepared> prepare(const AllGatherV& call, Rank self);
Result<Prepared> prepare(const ReduceScatterV& call, Rank self);
Result<Prepared> prepare(const AllToAllV& call, Rank self);
Result<Prepared> prepare(const Barrier& call, Rank self);
Result<Prepared> prepare(const Send& call, Rank self);
Result<Prepared> prepare(const Recv& call, Rank self);

}  // namespace tutti::comm
