// Memory: allocation, registration, and the windows that are refused.
#include <fmt/format.h>
#include <tutti/memory.h>

#include <mutex>
#include <unordered_map>

#include "nccl/api.h"
#include "nccl/gpus.h"
#include "nccl/place.h"

namespace tutti::nccl {
namespace {

// What ncclMemAlloc gave; never destroyed: a program may free as it ends.
struct Allocated {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<Device>> blocks;  // null: the host's
};
Allocated& allocated() {
  static Allocated& all = *new Allocated;
  return all;
}

Outcome allocate_for(void** out, std::size_t bytes) {
  if (!out) return {ncclInvalidArgument, "ptr is NULL, wanted where to put the memory"};
  *out = nullptr;
  if (bytes == 0) return {};
  const auto gpu = open_gpu();
  if (!gpu && has_device())
    return {ncclInvalidUsage, fmt::format("GPU memory is wanted, and there is none: {} (TUTTI_NCCL_HOST=1 asks for host memory)", why_no_gpu())};
  void* memory = nullptr;
  const auto put = [&](const auto& given) {
    if (given) memory = *given;
    return given.status();
  };
  if (const Status status = gpu ? put(gpu->allocate(bytes)) : put(allocate(bytes)); !status.ok()) return outcome_of(status);
  const std::lock_guard held(allocated().mutex);
  allocated().blocks.emplace(memory, gpu);
  *out = memory;
  return {};
}

Outcome give_back(void* memory) {
  if (!memory) return {};
  std::shared_ptr<Device> gpu;
  {
    const std::lock_guard held(allocated().mutex);
    const auto at = allocated().blocks.find(memory);
    if (at == allocated().blocks.end())
      return {ncclInvalidArgument, fmt::format("{} was not given by ncclMemAlloc, or was freed", memory)};
    gpu = std::move(at->second);
    allocated().blocks.erase(at);
  }
  if (gpu)
    gpu->release(static_cast<std::byte*>(memory));
  else
    deallocate(memory);
  return {};
}

constexpr const char* kNoWindows =
    "windows of symmetric memory are not served: register the buffer with ncclCommRegister, or take it from "
    "ncclMemAlloc, whose "
    "memory the ranks of a host read in place";

}  // namespace
}  // namespace tutti::nccl

using tutti::nccl::answer;
using tutti::nccl::Outcome;
using tutti::nccl::with;
using Shared = const std::shared_ptr<ncclComm>&;

extern "C" {

ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  return answer("ncclMemAlloc", [&] { return tutti::nccl::allocate_for(ptr, size); });
}

ncclResult_t pncclMemFree(void* ptr) {
  return answer("ncclMemFree", [&] { return tutti::nccl::give_back(ptr); });
}

// Neither host memory nor a GPU's needs to be registered; the handle is there to be given back.
ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  return answer("ncclCommRegister", with(comm, [&](Shared of) -> Outcome {
                  if (!handle) return {ncclInvalidArgument, "handle is NULL, wanted where to put it"};
                  *handle = nullptr;
                  if (!buff || size == 0)
                    return {ncclInvalidArgument, fmt::format("buff is {} with {} bytes, wanted a buffer", buff, size)};
                  if (Outcome usable = of->ready(); !usable.ok()) return usable;
                  if (Outcome served = tutti::nccl::check_place(buff, *of); !served.ok()) return served;
                  *handle = of->add_registration();
                  return {};
                }));
}

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle) {
  return answer(
      "ncclCommDeregister", with(comm, [&](Shared of) -> Outcome {
        if (of->remove_registration(handle)) return {};
        return {
            ncclInvalidArgument,
            fmt::format("{} is no handle that ncclCommRegister gave for this communicator, or was given back", handle)};
      }));
}

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void*, size_t, ncclWindow_t* win, int) {
  return answer("ncclCommWindowRegister", with(comm, [&](Shared) -> Outcome {
                  if (win) *win = nullptr;
                  return {ncclInvalidUsage, tutti::nccl::kNoWindows};
                }));
}

ncclResult_t pncclCommWindowDeregister(ncclComm_t, ncclWindow_t win) {
  if (!win) return ncclSuccess;
  return answer("ncclCommWindowDeregister", []() -> Outcome { return {ncclInvalidUsage, tutti::nccl::kNoWindows}; });
}

TUTTI_NCCL_TWIN(ncclMemAlloc);
TUTTI_NCCL_TWIN(ncclMemFree);
TUTTI_NCCL_TWIN(ncclCommRegister);
TUTTI_NCCL_TWIN(ncclCommDeregister);
TUTTI_NCCL_TWIN(ncclCommWindowRegister);
TUTTI_NCCL_TWIN(ncclCommWindowDeregister);

}  // extern "C"
