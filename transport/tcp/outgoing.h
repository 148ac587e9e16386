#pragma once
// The sending half of a connection: admits segments, numbers them, writes them on whichever socket takes them, keeps
// them until acknowledged and sends them again where a socket was lost or a payload arrived damaged. Does not read.
#include <array>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/tcp/frame.h"
#include "transport/tcp/grants.h"
#include "transport/tcp/out_frame.h"
#include "transport/tcp/shared.h"
#include "transport/tcp/socket.h"

namespace tutti::transport::tcp {

class Outgoing {
 public:
  Outgoing(Shared& shared, TcpConnection& connection, int peer);
  ~Outgoing() { end(); }
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  Sent send(const SegmentHeader& header, const std::byte* data, std::uint64_t token);
  // A grant or request: sequenced like data, goes before it.
  void send_control(FrameType type, const SegmentHeader& about);
  // Writes what the sockets take, a share per call. Returns whether anything moved.
  bool pump();
  // Tells the listener which sources are free. Only from poll(), in no other call's middle: it may send more.
  bool tell_sent();
  bool has_work(const TcpSocket& socket) const {
    return socket.writing || socket.has_control() || !urgent_.empty() || !data_.empty();
  }
  bool has_sent() const { return !sent_.empty(); }
  std::uint64_t resends() const { return resends_; }
  // Messages that asked for a grant, or have one left.
  std::size_t open_leaves() const { return leaves_.size(); }
  std::uint64_t acknowledged_frames() const { return base_; }
  std::optional<Unacknowledged> oldest_unacknowledged() const {
    const OutFrame* frame = base_ < next_ ? window_[base_ % kWindow] : nullptr;
    if (!frame || !frame->socket || frame->queued) return std::nullopt;
    return Unacknowledged{base_, frame->socket->stream->unsent_bytes()};
  }
  bool pending() const { return !urgent_.empty() || !data_.empty() || !waiting_control_.empty(); }

  // What the peer says. False, or a text: the peer talks nonsense.
  bool acknowledged(std::uint32_t ack, const AckBits* bits);
  void credited(std::uint32_t limit);
  bool granted(const MessageKey& key, std::uint64_t until);
  const char* damaged(std::uint32_t sequence);

  // The socket is about to go: its unacknowledged frames go to the others.
  void lost(TcpSocket& socket);
  // Gives the sources of that communicator's segments back, by copies of what has not been acknowledged.
  void abandon(std::uint32_t communicator);
  // The connection is over: drops everything, tells nobody.
  void end();

 private:
  // Of a message that needs one: granted up to `until`. `done`: gone before its grant came.
  struct Leave {
    enum { requested, granted, done } state;
    std::uint64_t until = 0;
  };
  static constexpr std::size_t kFinished = 64;             // messages whose last grants may still be on their way
  static constexpr std::uint32_t kControlReserve = 64;
  static constexpr std::size_t kMaxLeaves = 1 << 16;
  static constexpr std::size_t kWriteBytes = 64 << 10;     // gathered into one write, unless a frame is longer
  static constexpr std::size_t kPumpBytes = 256 << 10;     // written per socket and call
  static constexpr std::size_t kBatch = 30;
  static constexpr unsigned kMaxNacks = 8;

  struct Batch;
  bool admit(const SegmentHeader& header, std::uint8_t& flags);
  void enter(OutFrame* frame);                     // numbers it, remembers it
  void seal(OutFrame& frame);                      // checksum, ack, credit, encoding
  std::size_t write(TcpSocket& socket);
  void gather(TcpSocket& socket, Batch& batch);
  void settle(TcpSocket& socket, Batch& batch, std::size_t moved);
  void finish_writing(OutFrame* frame);
  void send_again(OutFrame* frame);
  void forget(std::uint64_t sequence);
  void retire(OutFrame* frame);
  void release_waiting_control();
  OutFrame*& slot(std::uint64_t sequence) { return window_[sequence % kWindow]; }

  Shared& shared_;
  TcpConnection& connection_;
  int peer_;
  bool ended_ = false;
  std::uint64_t resends_ = 0;
  std::uint64_t base_ = 0, next_ = 0;              // sequences [base_, next_) may be unacknowledged
  std::uint32_t eager_sent_ = 0, eager_limit_;     // credit units since the beginning, modulo 2^32
  std::vector<OutFrame*> window_;
  FrameList urgent_, data_;
  FrameList waiting_control_;                      // no sequence was left for them
  FrameList sent_;                                 // acknowledged; the listener is to be told
  std::size_t turn_ = 0;                           // socket to write to first
  std::pmr::unsynchronized_pool_resource memory_;
  std::pmr::unordered_map<MessageKey, Leave, KeyHash> leaves_{&memory_};
  std::array<MessageKey, kFinished> finished_;     // the last that went by grants
  std::size_t finished_count_ = 0;
};

}  // namespace tutti::transport::tcp
