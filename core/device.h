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

#include <array>
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

// Names memory of a device to other ranks of the host, in this process or another one. Bytes, to be sent by any means.
struct MemoryHandle {
  std::array<std::byte, 128> bytes{};
  bool operator==(const MemoryHandle&) const = default;
};

// What a kernel among ranks and its host tell each other, in pinned memory. Zero at first.
struct SharedWords {
  std::uint32_t abort = 0;    // by the host: kernels that wait for a peer end
  std::uint32_t begun = 0;    // by the kernel: number of the last call that has begun
  std::uint32_t outcome = 0;  // by the kernel: kAborted or kMismatch; then outputs are unspecified
  std::uint32_t peer = 0;     // kMismatch: who made which other call, instead of this rank's of that number
  std::uint32_t number = 0;
  std::uint32_t call[2] = {};
  static constexpr std::uint32_t kAborted = 1, kMismatch = 2;
};

// A collective in one kernel among ranks whose areas all can reach. Each rank puts rows of its input into its own area, all
// meet, and each takes one row out of the others' areas: the sum of everybody's, or a copy of some ranks', which become
// rows of its output. Every rank has an area: halves that calls use in turn, and behind them flags, zero before the first
// call. All ranks give the same type, count, blocks and numbers, whatever their part is.
struct SharedExchange {
  static constexpr int kMostRanks = 8, kMostBlocks = 32;
  static constexpr std::size_t kFlagWords = std::size_t(kMostBlocks) * kMostRanks;  // one a block and rank
  static constexpr std::size_t kFlagBytes = kFlagWords * 5 * sizeof(std::uint32_t);  // flags; two calls of two words each
  static std::size_t area_bytes(std::size_t half) { return 2 * half + kFlagBytes; }
  static constexpr std::uint32_t meetings(bool two_shot) { return two_shot ? 2 : 1; }
  // Of `count` elements in an area, where the next row begins at a multiple of 16 bytes.
  static constexpr std::size_t row_bytes(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

  bool reduces = true;        // else bytes are copied
  bool two_shot = false;      // an all_reduce of which each rank adds a share, and all meet once more
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // may be input, or a row of it, or the other way round
  std::size_t count = 0;        // of a row
  std::size_t input_pitch = 0, output_pitch = 0;  // bytes from a row to the next
  int rows = 1;                 // that this rank puts in; they fit into a half
  int row = 0;                  // the one that it takes
  int from = 0, until = 0;      // of these ranks; a reduction: of all, or of none
  int rank = 0, ranks = 1, blocks = 1;
  std::byte* areas[kMostRanks] = {};
  std::size_t half = 0;       // bytes, a multiple of 16
  std::uint32_t number = 1;   // of this call; odd and even ones have a half each
  std::uint32_t meeting = 1;  // the next call's is this one's and meetings()
  std::uint64_t call = 0;     // what this rank calls: the others must call the same
  SharedWords* words = nullptr;
  double factor = 1;          // premul_sum: of this rank
  const std::byte* factor_on_device = nullptr;  // instead, of `type`
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string describe() const = 0;   // "CUDA device 0 (NAME)"
  // The same text wherever the same piece of hardware is meant, and for no other.
  virtual std::string identity() const = 0;

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
  virtual Result<StreamHandle> open_stream() = 0;
  virtual void close_stream(StreamHandle stream) = 0;  // as release_pinned; what is enqueued on it still runs

  // Memory that other ranks of the host can reach: zeroed, kept until the process ends.
  virtual Result<std::byte*> allocate_shared(std::size_t bytes) = 0;
  // unsupported: why it cannot be named to others.
  virtual Result<MemoryHandle> share(std::byte* memory) = 0;
  // Where kernels and copies of this device reach what another one has shared. unsupported, and why: no way from GPU to
  // GPU, or a GPU that this process does not see.
  virtual Result<std::byte*> open_shared(const MemoryHandle& handle) = 0;
  virtual void close_shared(std::byte* memory) = 0;  // as release_pinned

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
  virtual Status exchange(StreamHandle stream, const SharedExchange& exchange) = 0;

  // Of its memory, for other devices: a dma-buf, whose descriptor is the caller's, and where in it the memory begins.
  // unsupported: why there is none.
  struct Exported {
    int descriptor = -1;
    std::uint64_t offset = 0;
  };
  virtual Result<Exported> export_memory(const std::byte*, std::size_t) {
    return Status(Code::unsupported, "no dma-buf support in this driver");
  }
  // The allocation that an address of its memory lies in; two that lie at one place, one after the other, differ by number. unsupported: it
  // is no memory of the device alone, so the host may touch it.
  struct Allocation {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t number = 0;
  };
  virtual Result<Allocation> allocation_of(const std::byte*) { return Status(Code::unsupported, "no memory of the device"); }
  // What other devices have written into its memory, as far as the host knows that they are done, is seen by all that streams run from here
  // on. From any thread. unsupported: why that cannot be had.
  virtual Status take_remote_writes() { return {}; }
  virtual std::string bus_address() const { return ""; }  // on PCI, "0000:3b:00.0"; "": not known
  virtual int numa_node() const { return -1; }
};

}  // namespace tutti
