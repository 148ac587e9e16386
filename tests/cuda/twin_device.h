#pragma once
// The host's twin of a GPU: a Device whose streams are queues that a thread (or step()) works off in an order drawn
// from a seed, as late as it likes. Its memory cannot be touched by the host: who reads it without a copy dies of it.
// So a wait that is missing is a wrong result, and a pointer taken for the host's is a fault.
#include <core/device.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <vector>

namespace tutti::twin {

class TwinDevice : public Device {
 public:
  enum class Drive { by_thread, by_steps };
  explicit TwinDevice(std::uint64_t seed, Drive drive = Drive::by_thread);
  ~TwinDevice() override;

  // --- for tests ---
  StreamHandle make_stream();
  void set_capturing(StreamHandle stream, bool capturing);
  // All that was enqueued has run; false: not within a minute (by steps: nothing can go on).
  bool has_run(StreamHandle stream);
  bool has_run();  // all streams
  // Runs something of some stream. False: nothing can go on.
  bool step();
  // A stream stands still until let go.
  void hold(StreamHandle stream, bool held);
  std::vector<std::byte> read(const std::byte* memory, std::size_t bytes);  // around all streams
  void write(std::byte* memory, std::span<const std::byte> bytes);
  // Allocations of any kind so far: memory, pinned memory, events.
  std::size_t allocations() const { return allocations_; }
  // Releases it, and maps memory of the host in its place, which is the caller's.
  std::span<std::byte> give_to_host(std::byte* memory);
  std::size_t pinned_bytes();  // not released
  std::size_t open_streams();  // not closed, of those that tutti has opened
  std::uint64_t staged_bytes() const { return staged_bytes_; }  // so far copied between its memory and the host's, by streams
  // Plants: calls that do nothing.
  std::atomic<bool> drops_waits{false}, drops_awaits{false};
  // Faults of the ways between GPUs: none at all; or what this one writes into a peer's memory does not get there.
  std::atomic<bool> opens_nothing{false}, loses_writes{false};
  // Makes the kernel of a collective, by pointers that can be touched: a function that runs it for a while and says whether
  // it has ended. None by default. Kernels of several streams run at once.
  using Kernel = std::function<bool()>;
  std::function<Kernel(const SharedExchange&)> make_kernel;
  // So many more are enqueued, then one is refused; negative: none is.
  std::atomic<int> refuses_after{-1};
  // More bytes at once are refused, of its memory and of pinned memory.
  std::atomic<std::size_t> most_memory{SIZE_MAX}, most_pinned{SIZE_MAX};

  // --- Device ---
  std::string describe() const override { return "a twin of a GPU"; }
  Status synchronize(StreamHandle stream) override;
  Result<std::byte*> allocate(std::size_t bytes) override;
  void release(std::byte* memory) override;
  Result<std::byte*> allocate_pinned(std::size_t bytes) override;
  void release_pinned(std::byte* memory) override;
  Result<EventHandle> make_event() override;
  void release_event(EventHandle event) override;
  bool reaches(const void* memory) override;
  std::string identity() const override;
  Result<StreamHandle> open_stream() override;
  void close_stream(StreamHandle stream) override;
  Result<std::byte*> allocate_shared(std::size_t bytes) override;
  Result<MemoryHandle> share(std::byte* memory) override;
  Result<std::byte*> open_shared(const MemoryHandle& handle) override;
  void close_shared(std::byte* memory) override { release(memory); }
  Result<bool> capturing(StreamHandle stream) override;
  Status record(StreamHandle stream, EventHandle event) override;
  Status wait(StreamHandle stream, EventHandle event) override;
  Status copy(StreamHandle stream, std::byte* to, const std::byte* from, const Rows& rows) override;
  Status call(StreamHandle stream, void (*function)(void*), void* argument) override;
  Status await(StreamHandle stream, const std::uint32_t* word, std::uint32_t value) override;
  Status carry(StreamHandle stream, const Carriage& carriage) override;
  Status reduce(StreamHandle stream, const DeviceReduction& reduction) override;
  Status cast(StreamHandle stream, DataType to, std::byte* out, DataType from, const std::byte* in,
              std::size_t count) override;
  Status exchange(StreamHandle stream, const SharedExchange& exchange) override;
  Result<Exported> export_memory(const std::byte* memory, std::size_t bytes) override;
  Result<Allocation> allocation_of(const std::byte* memory) override;

  std::atomic<bool> exports_memory{true};       // as a dma-buf
  // Where a device would find these bytes; null: they are not this twin's.
  std::byte* reached_by_devices(const std::byte* memory, std::size_t bytes);

 private:
  struct Item {
    std::function<bool()> ready;  // null: at once
    std::function<void()> run;
    Kernel kernel = {};  // instead: again and again until it has ended
  };
  struct Queue {
    std::deque<Item> items;
    bool running = false, capturing = false, held = false;
    bool can_go() const {
      return !running && !held && !items.empty() && (!items.front().ready || items.front().ready());
    }
  };
  struct Event {
    std::uint64_t recorded = 0;
    std::atomic<std::uint64_t> reached{0};
  };
  struct Memory {
    std::size_t bytes;
    std::byte* inside;  // where it can be touched
    int file = -1;      // that it is; -1: none
    std::uint64_t number = 0;
  };
  std::byte* add(int file, std::size_t bytes, int kind);
  Status enqueue(StreamHandle stream, Item item);
  bool step(std::unique_lock<std::mutex>& held);
  Queue* choose();
  void work();
  std::byte* inside(const std::byte* memory);
  std::byte* inside_held(const std::byte* memory) const;  // under the mutex
  struct Lane;
  bool carry(Lane& lane);

  Drive drive_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::map<StreamHandle, Queue> queues_;
  std::set<StreamHandle> opened_;
  StreamHandle favourite_ = nullptr;
  std::map<const std::byte*, Memory> memory_;
  std::map<std::byte*, std::size_t> pinned_;
  std::set<Event*> events_;
  std::atomic<std::size_t> allocations_{0};
  std::atomic<std::uint64_t> staged_bytes_{0};
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::twin
