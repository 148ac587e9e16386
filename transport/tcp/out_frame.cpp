#include "transport/tcp/out_frame.h"


#include "core/check.h"
#include "core/copy.h"

namespace tutti::transport::tcp {

void FrameList::push_back(OutFrame* frame) {
  frame->next = nullptr;
  frame->queued = true;
  (last_ ? last_->next : first_) = frame;
  last_ = frame;
}

void FrameList::push_front(OutFrame* frame) {
  frame->next = first_;
  frame->queued = true;
  first_ = frame;
  if (!last_) last_ = frame;
}

OutFrame* FrameList::pop() {
  OutFrame* frame = first_;
  if (!frame) return nullptr;
  first_ = frame->next;
  if (!first_) last_ = nullptr;
  frame->next = nullptr;
  frame->queued = false;
  return frame;
}

OutFrame* FramePool::take() {
  if (free_.empty()) {
    slabs_.push_back(std::make_unique<OutFrame[]>(kSlab));
    free_.reserve(slabs_.size() * kSlab);
    for (std::size_t i = kSlab; i-- > 0;) free_.push_back(&slabs_.back()[i]);
  }
  OutFrame* frame = free_.back();
  free_.pop_back();
  frame->payload = nullptr;
  frame->block = nullptr;
  frame->socket = nullptr;
  frame->next = nullptr;
  frame->copied = frame->crc_known = frame->urgent = frame->queued = frame->writing = frame->acked = false;
  frame->nacks = 0;
  return frame;
}

void FramePool::give_back(OutFrame* frame) {
  TUTTI_CHECK(!frame->queued && !frame->writing);
  if (frame->block) free_blocks_.push_back(frame->block);
  frame->block = nullptr;
  if (!frame->adopted.empty()) frame->adopted = {};
  free_.push_back(frame);
}

void FramePool::copy_payload(OutFrame& frame, const std::byte* data, std::size_t bytes) {
  std::byte* into = frame.wire.data() + kHeaderBytes;
  if (bytes > OutFrame::kInline) {
    TUTTI_CHECK(bytes <= block_bytes_);
    if (free_blocks_.empty()) {
      blocks_.push_back(std::make_unique<std::byte[]>(block_bytes_));
      free_blocks_.reserve(blocks_.size());
      free_blocks_.push_back(blocks_.back().get());
    }
    into = frame.block = free_blocks_.back();
    free_blocks_.pop_back();
  }
  copy_bytes(into, data, bytes);
  frame.payload = into;
  frame.copied = true;
}

std::size_t FramePool::memory_bytes() const {
  return slabs_.size() * kSlab * sizeof(OutFrame) + blocks_.size() * block_bytes_;
}

}  // namespace tutti::transport::tcp
