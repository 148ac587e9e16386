// Twins of GPUs where libnccl looks for CUDA's.
#include "nccl/gpus.h"

#include "tests/cuda/twin_gpus.h"

namespace tutti::nccl {

bool has_device() { return true; }
int device_count() { return twin::kGpus; }
int current_device() { return twin::current_gpu(); }
std::shared_ptr<Device> open_gpu(int device) { return twin::gpu(device); }
std::string why_no_gpu() { return "there are twins"; }
bool on_gpu(const void*) { return false; }

}  // namespace tutti::nccl
