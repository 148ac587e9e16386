#include "nccl/place.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "core/config.h"

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
    int devices = 0;
    present_ =
        init && count_devices && current_ && attribute_ && init(0) == 0 && count_devices(&devices) == 0 && devices > 0;
  }
  bool present() const { return present_; }
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
  int (*current_)(int*) = nullptr;
  int (*attribute_)(void*, int, unsigned long long) = nullptr;
};

const Driver& driver() {
  static const Driver& one = *new Driver;
  return one;
}

constexpr const char* kHostOnly = "this library serves host memory (TUTTI_NCCL_HOST=1 keeps a program to that)";

}  // namespace

Outcome check_settings() {
  const std::string host = environment("TUTTI_NCCL_HOST");
  if (host.empty() || host == "0" || host == "1" || host == "on" || host == "off") return {};
  return {ncclInvalidArgument, fmt::format("TUTTI_NCCL_HOST=\"{}\" is not a switch: wanted 0, 1, on or off", host)};
}

bool has_device() { return driver().present(); }
int current_device() { return driver().current(); }

Outcome check_place(std::initializer_list<const void*> buffers, cudaStream_t stream) {
  if (!has_device()) return {};
  for (const void* buffer : buffers)
    if (buffer && driver().on_device(buffer))
      return {ncclInvalidUsage, fmt::format("the buffer {} is on a GPU; {}", buffer, kHostOnly)};
  if (stream)
    return {ncclInvalidUsage, fmt::format("it is for the CUDA stream {}, and cannot be ordered with what is on it; {}",
                                          static_cast<void*>(stream), kHostOnly)};
  return {};
}

}  // namespace tutti::nccl
