#pragma once
// The Device that is a GPU of NVIDIA's. Opened once a process is asked for it first; -1 means the calling thread's current
// one, as everywhere in CUDA's runtime. In a build without CUDA there is none, and the Status says so.
#include <core/device.h>

namespace tutti::kernels::cuda {

// unsupported: built without CUDA; no driver, or no GPU: what the driver said.
Result<std::shared_ptr<Device>> open_device(int device = -1);

}  // namespace tutti::kernels::cuda
