#pragma once
// Call: one operation of NCCL's API as a value, checked, and started on the communicator that it is for.
#include <tutti/communicator.h>

#include "comm/relay.h"

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
  const void* scalar = nullptr;  // not null: where the factor is read instead, when the stream comes there
  ncclDataType_t scalar_type = ncclFloat;
  int peer = 0;  // or root
  DeviceStream stream;  // given: it takes its turn there, on memory that the GPU reaches
  DeviceStream behind;  // given: on host memory that it does not reach, when this stream has come so far
};

// ncclInvalidArgument with the argument, its value and what was wanted.
Outcome to_type(ncclDataType_t from, DataType& to);
// Of a built-in operation, or one of the communicator's own, which is for one type.
Outcome to_op(ncclRedOp_t from, ncclDataType_t type, ncclComm& comm, Call& to);
// The form that tutti has for it.
comm::Form form_of(const Call& call);
// The factor of a custom reduction. ncclInvalidArgument: an integer that no double holds.
Outcome read_scalar(const void* scalar, ncclDataType_t type, double& factor);
// All that can be said before it starts.
Outcome check(const Call& call, ncclComm& comm);

Work start(ncclComm& comm, const Call& call);

}  // namespace tutti::nccl
