#pragma once
// The Backend that is a GPU of NVIDIA's: memory and two streams of it, one for what is calculated and one for exchanges; products by
// cuBLASLt. Used from one thread.
#include <memory>

#include "trainer/backend.h"

namespace tutti::trainer {

// GPUs here. 0 also where there is no driver, or in a build without CUDA.
int gpu_count();
// Makes the GPU the calling thread's. Throws Failure: a build without CUDA, no such GPU.
std::unique_ptr<Backend<float>> open_gpu(int number);

}  // namespace tutti::trainer
