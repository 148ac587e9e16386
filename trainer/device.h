#pragma once
// Device: memory of one kind, and the order of what is done to it. Calls take effect in their order, not always at once: download()
// waits. A pointer is to the device's memory unless it says `host`.
#include <cstddef>
#include <memory>
#include <string>
#include <tutti/device_stream.h>
#include <utility>

namespace tutti::trainer {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string describe() const = 0;
  // Zeroed. Throws Failure.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* at) = 0;
  // The same, where other ranks of the host may read in place what is exchanged.
  virtual void* allocate_shared(std::size_t bytes) { return allocate(bytes); }
  virtual void release_shared(void* at) { release(at); }
  virtual void upload(void* to, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* from, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* at, std::size_t bytes) = 0;

  // Exchanges with other ranks go on beside what is calculated: where there are streams, in one of their own, which follows what has been
  // called so far. None on the host.
  virtual DeviceStream exchange_stream() { return {}; }
  // The end of what that stream holds now; what is called after await() comes behind it.
  using Mark = std::shared_ptr<void>;
  virtual Mark mark() { return nullptr; }
  virtual void await(const Mark&) {}
  // For how long the calculating stood still in await(), since the last call. Waits for what has been called.
  virtual double take_waited() { return 0; }
};

enum class Memory : bool { own, shared };      // shared: for exchanges between ranks

template <class T>
class Array {
 public:
  Array() = default;
  Array(Device& device, std::size_t count, Memory memory = Memory::own) : device_(&device), count_(count), memory_(memory) {
    if (count == 0) return;
    const std::size_t bytes = count * sizeof(T);
    data_ = static_cast<T*>(memory == Memory::shared ? device.allocate_shared(bytes) : device.allocate(bytes));
  }
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Array() {
    if (!data_) return;
    if (memory_ == Memory::shared) device_->release_shared(data_);
    else device_->release(data_);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  bool empty() const { return count_ == 0; }

 private:
  void swap(Array& other) {
    std::swap(device_, other.device_), std::swap(data_, other.data_), std::swap(count_, other.count_), std::swap(memory_, other.memory_);
  }
  Device* device_ = nullptr;
  T* data_ = nullptr;
  std::size_t count_ = 0;
  Memory memory_ = Memory::own;
};

}  // namespace tutti::trainer
