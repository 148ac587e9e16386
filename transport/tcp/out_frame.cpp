#include "transport/tcp/out_frame.h"

#include <algorithm>

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
  if (frame->block) blocks_for(frame->frame.segment.bytes).free.push_back(frame->block);
  frame->block = nullptr;
  if (!frame->adopted.empty()) frame->adopted = {};
  free_.push_back(frame);
}

FramePool::Blocks& FramePool::blocks_for(std::size_t bytes) {
  const auto fits = std::find_if(blocks_.begin(), blocks_.end(), [&](const Blocks& blocks) { return bytes <= blocks.each; });
  TUTTI_CHECK(fits != blocks_.end());
  return *fits;
}

std::byte* FramePool::Blocks::take() {
  if (free.empty()) {
    all.push_back(std::make_unique_for_overwrite<std::byte[]>(each));
    free.reserve(all.size());
    free.push_back(all.back().get());
  }
  std::byte* const block = free.back();
  free.pop_back();
  return block;
}

void FramePool::copy_payload(OutFrame& frame, const std::byte* data, std::size_t bytes) {
  std::byte* into = frame.wire.data() + kHeaderBytes;
  if (bytes > OutFrame::kInline) {
    TUTTI_CHECK(bytes == frame.frame.segment.bytes);
    into = frame.block = blocks_for(bytes).take();
  }
  copy_bytes(into, data, bytes);
  frame.payload = into;
  frame.copied = true;
}

std::size_t FramePool::memory_bytes() const {
  std::size_t bytes = slabs_.size() * kSlab * sizeof(OutFrame);
  for (const Blocks& blocks : blocks_) bytes += blocks.all.size() * blocks.each;
  return bytes;
}

}  // namespace tutti::transport::tcp
