#pragma once
// prefetch_to_write: asks for a cache line in order to write it. Where another core holds the line that takes it away from there at once;
// __builtin_prefetch(address, 1) does so only where the compiler may use `prefetchw`, and otherwise shares the line first, and the store
// then waits for a second message between the cores. Processors of 64 bits without the instruction take it for none.

namespace tutti {

[[gnu::always_inline]] inline void prefetch_to_write(const void* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace tutti
