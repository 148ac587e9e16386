#include "perf/driver/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <tutti/memory.h>

namespace tutti::perf {
namespace {

constexpr std::byte kGuardByte{0x5c};
constexpr std::size_t kPage = 4096;

}  // namespace

std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::size_t kibibytes = 0;
  for (std::string name, rest; file >> name; std::getline(file, rest))
    if (name == "MemAvailable:" && file >> kibibytes) return kibibytes << 10;
  return 0;
}

void Unmap::operator()(std::byte* memory) const {
  if (bytes == 0) deallocate(memory);
  else munmap(memory, bytes);
}

namespace {

Result<void*> ordinary(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) return memory;
  return Status(Code::out_of_resources, fmt::format("no memory for a buffer of {} bytes: {}", bytes, std::strerror(errno)));
}

}  // namespace

Result<Buffer> Buffer::make(std::size_t capacity, std::size_t most_shift, Memory where) {
  const bool allocated = where == Memory::allocated;
  const std::size_t bytes = kPage + most_shift + capacity + kGuard;
  const auto memory = allocated ? allocate(bytes) : ordinary(bytes);
  if (!memory.ok()) return memory.status();
  Buffer buffer;
  buffer.bytes_ = bytes;
  if (where == Memory::cuda) buffer.on_gpu_.reset(static_cast<std::byte*>(gpu_allocate(bytes)));
  buffer.memory_ = {static_cast<std::byte*>(*memory), Unmap{allocated ? 0 : bytes}};
  buffer.set_shift(0);
  buffer.arm(capacity + most_shift, std::byte{1});
  return buffer;
}

void Buffer::set_shift(std::size_t shift) { data_ = memory_.get() + kPage + shift; }

void Buffer::arm(std::size_t used, std::byte filler) {
  used_ = used;
  std::memset(data_ - kGuard, int(kGuardByte), kGuard);
  std::memset(data_, int(filler), used);
  std::memset(data_ + used, int(kGuardByte), kGuard);
}

void Buffer::upload(gpu_stream stream) {
  if (!on_gpu_) return;
  gpu_copy(on_gpu_.get(), memory_.get(), bytes_, stream);
  gpu_synchronize(stream);
}

void Buffer::download(gpu_stream stream) {
  if (!on_gpu_) return;
  gpu_copy(memory_.get(), on_gpu_.get(), bytes_, stream);
  gpu_synchronize(stream);
}

std::size_t Buffer::damaged() const {
  const auto wrong = [](std::byte b) { return b != kGuardByte; };
  return std::size_t(std::count_if(data_ - kGuard, data_, wrong) +
                     std::count_if(data_ + used_, data_ + used_ + kGuard, wrong));
}

}  // namespace tutti::perf
