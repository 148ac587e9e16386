#pragma once
// Gpus: what this process may use of GPUs. All that asks CUDA itself; everything else of nccl/ goes by core/device.h. Tests put
// twins of GPUs in its place.
#include <memory>
#include <string>

#include "core/device.h"

namespace tutti::nccl {

// There is a driver with a GPU, and TUTTI_NCCL_HOST does not forbid to use it. Asked once a process.
bool has_device();
int device_count();
// The device of the calling thread, -1 where there is none.
int current_device();
// That GPU, -1: the calling thread's. Null where there is none, or it cannot be used: why_no_gpu().
std::shared_ptr<Device> open_gpu(int device = -1);
std::string why_no_gpu();
// The buffer lies on a GPU, as far as the driver knows.
bool on_gpu(const void* buffer);

}  // namespace tutti::nccl
