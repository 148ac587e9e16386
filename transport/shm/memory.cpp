#include "transport/shm/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/fork.h"

namespace tutti::transport::shm {

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, bytes_);
  close_descriptor();
}

void SharedMemory::close_descriptor() {
  if (descriptor_ >= 0) close_kept(descriptor_);
  descriptor_ = -1;
}

void SharedMemory::populate(std::size_t offset, std::size_t bytes) const {
#ifndef MADV_POPULATE_WRITE
  constexpr int MADV_POPULATE_WRITE = 23;
#endif
  const std::size_t page = std::size_t(sysconf(_SC_PAGESIZE)), begin = offset / page * page;
  (void)madvise(data_ + begin, std::min(bytes_, offset + bytes) - begin, MADV_POPULATE_WRITE);
}

Result<SharedMemory> SharedMemory::create(std::size_t bytes) {
  const auto failed = [bytes](const char* call) {
    return Status(Code::out_of_resources, fmt::format("shared memory: {} of {} bytes: {}", call, bytes, std::strerror(errno)));
  };
  SharedMemory memory;
  memory.descriptor_ = kept_from_children([] { return memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (memory.descriptor_ < 0) return failed("memfd_create");
  if (ftruncate(memory.descriptor_, off_t(bytes)) != 0) return failed("ftruncate");
  if (fcntl(memory.descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return failed("F_ADD_SEALS");
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.descriptor_, 0);
  if (at == MAP_FAILED) return failed("mmap");
  memory.data_ = static_cast<std::byte*>(at);
  memory.bytes_ = bytes;
  return memory;
}

Result<SharedMemory> SharedMemory::open(int descriptor, std::size_t least) {
  SharedMemory memory;
  keep_from_children(descriptor);
  memory.descriptor_ = descriptor;
  struct stat info {};
  if (fstat(descriptor, &info) != 0 || std::size_t(info.st_size) < least)
    return Status(Code::invalid_argument, fmt::format("shared memory of a peer: {} bytes, wanted {}", info.st_size, least));
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK))
    return Status(Code::invalid_argument, "shared memory of a peer: not a sealed memfd");
  void* at = mmap(nullptr, std::size_t(info.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED)
    return Status(Code::out_of_resources, fmt::format("shared memory of a peer: mmap of {} bytes: {}", info.st_size, std::strerror(errno)));
  memory.data_ = static_cast<std::byte*>(at);
  memory.bytes_ = std::size_t(info.st_size);
  return memory;
}

}  // namespace tutti::transport::shm
