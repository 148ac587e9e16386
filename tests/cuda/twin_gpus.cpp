#include "tests/cuda/twin_gpus.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "perf/gpu/gpu.h"
#include "tests/cuda/bodies.h"

namespace tutti::twin {
namespace {

thread_local int current = 0;

struct Gpus {
  std::shared_ptr<TwinDevice> all[kGpus];
  std::atomic<std::size_t> kernels{0};  // of collectives, so far
  std::mutex mutex;
  std::map<void*, TwinDevice*> owners;  // of streams and memory
};
// Made when first asked for: in each process its own. Never destroyed: streams may still be at work while the process ends.
Gpus& gpus() {
  static Gpus& made = *[] {
    auto* fresh = new Gpus;
    for (int k = 0; k < kGpus; ++k) {
      fresh->all[k] = std::make_shared<TwinDevice>(std::uint64_t(k + 1));
      fresh->all[k]->make_kernel = [fresh, k](const SharedExchange& exchange) {
        ++fresh->kernels;
        constexpr std::uint64_t kTurns = 500;  // of emulated threads at a time
        return emulation::emulated_kernel(exchange, std::uint64_t(k) * 1000 + exchange.number, kTurns);
      };
    }
    return fresh;
  }();
  return made;
}

TwinDevice& owner(void* of) {
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

int current_gpu() { return current; }
std::shared_ptr<TwinDevice> gpu(int index) { return gpus().all[index < 0 ? current : index]; }

}  // namespace tutti::twin

using namespace tutti;
using namespace tutti::twin;

struct CUevent_st {
  std::atomic<double> microseconds{0};  // when it was passed
};

extern "C" {

int gpu_count(void) { return kGpus; }
const char* gpu_lack(void) { return "there are twins of GPUs"; }
const char* gpu_name(void) { return "a twin of a GPU"; }
void gpu_use(int device) { current = device; }
void* gpu_allocate(size_t bytes) {
  auto memory = gpu()->allocate(bytes);
  must(memory.status());
  own(*memory);
  return *memory;
}
void gpu_release(void* memory) { owner(memory).release(static_cast<std::byte*>(memory)); }
gpu_stream gpu_make_stream(void) {
  void* const stream = gpu()->make_stream();
  own(stream);
  return static_cast<gpu_stream>(stream);
}
void gpu_copy(void* to, const void* from, size_t bytes, gpu_stream stream) {
  must(owner(stream).copy(stream, static_cast<std::byte*>(to), static_cast<const std::byte*>(from), {bytes}));
}
void gpu_synchronize(gpu_stream stream) { must(owner(stream).synchronize(stream)); }
gpu_mark gpu_make_mark(void) { return new CUevent_st; }
void gpu_set_mark(gpu_mark mark, gpu_stream stream) {
  const auto pass = [](void* of) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    static_cast<gpu_mark>(of)->microseconds = std::chrono::duration<double, std::micro>(now).count();
  };
  must(owner(stream).call(stream, pass, mark));
}
double gpu_between(gpu_mark from, gpu_mark to) { return to->microseconds - from->microseconds; }
void gpu_release_mark(gpu_mark mark) { delete mark; }

void gpu_hold(gpu_stream stream, int held) { owner(stream).hold(stream, held != 0); }
void gpu_pretend_capture(gpu_stream stream, int capturing) { owner(stream).set_capturing(stream, capturing != 0); }
size_t gpu_allocations(void) {
  size_t sum = 0;
  for (const auto& one : gpus().all) sum += one->allocations();
  return sum;
}
size_t gpu_kernels(void) { return gpus().kernels; }

}  // extern "C"
