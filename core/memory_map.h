#pragma once
// What this process may read and write, as its kernel says now (/proc/self/maps). Costs some 0.1 ms: for checks that a
// user has asked for.
#include <cstddef>
#include <string>

namespace tutti {

// Empty: all of it may be read (and, with `write`, written). Else what is wrong and where. Pages behind the end of a
// mapped file are not seen, nor is what another thread unmaps meanwhile. Empty, too, where the kernel does not say.
std::string memory_complaint(const void* begin, std::size_t bytes, bool write);

}  // namespace tutti
