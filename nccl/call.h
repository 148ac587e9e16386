#pragma once
// Call: one operation of NCCL's API as a value, checked, and started on the communicator that it is for.
#include <tutti/communicator.h>

#include "nccl/communicator.h"

namespace tutti::nccl {

struct Call {
  Collective what = Collective::all_reduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  double factor = 1;
  const void* scalar = nullptr;  // not null: where the factor is read when the operation starts
  ncclDataType_t scalar_type = ncclFloat;
  int peer = 0;  // or root
};

// ncclInvalidArgument with the argument, its value and what was wanted.
Outcome to_type(ncclDataType_t from, DataType& to);
// Of a built-in operation, or one of the communicator's own, which is for one type.
Outcome to_op(ncclRedOp_t from, ncclDataType_t type, ncclComm& comm, Call& to);
// The factor of a custom reduction. ncclInvalidArgument: an integer that no double holds.
Outcome read_scalar(const void* scalar, ncclDataType_t type, double& factor);
// What can be said before it starts.
Outcome check(const Call& call, ncclComm& comm);

Work start(Communicator& communicator, const Call& call);

}  // namespace tutti::nccl
