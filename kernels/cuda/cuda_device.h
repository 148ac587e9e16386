#pragma once
// The Device that is a GPU of NVIDIA's. Opened once a process is asked for it first; -1 means the calling thread's current
// one, as everywhere in CUDA's runtime. In a build without CUDA there is none, and the Status says so.
#include <core/device.h>

namespace tutti::kernels::cuda {

struct SharedArguments;  // kernels/cuda/shared_body.h

// unsupported: built without CUDA; no driver, or no GPU: what the driver said.
Result<std::shared_ptr<Device>> open_device(int device = -1);

// The collectives in a kernel, with as many blocks on all ranks; the next call's `meeting` is this one's and
// meetings().
Status all_reduce(StreamHandle stream, bool two_shot, DataType type, ReduceOp op, int blocks,
                  const SharedArguments& arguments);
std::uint32_t meetings(bool two_shot);

}  // namespace tutti::kernels::cuda
