#pragma once
// Device: the seam to a GPU: its memory, streams, events, copies, and the kernels of kernels/cuda. The real one is
// kernels/cuda/cuda_device; tests/cuda/twin_device runs the same rules on the host, with streams that finish late and
// in orders drawn from a seed, so that a missing wait is a wrong result. It knows no ranks and no wires.
//
// What is enqueued on a stream runs later, in the stream's order; nothing orders two streams but events. Errors of what
// runs later are the device's own matter (a CUDA context is lost then). Threads: any, but calls on one stream come one
// at a time.
#include <tutti/status.h>
#include <tutti/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/passage.h"

namespace tutti {

using StreamHandle = void*;  // a cudaStream_t; null: the default stream, which is a stream like others
using EventHandle = void*;

// `rows` pieces of `bytes`, which begin `to_pitch` and `from_pitch` bytes apart.
struct Rows {
  std::size_t bytes = 0, rows = 1, to_pitch = 0, from_pitch = 0;
};

struct DeviceReduction {
  static constexpr int kMostInputs = 8;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::byte* out = nullptr;  // may be an input
  const std::byte* inputs[kMostInputs] = {};
  int n = 0;
  std::size_t count = 0;
  std::uint32_t divide_by = 1;      // avg
  const double* factors = nullptr;  // premul_sum: n of them, read before the call returns
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string describe() const = 0;   // "CUDA device 0 (NAME)"

  // out_of_resources: how much, and what the device said.
  virtual Result<std::byte*> allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
  // Of the host, and within the device's reach. Zeroed.
  virtual Result<std::byte*> allocate_pinned(std::size_t bytes) = 0;
  // From anywhere, calls on a stream included; nothing that is enqueued may touch it. Given back when it suits the
  // device.
  virtual void release_pinned(std::byte* memory) = 0;
  virtual Result<EventHandle> make_event() = 0;
  virtual void release_event(EventHandle event) = 0;  // as release_pinned

  // Whether the device can reach it: its own memory, or pinned or managed memory. Any address.
  virtual bool reaches(const void* memory) = 0;
  // Waits until all that was enqueued has run.
  virtual Status synchronize(StreamHandle stream) = 0;
  // Whether what is enqueued goes into a graph instead of running.
  virtual Result<bool> capturing(StreamHandle stream) = 0;
  virtual Status record(StreamHandle stream, EventHandle event) = 0;
  virtual Status wait(StreamHandle stream, EventHandle event) = 0;  // for what was recorded last
  // Between memory of the device and of the host, either way; pageable memory of the host may make the caller wait.
  virtual Status copy(StreamHandle stream, std::byte* to, const std::byte* from, const Rows& rows) = 0;
  // Calls function(argument) from a thread of the device's. It must not call the device, except as said above, nor
  // block.
  virtual Status call(StreamHandle stream, void (*function)(void*), void* argument) = 0;
  // The stream goes on once *word, which lies in pinned memory, has reached `value` (cyclically: int32(*word - value)
  // >= 0).
  virtual Status await(StreamHandle stream, const std::uint32_t* word, std::uint32_t value) = 0;
  // All passages at once, until each is through; see core/passage.h. The host sees to the words meanwhile.
  virtual Status carry(StreamHandle stream, const Carriage& carriage) = 0;
  virtual Status reduce(StreamHandle stream, const DeviceReduction& reduction) = 0;
  virtual Status cast(StreamHandle stream, DataType to, std::byte* out, DataType from, const std::byte* in,
                      std::size_t count) = 0;

  // Of its memory, for other devices: a dma-buf, whose descriptor is the caller's, and where in it the memory begins.
  // unsupported: why there is none.
  struct Exported {
    int descriptor = -1;
    std::uint64_t offset = 0;
  };
  virtual Result<Exported> export_memory(const std::byte*, std::size_t) {
    return Status(Code::unsupported, "no dma-buf support in this driver");
  }
  virtual std::string bus_address() const { return ""; }  // on PCI, "0000:3b:00.0"; "": not known
  virtual int numa_node() const { return -1; }
};

}  // namespace tutti
