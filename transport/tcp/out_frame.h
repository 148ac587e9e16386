#pragma once
// Frames on their way out, and the pool and lists that hold them. Storage only: when a frame is written, acknowledged
// or sent again is outgoing's business.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/tcp/frame.h"

namespace tutti::transport::tcp {

struct TcpSocket;

struct OutFrame {
  static constexpr std::size_t kInline = 192;      // payloads up to this lie behind the header: one iovec

  Frame frame;
  std::uint64_t sequence = 0;
  std::uint64_t token = 0;
  const std::byte* payload = nullptr;
  std::byte* block = nullptr;                      // holds a copied payload that does not fit inline
  TcpSocket* socket = nullptr;                     // that it was written to, or is being written to
  OutFrame* next = nullptr;
  std::vector<std::byte> adopted;                  // the payload, when its owner wanted it back
  bool copied = false;
  bool crc_known = false;
  bool urgent = false;                             // goes before ordinary data: control, and frames sent again
  bool queued = false;
  bool writing = false;
  bool acked = false;
  std::uint8_t nacks = 0;
  alignas(8) std::array<std::byte, kHeaderBytes + kInline> wire;

  bool contiguous() const { return payload == wire.data() + kHeaderBytes; }
  std::size_t wire_bytes() const { return kHeaderBytes + frame.segment.bytes; }
};

// First in, first out, through OutFrame::next.
class FrameList {
 public:
  bool empty() const { return first_ == nullptr; }
  void push_back(OutFrame* frame);
  void push_front(OutFrame* frame);
  OutFrame* pop();        // nullptr when empty
  template <class Use>
  void for_each(Use use) {
    for (OutFrame* frame = first_; frame; frame = frame->next) use(*frame);
  }

 private:
  OutFrame* first_ = nullptr;
  OutFrame* last_ = nullptr;
};

// Grows to what was needed at most at one time, and allocates nothing afterwards.
class FramePool {
 public:
  explicit FramePool(std::size_t most_bytes) : blocks_{{{.each = 4 << 10}, {.each = 16 << 10}, {.each = most_bytes}}} {}
  OutFrame* take();
  void give_back(OutFrame* frame);
  // Copies the payload, of at most most_bytes, into the frame.
  void copy_payload(OutFrame& frame, const std::byte* data, std::size_t bytes);
  std::size_t memory_bytes() const;

 private:
  static constexpr std::size_t kSlab = 64;
  // Blocks of one size, for payloads that do not fit inline.
  struct Blocks {
    std::size_t each;
    std::vector<std::unique_ptr<std::byte[]>> all = {};
    std::vector<std::byte*> free = {};
    std::byte* take();
  };
  Blocks& blocks_for(std::size_t bytes);
  std::array<Blocks, 3> blocks_;
  std::vector<std::unique_ptr<OutFrame[]>> slabs_;
  std::vector<OutFrame*> free_;
};

}  // namespace tutti::transport::tcp
