#include "nccl/gpus.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "core/config.h"
#include "kernels/cuda/cuda_device.h"

namespace tutti::nccl {
namespace {

// Of the CUDA driver's API, in our own words; the driver is looked for at run time.
constexpr int kMemoryTypeAttribute = 2, kDeviceMemory = 2;

class Driver {
 public:
  Driver() {
    if (const std::string host = environment("TUTTI_NCCL_HOST"); host == "1" || host == "on") return;
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const auto init = function<int(unsigned)>(library, "cuInit");
    const auto count_devices = function<int(int*)>(library, "cuDeviceGetCount");
    current_ = function<int(int*)>(library, "cuCtxGetDevice");
    attribute_ = function<int(void*, int, unsigned long long)>(library, "cuPointerGetAttribute");
    present_ = init && count_devices && current_ && attribute_ && init(0) == 0 && count_devices(&devices_) == 0 &&
               devices_ > 0;
  }
  bool present() const { return present_; }
  int devices() const { return devices_; }
  int current() const {
    int device = -1;
    return present_ && current_(&device) == 0 ? device : -1;
  }
  // Memory that the driver has never heard of is the host's.
  bool on_device(const void* pointer) const {
    unsigned type = 0;
    return attribute_(&type, kMemoryTypeAttribute, reinterpret_cast<std::uintptr_t>(pointer)) == 0 &&
           type == kDeviceMemory;
  }

 private:
  template <class Type>
  static Type* function(void* library, const char* name) {
    return reinterpret_cast<Type*>(dlsym(library, name));
  }

  bool present_ = false;
  int devices_ = 0;
  int (*current_)(int*) = nullptr;
  int (*attribute_)(void*, int, unsigned long long) = nullptr;
};

const Driver& driver() {
  static const Driver& one = *new Driver;
  return one;
}

}  // namespace

bool has_device() { return driver().present(); }
int current_device() { return driver().current(); }
int device_count() { return driver().devices(); }

std::shared_ptr<Device> open_gpu(int device) {
  if (!has_device()) return nullptr;
  const auto opened = kernels::cuda::open_device(device);
  return opened.ok() ? *opened : nullptr;
}

std::string why_no_gpu() {
  if (!has_device()) return "there is no driver with a GPU, or TUTTI_NCCL_HOST=1 forbids to look";
  const auto opened = kernels::cuda::open_device();
  return opened.ok() ? "there was none when the communicator was made" : opened.status().text();
}

bool on_gpu(const void* buffer) { return has_device() && driver().on_device(buffer); }

}  // namespace tutti::nccl
