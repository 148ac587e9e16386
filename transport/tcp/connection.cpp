#include "transport/tcp/connection.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/log.h"

namespace tutti::transport::tcp {

std::uint32_t Shared::credit_window() const {
  constexpr std::size_t kMost = 1 << 20;
  const std::size_t share = std::min(kMost, options.eager_limit / std::max<std::size_t>(connections, 1));
  return std::max(initial_credit(), static_cast<std::uint32_t>(share / kCreditUnit));
}

std::size_t Shared::segment_bytes(std::uint64_t message_bytes) const {
  constexpr std::size_t kSegmentBytes = 256 << 10;        // measured by perf/transport/tcp_ladder
  constexpr std::size_t kSmallest = 1 << 10;
  const std::size_t large =
      std::clamp(options.segment_bytes ? options.segment_bytes : kSegmentBytes, kSmallest, kMaxPayload);
  // A few segments more where a message has few: they overlap, and the first of the smallest may go before its grant.
  const std::uint64_t quarter = (message_bytes / 4 + 4095) / 4096 * 4096;
  return std::clamp<std::uint64_t>(quarter, std::min(large, options.eager_bytes), large);
}

TcpConnection::TcpConnection(Shared& shared, int peer)
    : shared_(shared), peer_(peer), out_(shared, *this, peer), in_(shared, *this, peer) {}

Sent TcpConnection::send(const SegmentHeader& header, const std::byte* data, std::uint64_t token) {
  return out_.send(header, data, token);
}

void TcpConnection::expect(const SegmentHeader& message, Readiness readiness, std::byte*) {
  if (!over_) in_.expect(message.key, message.message_bytes, readiness);
}

std::string TcpConnection::describe() const {
  return fmt::format("tcp {} ({} socket{})", description_, sockets_.size(), sockets_.size() == 1 ? "" : "s");
}

TcpSocket* TcpConnection::add(std::unique_ptr<Stream> stream) {
  auto socket = std::make_unique<TcpSocket>();
  socket->addresses = stream->local_address() + " -> " + stream->remote_address();
  socket->stream = std::move(stream);
  socket->connection = this;
  if (description_.empty()) description_ = socket->addresses;
  sockets_.push_back(std::move(socket));
  mark_busy();
  return sockets_.back().get();
}

void TcpConnection::mark_busy() {
  if (busy_ || over_) return;
  busy_ = true;
  shared_.busy.push_back(this);
}

bool TcpConnection::flush() {
  in_.settle();
  bool moved = out_.pump();
  if (in_.owes()) {                     // the sockets may take it now, and nobody may come back before they are read
    in_.settle();
    moved |= out_.pump();
  }
  return moved;
}

bool TcpConnection::restless() const {
  if (out_.pending() || in_.owes() || in_.has_requests() || out_.has_sent()) return true;
  return std::any_of(sockets_.begin(), sockets_.end(), [](const auto& socket) {
    return socket->writing || socket->has_control() || !socket->usable();
  });
}

bool TcpConnection::wants_poll() const {
  if (out_.has_sent()) return true;
  bool can_write = false;
  for (const auto& socket : sockets_) {
    if (!socket->usable()) return true;
    can_write = can_write || (!socket->blocked && out_.has_work(*socket));
  }
  return can_write;
}

bool TcpConnection::bury(std::vector<std::unique_ptr<TcpSocket>>& buried) {
  for (std::size_t i = 0; i < sockets_.size() && !over_;) {
    TcpSocket& socket = *sockets_[i];
    // What the peer had sent before it went away still counts.
    while (!socket.write_failure.ok() && socket.failure.ok() && !over_) {
      if (in_.read(socket) == 0 && socket.failure.ok()) socket.failure = socket.write_failure;
    }
    if (socket.failure.ok()) {
      ++i;
      continue;
    }
    if (over_) break;
    last_failure_ = socket.failure.text();
    ++shared_.counters.sockets_lost;
    buried_retransmitted_ += socket.stream->retransmitted();
    in_.lost(socket);
    const bool last = sockets_.size() == 1;
    if (last && !can_resume()) return true;
    if (!last) log::info("tcp to peer {}: one of {} sockets is gone: {}", peer_, sockets_.size(), last_failure_);
    out_.lost(socket);
    buried.push_back(std::move(sockets_[i]));
    sockets_.erase(sockets_.begin() + static_cast<std::ptrdiff_t>(i));
    if (last) return true;
  }
  return false;
}

Status TcpConnection::end() {
  over_ = true;
  out_.end();
  for (const auto& socket : sockets_) in_.lost(*socket);
  const char* how = peer_closed_ ? "the peer has disconnected" : "the connection is lost";
  return Status(Code::peer_lost, fmt::format("tcp {}: {}: {}", description_, how, last_failure_), peer_);
}

Status TcpConnection::why_broken() const {
  return Status(Code::peer_lost, fmt::format("tcp {}: the connection is broken: {}", description_, last_failure_),
                peer_);
}

Repairs TcpConnection::repairs() const {
  Repairs out{out_.resends(), buried_retransmitted_};
  for (const auto& socket : sockets_) out.segments += socket->stream->retransmitted();
  return out;
}

void TcpConnection::close() {
  if (over_) return;
  flush();
  Frame frame;
  frame.type = FrameType::close;
  in_.stamp(frame);
  for (const auto& socket : sockets_) {
    if (socket->usable()) socket->put_control(frame);
  }
  out_.pump();
  (void)end();
}

void TcpConnection::fail(const std::string& why) {
  beyond_repair_ = true;
  for (const auto& socket : sockets_) {
    if (socket->failure.ok()) socket->failure = Status(Code::network, fmt::format("{}: {}", socket->addresses, why));
  }
  mark_busy();
}

}  // namespace tutti::transport::tcp
