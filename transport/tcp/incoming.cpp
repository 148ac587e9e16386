#include "transport/tcp/incoming.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "core/check.h"
#include "core/copy.h"
#include "core/crc32c.h"
#include "transport/tcp/connection.h"

namespace tutti::transport::tcp {
namespace {

constexpr std::size_t kLandedHere = 4 << 10;   // bytes of a segment that are sooner copied than a place for them is found

}  // namespace

ArrivalWindow::Place ArrivalWindow::look(std::uint64_t sequence) const {
  // Below the base also when the number wrapped below zero: older than the first.
  if (sequence < base_ || sequence - base_ >= (std::uint64_t{1} << 31)) return Place::duplicate;
  if (sequence - base_ >= kWindow) return Place::beyond;
  return bit(sequence) ? Place::duplicate : Place::fresh;
}

void ArrivalWindow::mark(std::uint64_t sequence) {
  TUTTI_CHECK(look(sequence) == Place::fresh);
  bits_[sequence % kWindow / 64] |= std::uint64_t{1} << (sequence % 64);
  highest_ = std::max(highest_, sequence + 1);
  while (bit(base_)) {
    bits_[base_ % kWindow / 64] &= ~(std::uint64_t{1} << (base_ % 64));
    ++base_;
  }
}

AckBits ArrivalWindow::bits() const {
  AckBits out{};
  for (std::uint64_t i = 0; i < 64 * out.size() && base_ + i < highest_; ++i) {
    if (bit(base_ + i)) out[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  return out;
}

Incoming::Incoming(Shared& shared, TcpConnection& connection, int peer)
    : shared_(shared),
      connection_(connection),
      peer_(peer),
      eager_told_(shared.initial_credit()),
      grants_(shared, connection.out()) {}

void Incoming::nonsense(TcpSocket& socket, const char* what) {
  socket.failure = Status(Code::network, fmt::format("{}: {}", socket.addresses, what));
  connection_.mark_busy();
}

std::size_t Incoming::read(TcpSocket& socket) {
  if (!socket.failure.ok()) return 0;
  const Arrival& arrival = socket.arrival;
  const std::size_t rest = arrival.active ? arrival.frame.segment.bytes - arrival.got : 0;
  return rest >= kDirect && !arrival.unwanted ? read_in_place(socket) : read_through_scratch(socket);
}

bool Incoming::took(TcpSocket& socket, const IoResult& result) {
  if (result.status.ok() && result.bytes > 0) {
    ++shared_.counters.reads;
    shared_.counters.bytes_in += result.bytes;
    freshest_ = &socket;
    return true;
  }
  ++shared_.counters.empty_reads;
  if (!result.status.ok()) {
    socket.failure = result.status;
  } else if (result.closed) {
    const bool middle = socket.arrival.active || socket.stashed;
    socket.failure = Status(Code::peer_lost, fmt::format("{}: closed by the peer{}", socket.addresses,
                                                         middle ? " in the middle of a frame" : ""));
  } else if (!socket.write_failure.ok()) {
    socket.failure = socket.write_failure;           // it takes nothing, and has nothing left to give
  }
  if (!socket.failure.ok()) connection_.mark_busy();
  return false;
}

std::size_t Incoming::read_in_place(TcpSocket& socket) {
  Arrival& arrival = socket.arrival;
  std::byte* into = arrival.into + arrival.got;
  const std::size_t rest = arrival.frame.segment.bytes - arrival.got;
  // With the next header, if it is there.
  const IoResult result = socket.stream->read_past({into, rest}, {shared_.scratch.data(), kBulkHeaderRead});
  if (!took(socket, result)) return 0;
  const std::size_t own = std::min(rest, result.bytes);
  if (arrival.frame.flags & kHasCrc) arrival.crc = crc32c(into, own, arrival.crc);
  arrival.got += own;
  if (own < rest) {
    if (shared_.clock) time(arrival, own);
    return own;
  }
  complete(socket);
  consume(socket, shared_.scratch.data(), result.bytes - rest);
  return result.bytes;
}

// The socket is empty, and the segment is not whole: what comes next is the
// wire's doing. Sockets of one connection share it.
void Incoming::time(Arrival& arrival, std::size_t bytes) {
  const TimePoint now = shared_.clock->now();
  if (const TimePoint since = std::exchange(arrival.emptied, now); since != TimePoint{}) {
    service_.bytes += bytes;
    service_.nanoseconds += std::uint64_t((now - std::max(since, served_until_)).count());
    served_until_ = now;
  }
}

std::size_t Incoming::read_through_scratch(TcpSocket& socket) {
  std::byte* scratch = shared_.scratch.data();
  const std::size_t stashed = socket.stashed;
  std::memcpy(scratch, socket.stash.data(), stashed);
  const std::size_t room = socket.bulk && !socket.arrival.unwanted ? kBulkHeaderRead : shared_.scratch.size() - stashed;
  const IoResult result = socket.stream->read({scratch + stashed, room});
  if (!took(socket, result)) return 0;
  socket.stashed = 0;
  consume(socket, scratch, stashed + result.bytes);
  return result.bytes;
}

void Incoming::consume(TcpSocket& socket, const std::byte* data, std::size_t bytes) {
  while (bytes > 0 && socket.failure.ok() && !connection_.over()) {
    Arrival& arrival = socket.arrival;
    std::size_t used = 0;
    if (!arrival.active) {
      if (bytes < kHeaderBytes) {
        std::memcpy(socket.stash.data(), data, bytes);
        socket.stashed = bytes;
        return;
      }
      Frame frame;
      if (const char* wrong = decode(data, frame)) return nonsense(socket, wrong);
      used = kHeaderBytes;
      begin(socket, frame);
    } else {
      used = std::min<std::size_t>(bytes, arrival.frame.segment.bytes - arrival.got);
      if (!arrival.unwanted) {
        copy_bytes(arrival.into + arrival.got, data, used);
        if (arrival.frame.flags & kHasCrc) arrival.crc = crc32c(data, used, arrival.crc);
      }
      arrival.got += used;
      if (arrival.got == arrival.frame.segment.bytes) complete(socket);
    }
    data += used;
    bytes -= used;
  }
}

void Incoming::begin(TcpSocket& socket, const Frame& frame) {
  ++shared_.counters.frames_in;
  Outgoing& out = connection_.out();
  if (frame.type == FrameType::ack) {
    const AckBits bits{frame.segment.offset, frame.segment.message_bytes, frame.segment.call};
    if (!out.acknowledged(frame.ack, &bits)) return nonsense(socket, "acknowledges what was never sent");
    if (frame.flags & kWantAck) owe();
  } else if (frame.ack != last_ack_seen_) {
    if (!out.acknowledged(frame.ack, nullptr)) return nonsense(socket, "acknowledges what was never sent");
  }
  last_ack_seen_ = frame.ack;
  out.credited(frame.credit);
  if (!frame.sequenced()) return control(socket, frame);

  const std::uint64_t sequence = widen(frame.sequence, window_.base());
  const ArrivalWindow::Place where = window_.look(sequence);
  if (where == ArrivalWindow::Place::beyond) return nonsense(socket, "frame far beyond the acknowledged ones");
  if (where == ArrivalWindow::Place::duplicate) {
    ++shared_.counters.duplicates;
    owe();                                          // the peer does not know that it has arrived
    return drop(socket, frame);
  }
  if (frame.type == FrameType::data) return begin_data(socket, frame, sequence);
  arrived(sequence, frame);
  control(socket, frame);
}

// Its payload, if there is any, is read and forgotten.
void Incoming::drop(TcpSocket& socket, const Frame& frame) {
  if (frame.segment.bytes == 0) return;
  socket.arrival = {};
  socket.arrival.frame = frame;
  socket.arrival.active = socket.arrival.unwanted = true;
}

// Acknowledged now, soon, or with what goes the other way.
void Incoming::arrived(std::uint64_t sequence, const Frame& frame) {
  window_.mark(sequence);
  bytes_since_ack_ += frame.segment.bytes;
  if (++frames_since_ack_ >= kAckFrames || bytes_since_ack_ >= shared_.options.ack_bytes) owe();
  // Wanted at once for what is here, and once more when what went another way has caught up.
  if (frame.flags & kWantAck) {
    ack_wanted_ = std::max(ack_wanted_, sequence + 1);
    owe();
  }
  if (ack_wanted_ && window_.base() >= ack_wanted_) {
    ack_wanted_ = 0;
    owe();
  }
}

void Incoming::begin_data(TcpSocket& socket, const Frame& frame, std::uint64_t sequence) {
  // The peer sends again only what it gave up on another socket: then nothing more comes there. What had come there may be read later.
  for (const auto& other : connection_.sockets()) {
    if (other.get() == &socket || !other->arrival.active || other->arrival.sequence != sequence || other->arrival.unwanted) continue;
    if (is_later_sending(other->arrival.frame.flags, frame.flags)) return drop(socket, frame);
    nonsense(*other, "given up by the peer in the middle of a frame");
  }
  if (frame.flags & kEager) {
    const SegmentHeader& segment = frame.segment;
    if (segment.offset + segment.bytes > shared_.options.eager_bytes) return nonsense(socket, "eager beyond the limit");
    const std::uint32_t after = eager_received_ + credit_cost(segment.bytes);
    if (static_cast<std::int32_t>(eager_told_ - after) < 0) return nonsense(socket, "more eager bytes than credit");
  } else if (frame.segment.message_bytes <= shared_.options.eager_bytes) {
    if (answered_bytes_ < frame.segment.bytes) return nonsense(socket, "a short message without credit or grant");
    answered_bytes_ -= frame.segment.bytes;
  } else if (!grants_.covers(frame.segment.key, frame.segment.offset + frame.segment.bytes)) {
    return nonsense(socket, "a segment beyond what was granted");
  }
  socket.arrival = {};
  socket.arrival.frame = frame;
  socket.arrival.sequence = sequence;
  socket.arrival.active = true;
  place(socket);
  if (!connection_.over() && frame.segment.bytes == 0) complete(socket);
}

// Small segments are landed here, without asking; larger ones where the listener wants them, else here.
void Incoming::place(TcpSocket& socket) {
  Arrival& arrival = socket.arrival;
  const std::size_t bytes = arrival.frame.segment.bytes;
  const bool eager = arrival.frame.flags & kEager;
  socket.bulk = bytes >= 2 * kDirect;
  if (bytes > kLandedHere) {
    arrival.into = shared_.listener.landing(peer_, arrival.frame.segment);
    if (arrival.into || connection_.over()) return;
  }
  arrival.landing = shared_.landings.take(bytes, eager);
  arrival.into = arrival.landing->data;
}

void Incoming::complete(TcpSocket& socket) {
  Arrival& arrival = socket.arrival;
  if (arrival.unwanted) {
    arrival.active = false;
    return;
  }
  if (!intact(socket)) {
    if (arrival.landing) shared_.landings.give_back(arrival.landing);
    arrival = {};
    return;
  }
  const Frame& frame = arrival.frame;
  arrived(arrival.sequence, frame);
  if (frame.flags & kEager) eager_received_ += credit_cost(frame.segment.bytes);
  if (frame.flags & kRequested) {
    answer(frame.segment.key);
    recent_[recent_count_++ % kRecent] = frame.segment.key;     // should the request come behind its message
  }
  deliver(socket);
}

bool Incoming::intact(TcpSocket& socket) {
  const Frame& frame = socket.arrival.frame;
  if (!(frame.flags & kHasCrc) || socket.arrival.crc == frame.payload_crc) {
    socket.damaged = 0;
    return true;
  }
  ++shared_.counters.damaged;
  Frame nack;
  nack.type = FrameType::nack;
  nack.sequence = frame.sequence;
  stamp(nack);
  // On this socket: should it be lost, the frame is sent again anyway.
  if (++socket.damaged > kMaxDamaged || !socket.put_control(nack)) nonsense(socket, "payloads keep arriving damaged");
  connection_.mark_busy();
  return false;
}

void Incoming::abandon(std::uint32_t communicator) {
  grants_.abandon(communicator);
  for (const auto& socket : connection_.sockets()) {
    Arrival& arrival = socket->arrival;
    if (!arrival.active || !arrival.into || arrival.landing || arrival.frame.segment.key.communicator != communicator)
      continue;
    arrival.sink = std::make_unique<std::byte[]>(arrival.frame.segment.bytes);
    arrival.into = arrival.sink.get();
  }
}

void Incoming::deliver(TcpSocket& socket) {
  const Arrival arrival = std::exchange(socket.arrival, {});
  Lease lease;
  if (arrival.landing) {
    arrival.landing->owner = this;
    arrival.landing->frame = arrival.frame;
    lease = shared_.landings.lease(arrival.landing);
  } else {
    consumed(arrival.frame);
  }
  shared_.listener.on_segment(peer_, arrival.frame.segment, arrival.into, lease);
}

void Incoming::released(const Landing& landing) { consumed(landing.frame); }

// Its credit, or its part of a grant, is free again.
void Incoming::consumed(const Frame& frame) {
  const SegmentHeader& segment = frame.segment;
  if (segment.message_bytes > shared_.options.eager_bytes)
    grants_.consumed(segment.key, segment.message_bytes, segment.bytes);
  if (!(frame.flags & kEager)) return;
  eager_consumed_ += credit_cost(segment.bytes);
  note_credit();
}

void Incoming::control(TcpSocket& socket, const Frame& frame) {
  const SegmentHeader& segment = frame.segment;
  switch (frame.type) {
    case FrameType::ack: return;
    case FrameType::data: return;
    case FrameType::close: return connection_.peer_closed();
    case FrameType::nack: {
      const char* wrong = connection_.out().damaged(frame.sequence);
      if (wrong) connection_.fail(wrong);
      return;
    }
    case FrameType::grant:
      if (!connection_.out().granted(segment.key, segment.offset))
        connection_.fail("the peer grants messages without end");
      return;
    case FrameType::request:
      if (requests_.size() >= kMaxRequests) return nonsense(socket, "requests without end");
      requests_.push_back(segment);
      connection_.mark_busy();
      return;
  }
}

void Incoming::expect(const MessageKey& full, std::uint64_t message_bytes, Readiness readiness) {
  MessageKey key = full;
  key.message &= 0xFFFF;
  if (message_bytes > shared_.options.eager_bytes) return grants_.expect(key, message_bytes, readiness);
  recent_[recent_count_++ % kRecent] = key;
  if (!requests_.empty()) answer(key);
}

void Incoming::answer(const MessageKey& key) {
  const auto at =
      std::find_if(requests_.begin(), requests_.end(), [&](const auto& request) { return request.key == key; });
  if (at == requests_.end()) return;
  const std::uint64_t message_bytes = at->message_bytes;
  requests_.erase(at);
  ++shared_.counters.grants_out;
  answered_bytes_ += message_bytes;
  connection_.out().send_control(FrameType::grant,
                                 {.key = key, .offset = message_bytes, .message_bytes = message_bytes});
}

// The peer has no credit for these messages: grants those that are expected here.
void Incoming::answer_requests() {
  for (std::size_t i = 0; i < requests_.size();) {
    SegmentHeader probe = requests_[i];
    const std::size_t known = std::min(recent_count_, kRecent);
    bool expected = std::find(recent_.begin(), recent_.begin() + static_cast<std::ptrdiff_t>(known), probe.key) !=
                    recent_.begin() + static_cast<std::ptrdiff_t>(known);
    probe.bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(probe.message_bytes, shared_.options.eager_bytes));
    expected = expected || shared_.listener.landing(peer_, probe) != nullptr;
    if (expected) answer(probe.key);
    else ++i;
  }
}

void Incoming::owe() {
  owed_ = true;
  connection_.mark_busy();
}

// Credit is told on its own when the peer may be waiting for it; otherwise it rides along.
void Incoming::note_credit() {
  const std::uint32_t window = shared_.credit_window();
  const auto untold = static_cast<std::int32_t>(eager_consumed_ + window - eager_told_);
  if (untold <= 0) return;
  const auto left = static_cast<std::int32_t>(eager_told_ - eager_received_);
  const auto most = static_cast<std::int32_t>(credit_cost(shared_.options.eager_bytes));
  if (left < most || (left < 3 * most && untold >= most)) owe();
}

void Incoming::stamp(Frame& frame) {
  const std::uint32_t limit = eager_consumed_ + shared_.credit_window();
  if (static_cast<std::int32_t>(limit - eager_told_) > 0) eager_told_ = limit;
  frame.credit = eager_told_;
  frame.ack = static_cast<std::uint32_t>(window_.base());
  if (window_.gaps()) return;                       // only an ack of its own can tell what lies behind a gap
  owed_ = false;
  frames_since_ack_ = 0;
  bytes_since_ack_ = 0;
}

void Incoming::settle() {
  if (!requests_.empty()) answer_requests();
  if (!owed_) return;
  TcpSocket* through = freshest_ && freshest_->usable() && !freshest_->blocked ? freshest_ : nullptr;
  for (const auto& socket : connection_.sockets()) {
    if (!through && socket->usable() && !socket->blocked) through = socket.get();
  }
  if (!through) return;
  Frame ack;
  ack.type = FrameType::ack;
  const AckBits bits = window_.bits();
  ack.segment.offset = bits[0];
  ack.segment.message_bytes = bits[1];
  ack.segment.call = bits[2];
  stamp(ack);
  if (!through->put_control(ack)) return owe();
  ++shared_.counters.acks_out;
  owed_ = false;
  frames_since_ack_ = 0;
  bytes_since_ack_ = 0;
}

void Incoming::lost(TcpSocket& socket) {
  if (freshest_ == &socket) freshest_ = nullptr;
  if (socket.arrival.landing) shared_.landings.give_back(socket.arrival.landing);
  socket.arrival = {};
  owe();
}

}  // namespace tutti::transport::tcp
