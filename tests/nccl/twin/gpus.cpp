// Two twins of GPUs where libnccl looks for CUDA's, and for programs the functions of gpu.h.
#include "nccl/gpus.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/cuda/twin_device.h"
#include "perf/gpu/gpu.h"

namespace tutti {
namespace {

constexpr int kGpus = 2;
thread_local int current = 0;

struct Gpus {
  std::shared_ptr<twin::TwinDevice> all[kGpus];
  std::mutex mutex;
  std::map<void*, twin::TwinDevice*> owners;  // of streams and memory
};
// Made when first asked for: in each process its own. Never destroyed: streams may still be at work while the process ends.
Gpus& gpus() {
  static Gpus& made = *[] {
    auto* fresh = new Gpus;
    for (int k = 0; k < kGpus; ++k) fresh->all[k] = std::make_shared<twin::TwinDevice>(std::uint64_t(k + 1));
    return fresh;
  }();
  return made;
}

twin::TwinDevice& owner(void* of) {
  Gpus& g = gpus();
  const std::lock_guard held(g.mutex);
  const auto at = g.owners.find(of);
  return at == g.owners.end() ? *g.all[current] : *at->second;
}
void own(void* what) {
  Gpus& g = gpus();
  const std::lock_guard held(g.mutex);
  g.owners[what] = g.all[current].get();
}
void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "a twin of a GPU: %s\n", status.to_string().c_str());
  std::exit(1);
}

}  // namespace

namespace nccl {

bool has_device() { return true; }
int device_count() { return kGpus; }
int current_device() { return current; }
std::shared_ptr<Device> open_gpu(int device) { return gpus().all[device < 0 ? current : device]; }
std::string why_no_gpu() { return "there are twins"; }
bool on_gpu(const void*) { return false; }

}  // namespace nccl
}  // namespace tutti

using namespace tutti;

extern "C" {

int gpu_count(void) { return kGpus; }
void gpu_use(int device) { current = device; }
void* gpu_allocate(size_t bytes) {
  auto memory = gpus().all[current]->allocate(bytes);
  must(memory.status());
  own(*memory);
  return *memory;
}
void gpu_release(void* memory) { owner(memory).release(static_cast<std::byte*>(memory)); }
gpu_stream gpu_make_stream(void) {
  void* const stream = gpus().all[current]->make_stream();
  own(stream);
  return static_cast<gpu_stream>(stream);
}
void gpu_copy(void* to, const void* from, size_t bytes, gpu_stream stream) {
  must(owner(stream).copy(stream, static_cast<std::byte*>(to), static_cast<const std::byte*>(from), {bytes}));
}
void gpu_synchronize(gpu_stream stream) { must(owner(stream).synchronize(stream)); }
void gpu_hold(gpu_stream stream, int held) { owner(stream).hold(stream, held != 0); }
void gpu_pretend_capture(gpu_stream stream, int capturing) { owner(stream).set_capturing(stream, capturing != 0); }
size_t gpu_allocations(void) {
  size_t sum = 0;
  for (const auto& gpu : gpus().all) sum += gpu->allocations();
  return sum;
}

}  // extern "C"
