#pragma once
// How many GPUs of this host a process may use: the kernel driver's, or those
// that CUDA_VISIBLE_DEVICES leaves. It opens none.
#include <filesystem>
#include <string>

namespace tutti::tools {

// `visible`: CUDA_VISIBLE_DEVICES; "" : unset. CUDA's rule: what stands behind a number that is none counts no more.
int usable_gpus(const std::string& visible, const std::filesystem::path& driver = "/proc/driver/nvidia/gpus");

}  // namespace tutti::tools
