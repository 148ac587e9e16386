#pragma once
// SharedMemory: one anonymous memory file (memfd) mapped into this process. Has no name, so nothing is left behind
// after a kill, and no /dev/shm is needed. Sealed against resizing, so that no peer can make an access fault.
#include <cstddef>
#include <tutti/status.h>

namespace tutti::transport::shm {

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Zeroed. out_of_resources: the system call, the size and its errno.
  static Result<SharedMemory> create(std::size_t bytes);
  // Maps a peer's memory; takes over the descriptor. invalid_argument when it
  // is not at least `least` bytes or not sealed.
  static Result<SharedMemory> open(int descriptor, std::size_t least);

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }    // owned by this object
  // Brings the pages in with one system call, where the kernel can (Linux 5.14): a fault for each costs many times
  // more. They come by themselves otherwise.
  void populate(std::size_t offset, std::size_t bytes) const;
  // The mapping stays.
  void close_descriptor();

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace tutti::transport::shm
