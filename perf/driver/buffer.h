#pragma once
// Buffer: host memory, tutti::allocate's, or a GPU's with an image of it on the host; with guard bytes around what an operation
// may touch. One owner, not copied.
#include <cstddef>
#include <memory>
#include <span>

#include <tutti/status.h>

#include "perf/driver/options.h"
#include "perf/gpu/gpu.h"

namespace tutti::perf {

// Bytes that this host could still give to programs; 0: unknown.
std::size_t available_memory();

struct Unmap {
  std::size_t bytes = 0;      // 0: tutti::deallocate
  void operator()(std::byte* memory) const;
};

struct ReleaseOnGpu {
  void operator()(std::byte* memory) const { gpu_release(memory); }
};

class Buffer {
 public:
  static constexpr std::size_t kGuard = 256;  // bytes on each side

  Buffer() = default;
  // The memory is touched. out_of_resources.
  static Result<Buffer> make(std::size_t capacity, std::size_t most_shift, Memory memory = Memory::host);

  // Where the data begin: `shift` bytes (at most most_shift) off a page's beginning.
  std::byte* data() const { return data_; }
  void set_shift(std::size_t shift);
  // Fills the first `used` bytes with `filler` and writes the guards before and behind them.
  void arm(std::size_t used, std::byte filler);
  // Where operations find what lies at `at` here; on a GPU once upload() has run. Both wait for the stream.
  std::byte* there(std::byte* at) const { return on_gpu_ ? on_gpu_.get() + (at - memory_.get()) : at; }
  void upload(gpu_stream stream);
  void download(gpu_stream stream);
  // Guard bytes that are not as arm() left them.
  std::size_t damaged() const;

 private:
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Unmap> memory_;
  std::unique_ptr<std::byte, ReleaseOnGpu> on_gpu_;
  std::byte* data_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace tutti::perf
