#pragma once
// Place: where the memory of a call lies: host memory, which is served, or a GPU's and its streams, which is where CUDA
// comes in. Everything of nccl/ that asks the CUDA driver anything is behind these functions.
#include <initializer_list>

#include "nccl/outcome.h"

namespace tutti::nccl {

// invalid argument: a TUTTI_NCCL_HOST that cannot be understood.
Outcome check_settings();
// There is a driver with a GPU, and TUTTI_NCCL_HOST does not forbid to use it. Asked once a process.
bool has_device();
// The device of the calling thread, -1 where there is none.
int current_device();
// Whether a call with these buffers on this stream can be served: host memory, complete at return. Null buffers are
// passed over.
Outcome check_place(std::initializer_list<const void*> buffers, cudaStream_t stream);

}  // namespace tutti::nccl
