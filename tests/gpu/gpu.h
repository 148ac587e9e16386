#pragma once
// A GPU for tests: its Device, streams, and memory that is filled from and read back to the host. What fails here ends
// the program with what CUDA said: a lost context fails everything after it, too.
#include <core/device.h>

#include <functional>
#include <span>
#include <vector>

namespace tutti::gpu {

// Null where there is none; `why` then says why.
std::shared_ptr<Device> device(std::string* why = nullptr);

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  StreamHandle handle() const { return handle_; }
  void synchronize() const;

 private:
  StreamHandle handle_ = nullptr;
};

// Never freed, but used again: to free waits for all streams, also those of ranks that wait for this one.
class Memory {
 public:
  explicit Memory(std::size_t bytes);
  explicit Memory(std::span<const std::byte> from);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* at() const { return at_; }
  std::vector<std::byte> read(std::size_t bytes) const;  // waits for the whole device: not where other ranks are threads
  // As it is now: the streams that have written to it were waited for.
  std::vector<std::byte> read_as_is(std::size_t bytes) const;

 private:
  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
};

// Seconds that `body` takes on the stream, the median of several, after one to warm up.
double seconds_of(const Stream& stream, const std::function<void()>& body);
void* pinned(std::size_t bytes);  // zeroed, kept until the program ends

}  // namespace tutti::gpu
