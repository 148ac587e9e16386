#pragma once
// Place: where the memory of a call lies, the host's or a GPU's, and with that when it is carried out.
#include "nccl/call.h"

namespace tutti::nccl {

// invalid argument: a TUTTI_NCCL_HOST that cannot be understood.
Outcome check_settings();
// Sets call.stream, or call.behind. ncclInvalidArgument: one buffer that the GPU reaches and one that it does not;
// ncclInvalidUsage: GPU memory or a stream of a communicator that has no GPU, and why; a stream that is being captured.
Outcome place(Call& call, ncclComm& comm, cudaStream_t stream);
// Whether the communicator may use memory there.
Outcome check_place(const void* buffer, ncclComm& comm);

}  // namespace tutti::nccl
