#pragma once
// copy_bytes: memcpy for payloads. glibc's memcpy gives blocks of about 2 KB to 512 KB to `rep movsb`, which on AMD Zen
// 3 and 4 takes up to twenty times as long where the target lies up to a cache line behind the source modulo 4 KB
// (glibc's bug 30994). That is no rare case: malloc places every large array 16
// bytes behind a page's begin, where a slot begins.
#include <cstddef>

namespace tutti {

// The buffers do not overlap. No alignment needed; either may be nullptr where bytes = 0.
void copy_bytes(std::byte* out, const std::byte* in, std::size_t bytes);

}  // namespace tutti
