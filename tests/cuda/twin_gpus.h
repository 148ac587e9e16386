#pragma once
// Two twins of GPUs with emulated kernels, as a process has GPUs; for programs behind the functions of perf/gpu/gpu.h. Libraries
// find them in place of CUDA's: tests/nccl/twin, tests/perf/twin.
#include <tests/cuda/twin_device.h>

namespace tutti::twin {

inline constexpr int kGpus = 2;
int current_gpu();                                  // of this thread
std::shared_ptr<TwinDevice> gpu(int index = -1);    // -1: the current one

}  // namespace tutti::twin
