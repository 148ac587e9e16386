#include "transport/tcp/outgoing.h"

#include <algorithm>

#include "core/check.h"
#include "core/crc32c.h"
#include "transport/tcp/connection.h"

namespace tutti::transport::tcp {
namespace {

MessageKey as_it_travels(MessageKey key) {
  key.message &= 0xFFFF;
  return key;
}

}  // namespace

// What goes into one write: the rest of a frame, the socket's own control, then whole frames.
struct Outgoing::Batch {
  std::array<iovec, 2 * kBatch + 3> parts;
  std::size_t part_count = 0;
  std::array<OutFrame*, kBatch> frames;
  std::size_t frame_count = 0;
  std::size_t bytes = 0;

  void add(const std::byte* data, std::size_t size) {
    if (size == 0) return;
    parts[part_count++] = {const_cast<std::byte*>(data), size};
    bytes += size;
  }
  void add(const OutFrame& frame, std::size_t from) {
    if (frame.contiguous()) return add(frame.wire.data() + from, frame.wire_bytes() - from);
    if (from < kHeaderBytes) add(frame.wire.data() + from, kHeaderBytes - from);
    const std::size_t skip = from > kHeaderBytes ? from - kHeaderBytes : 0;
    add(frame.payload + skip, frame.frame.segment.bytes - skip);
  }
};

Outgoing::Outgoing(Shared& shared, TcpConnection& connection, int peer)
    : shared_(shared), connection_(connection), peer_(peer), eager_limit_(shared.initial_credit()), window_(kWindow) {}

Sent Outgoing::send(const SegmentHeader& header, const std::byte* data, std::uint64_t token) {
  TUTTI_CHECK(header.bytes <= kMaxPayload && header.bytes <= header.message_bytes &&
              header.offset <= header.message_bytes - header.bytes);
  std::uint8_t flags = 0;
  if (ended_ || next_ - base_ >= kWindow - kControlReserve || !admit(header, flags)) return Sent::again;
  OutFrame* frame = shared_.frames.take();
  frame->frame.type = FrameType::data;
  frame->frame.flags = flags;
  frame->frame.segment = header;
  frame->token = token;
  if (header.message_bytes <= shared_.options.eager_bytes) {     // costs less than to wait for its acknowledgement
    shared_.frames.copy_payload(*frame, data, header.bytes);
  } else {
    frame->payload = data;
  }
  const bool last = header.offset + header.bytes == header.message_bytes;
  if (last && header.message_bytes > shared_.options.eager_bytes) frame->frame.flags |= kWantAck;
  enter(frame);
  const bool at_once = urgent_.empty() && data_.empty();
  const bool copied = frame->copied;
  data_.push_back(frame);
  if (at_once) pump();
  if (pending()) connection_.mark_busy();
  return copied ? Sent::done : Sent::pending;
}

// Whether the segment may go now: its message was granted, or it is eager and there is credit.
bool Outgoing::admit(const SegmentHeader& header, std::uint8_t& flags) {
  const bool last = header.offset + header.bytes == header.message_bytes;
  const bool may_be_eager = header.offset + header.bytes <= shared_.options.eager_bytes;
  const MessageKey key = as_it_travels(header.key);
  auto leave = leaves_.end();
  if (!leaves_.empty() || !may_be_eager) leave = leaves_.find(key);
  if (leave != leaves_.end() && leave->second.state == Leave::granted &&
      header.offset + header.bytes <= leave->second.until) {
    if (last) {
      leaves_.erase(leave);
      finished_[finished_count_++ % kFinished] = key;
    }
    return true;
  }
  if (!may_be_eager) return false;
  const std::uint32_t cost = credit_cost(header.bytes);
  if (static_cast<std::int32_t>(eager_limit_ - (eager_sent_ + cost)) >= 0) {
    eager_sent_ += cost;
    flags = kEager;
    if (leave != leaves_.end() && leave->second.state == Leave::requested) {
      flags |= kRequested;
      if (last) leave->second = {Leave::done};
    }
    return true;
  }
  // Only a message that needs no grant by its size asks for one; longer ones have theirs coming.
  if (leave == leaves_.end() && header.message_bytes <= shared_.options.eager_bytes && leaves_.size() < kMaxLeaves) {
    leaves_.emplace(key, Leave{Leave::requested});
    ++shared_.counters.requests_out;
    send_control(FrameType::request, {.key = key, .message_bytes = header.message_bytes, .call = header.call});
  }
  return false;
}

void Outgoing::send_control(FrameType type, const SegmentHeader& about) {
  if (ended_) return;
  OutFrame* frame = shared_.frames.take();
  frame->frame.type = type;
  frame->frame.flags = 0;
  frame->frame.segment = about;
  shared_.frames.copy_payload(*frame, nullptr, 0);
  frame->urgent = true;
  waiting_control_.push_back(frame);
  release_waiting_control();
  connection_.mark_busy();
}

void Outgoing::release_waiting_control() {
  while (!waiting_control_.empty() && next_ - base_ < kWindow) {
    OutFrame* frame = waiting_control_.pop();
    enter(frame);
    urgent_.push_back(frame);
  }
}

void Outgoing::enter(OutFrame* frame) {
  frame->sequence = next_++;
  frame->frame.sequence = static_cast<std::uint32_t>(frame->sequence);
  slot(frame->sequence) = frame;
}

void Outgoing::seal(OutFrame& frame) {
  if (!frame.crc_known && shared_.options.crc && frame.frame.segment.bytes) {
    frame.frame.payload_crc = crc32c(frame.payload, frame.frame.segment.bytes);
    frame.frame.flags |= kHasCrc;
    frame.crc_known = true;
  }
  connection_.in().stamp(frame.frame);
  encode(frame.frame, frame.wire.data());
}

bool Outgoing::pump() {
  const auto& sockets = connection_.sockets();
  const std::size_t count = sockets.size();
  if (count == 0 || ended_) return false;
  for (const auto& socket : sockets) socket->blocked = false;
  std::size_t moved = 0;
  // Socket after socket, so that each gets a share; those that take nothing drop out. Small frames stay with one
  // socket: the other side finds them where it looked last.
  for (std::size_t tries = 0; tries < count && moved < kPumpBytes * count;) {
    TcpSocket& socket = *sockets[turn_ % count];
    std::size_t wrote = 0;
    if (has_work(socket) && socket.usable() && !socket.blocked) wrote = write(socket);
    moved += wrote;
    tries = wrote ? 0 : tries + 1;
    if (wrote == 0 || socket.blocked || wrote >= kWriteBytes / 4) ++turn_;
  }
  return moved > 0;
}

std::size_t Outgoing::write(TcpSocket& socket) {
  Batch batch;
  gather(socket, batch);
  if (batch.bytes == 0) return 0;
  const IoResult result = socket.stream->write({batch.parts.data(), batch.part_count});
  if (!result.status.ok()) socket.write_failure = result.status;
  const std::size_t moved = result.status.ok() ? result.bytes : 0;
  socket.blocked = moved < batch.bytes;
  if (socket.blocked) connection_.mark_busy();
  if (moved) {
    ++shared_.counters.writes;
    shared_.counters.bytes_out += moved;
  }
  settle(socket, batch, moved);
  return moved;
}

void Outgoing::gather(TcpSocket& socket, Batch& batch) {
  if (socket.writing) batch.add(*socket.writing, socket.written);
  batch.add(socket.control.data() + socket.control_begin, socket.control_end - socket.control_begin);
  while (batch.frame_count < kBatch && batch.bytes < kWriteBytes) {
    OutFrame* frame = !urgent_.empty() ? urgent_.pop() : data_.pop();
    if (!frame) break;
    if (frame->acked) {            // an earlier sending had arrived after all
      retire(frame);
      continue;
    }
    seal(*frame);
    frame->socket = &socket;
    frame->writing = true;
    batch.frames[batch.frame_count++] = frame;
    batch.add(*frame, 0);
  }
}

// Distributes the bytes that were taken over the parts of the batch; what was not begun goes back to its list.
void Outgoing::settle(TcpSocket& socket, Batch& batch, std::size_t moved) {
  if (socket.writing) {
    const std::size_t rest = socket.writing->wire_bytes() - socket.written;
    const std::size_t part = std::min(rest, moved);
    socket.written += part;
    moved -= part;
    if (part < rest) TUTTI_CHECK(moved == 0);
    else finish_writing(std::exchange(socket.writing, nullptr));
  }
  const std::size_t control = std::min(moved, socket.control_end - socket.control_begin);
  socket.control_begin += control;
  moved -= control;
  std::size_t begun = 0;
  for (; begun < batch.frame_count && moved > 0; ++begun) {
    OutFrame* frame = batch.frames[begun];
    if (moved < frame->wire_bytes()) {
      socket.writing = frame;
      socket.written = moved;
      moved = 0;
    } else {
      moved -= frame->wire_bytes();
      finish_writing(frame);
    }
  }
  for (std::size_t i = batch.frame_count; i-- > begun;) {
    OutFrame* frame = batch.frames[i];
    frame->writing = false;
    frame->socket = nullptr;
    (frame->urgent ? urgent_ : data_).push_front(frame);
  }
}

void Outgoing::finish_writing(OutFrame* frame) {
  ++shared_.counters.frames_out;
  frame->writing = false;
  if (frame->acked) retire(frame);
}

bool Outgoing::acknowledged(std::uint32_t ack, const AckBits* bits) {
  const std::uint64_t all_below = widen(ack, base_);
  if (all_below > next_) return false;
  while (base_ < all_below) forget(base_++);
  if (bits && all_below == base_) {
    for (std::uint64_t i = 0; i < 64 * bits->size() && base_ + i < next_; ++i) {
      if ((*bits)[i / 64] >> (i % 64) & 1) forget(base_ + i);
    }
  }
  if (!waiting_control_.empty()) release_waiting_control();
  return true;
}

void Outgoing::forget(std::uint64_t sequence) {
  OutFrame* frame = std::exchange(slot(sequence), nullptr);
  if (!frame) return;
  frame->acked = true;
  if (!frame->queued && !frame->writing) retire(frame);
}

void Outgoing::retire(OutFrame* frame) {
  if (frame->copied || ended_) return shared_.frames.give_back(frame);
  sent_.push_back(frame);
  connection_.mark_busy();
}

void Outgoing::abandon(std::uint32_t communicator) {
  const auto adopt = [&](OutFrame& frame) {
    if (frame.copied || frame.frame.type != FrameType::data || frame.frame.segment.key.communicator != communicator)
      return;
    frame.adopted.assign(frame.payload, frame.payload + frame.frame.segment.bytes);
    frame.payload = frame.adopted.data();
    frame.copied = true;
  };
  for (std::uint64_t sequence = base_; sequence < next_; ++sequence)
    if (OutFrame* frame = slot(sequence)) adopt(*frame);
  urgent_.for_each(adopt);
  data_.for_each(adopt);
  for (const auto& socket : connection_.sockets())
    if (socket->writing) adopt(*socket->writing);
}

bool Outgoing::tell_sent() {
  bool any = false;
  while (OutFrame* frame = sent_.pop()) {
    const std::uint64_t token = frame->token;
    shared_.frames.give_back(frame);
    shared_.listener.on_sent(peer_, token);
    any = true;
  }
  return any;
}

void Outgoing::credited(std::uint32_t limit) {
  if (static_cast<std::int32_t>(limit - eager_limit_) > 0) eager_limit_ = limit;
}

// Grants of one message may overtake each other, and the slowest come when all of it is gone.
bool Outgoing::granted(const MessageKey& key, std::uint64_t until) {
  const auto end = finished_.begin() + std::ptrdiff_t(std::min(finished_count_, kFinished));
  if (std::find(finished_.begin(), end, key) != end) return true;
  auto [leave, fresh] = leaves_.try_emplace(key, Leave{Leave::granted, until});
  if (!fresh) {
    if (leave->second.state == Leave::done) leaves_.erase(leave);
    else leave->second = {Leave::granted, std::max(leave->second.until, until)};
  }
  return leaves_.size() <= kMaxLeaves;
}

const char* Outgoing::damaged(std::uint32_t low) {
  const std::uint64_t sequence = widen(low, base_);
  if (sequence < base_) return nullptr;                  // has arrived since
  if (sequence >= next_) return "nack of a frame that was never sent";
  OutFrame* frame = slot(sequence);
  if (!frame || frame->queued || frame->writing) return nullptr;
  if (++frame->nacks > kMaxNacks) {
    return "a payload keeps arriving damaged: a faulty link or memory, or a buffer that is changed while it is sent";
  }
  frame->crc_known = false;
  send_again(frame);
  connection_.mark_busy();
  return nullptr;
}

void Outgoing::lost(TcpSocket& socket) {
  if (OutFrame* frame = std::exchange(socket.writing, nullptr)) {
    frame->writing = false;
    if (frame->acked) retire(frame);
  }
  for (std::uint64_t sequence = base_; sequence < next_; ++sequence) {
    OutFrame* frame = slot(sequence);
    if (!frame || frame->socket != &socket) continue;
    frame->socket = nullptr;
    if (frame->queued) continue;
    TUTTI_CHECK(!frame->writing);
    send_again(frame);
  }
  connection_.mark_busy();
}

void Outgoing::send_again(OutFrame* frame) {
  frame->urgent = true;
  frame->frame.flags = static_cast<std::uint8_t>(frame->frame.flags + kSending);
  urgent_.push_back(frame);
  ++shared_.counters.resends;
  ++resends_;
}

void Outgoing::end() {
  if (ended_) return;
  ended_ = true;
  for (const auto& socket : connection_.sockets()) {
    if (OutFrame* frame = std::exchange(socket->writing, nullptr)) {
      frame->writing = false;
      if (frame->acked) retire(frame);
    }
  }
  // Frames that are acknowledged, or have no number yet, are in a list only; all others in the window, too.
  for (FrameList* list : {&urgent_, &data_, &waiting_control_, &sent_}) {
    while (OutFrame* frame = list->pop()) {
      if (frame->acked || list == &waiting_control_) retire(frame);
    }
  }
  for (OutFrame*& frame : window_) {
    if (frame) retire(std::exchange(frame, nullptr));
  }
}

}  // namespace tutti::transport::tcp
