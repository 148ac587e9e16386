#pragma once
// One thread that looks at a word of the host's until it has reached a value (cyclically). See Device::await.
#include <kernels/cuda/thread.h>

namespace tutti::kernels::cuda {

struct AwaitArguments {
  const std::uint32_t* word = nullptr;
  std::uint32_t value = 0;
};

struct Await {
  using Arguments = AwaitArguments;
  template <class Thread>
  TUTTI_ANYWHERE void operator()(const Arguments& a, Thread& thread) const {
    if (thread.index() != 0) return;
    while (std::int32_t(thread.acquire(a.word) - a.value) < 0) thread.pause();
  }
};

int launch_await(void* stream, const AwaitArguments& arguments);

}  // namespace tutti::kernels::cuda
