#pragma once
// Reads of another process's memory by the kernel (process_vm_readv, "CMA"): one copy, where by way of a slot there are two. Linux
// lets a process do so that may debug the other one: of the same user, and not held back by Yama's ptrace_scope or a container's filter.
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::transport::shm {

// What lies at `address` in that process. False: not all of it could be read, errno says why.
bool read_by_kernel(int process, std::uint64_t address, std::span<std::byte> into);
// That all processes of this user may read this one's memory, where Yama would let its ancestors alone.
void let_be_read();

}  // namespace tutti::transport::shm
