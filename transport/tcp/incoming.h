#pragma once
// The receiving half of a connection: cuts what sockets bring into frames, lands payloads, drops duplicates, and owes
// the peer acknowledgements, credit and grants. Writes nothing itself: it stamps frames that go out, or asks for one.
#include <array>
#include <cstdint>
#include <vector>

#include "transport/tcp/frame.h"
#include "transport/tcp/shared.h"
#include "transport/tcp/socket.h"

namespace tutti::transport::tcp {

// Which sequences have arrived: all below base(), and bits for the kWindow from there on.
class ArrivalWindow {
 public:
  enum class Place { fresh, duplicate, beyond };
  std::uint64_t base() const { return base_; }
  bool gaps() const { return highest_ > base_; }
  Place look(std::uint64_t sequence) const;
  void mark(std::uint64_t sequence);
  AckBits bits() const;                            // of base(), base() + 1, ...

 private:
  bool bit(std::uint64_t sequence) const { return bits_[sequence % kWindow / 64] >> (sequence % 64) & 1; }
  std::uint64_t base_ = 0, highest_ = 0;           // highest_: one above the highest that has arrived
  std::array<std::uint64_t, kWindow / 64> bits_{};
};

class Incoming {
 public:
  Incoming(Shared& shared, TcpConnection& connection, int peer);
  ~Incoming() { shared_.landings.forget(this); }
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  // One read, and everything that follows from it. Returns the bytes moved. Failures are left in socket.failure.
  std::size_t read(TcpSocket& socket);
  void expect(const MessageKey& key, std::uint64_t message_bytes, Readiness readiness);
  // Ack and credit ride on every frame.
  void stamp(Frame& frame);
  // A segment that was landed here is needed no more.
  void released(const Landing& landing);
  // At the end of a poll and before sleeping: puts an ack on a socket if one is owed. Answers requests.
  void settle();
  std::uint64_t arrived_frames() const { return window_.base(); }
  bool owes() const { return owed_; }
  bool has_requests() const { return !requests_.empty(); }
  // Credit that has been used and not been given back, in bytes; messages that have begun or were granted.
  std::size_t eager_held() const { return std::size_t(eager_received_ - eager_consumed_) * kCreditUnit; }
  std::size_t open_messages() const { return grants_.messages(); }
  const Service& service() const { return service_; }
  // The socket is about to go.
  void lost(TcpSocket& socket);
  // What is being read into that communicator's users' buffers goes elsewhere from now on.
  void abandon(std::uint32_t communicator);

 private:
  static constexpr std::size_t kDirect = 8 << 10;          // payload rests from this on are read in place
  static constexpr std::size_t kBulkHeaderRead = 2 << 10;
  static constexpr std::uint32_t kAckFrames = kWindow / 8;
  static constexpr std::size_t kRecent = 256;
  static constexpr std::size_t kMaxRequests = 1 << 16;
  static constexpr unsigned kMaxDamaged = 8;

  std::size_t read_in_place(TcpSocket& socket);
  std::size_t read_through_scratch(TcpSocket& socket);
  void time(Arrival& arrival, std::size_t bytes);
  bool took(TcpSocket& socket, const IoResult& result);    // accounts; false: nothing moved
  void consume(TcpSocket& socket, const std::byte* data, std::size_t bytes);
  void begin(TcpSocket& socket, const Frame& frame);
  void drop(TcpSocket& socket, const Frame& frame);
  void begin_data(TcpSocket& socket, const Frame& frame, std::uint64_t sequence);
  void place(TcpSocket& socket);
  void consumed(const Frame& frame);
  void arrived(std::uint64_t sequence, const Frame& frame);
  void complete(TcpSocket& socket);
  bool intact(TcpSocket& socket);
  void deliver(TcpSocket& socket);
  void control(TcpSocket& socket, const Frame& frame);
  void answer(const MessageKey& key);
  void answer_requests();
  void owe();
  void note_credit();
  void nonsense(TcpSocket& socket, const char* what);

  Shared& shared_;
  TcpConnection& connection_;
  int peer_;
  ArrivalWindow window_;
  bool owed_ = false;
  std::uint32_t frames_since_ack_ = 0;
  std::size_t bytes_since_ack_ = 0;
  std::uint32_t last_ack_seen_ = 0;
  std::uint64_t ack_wanted_ = 0;                   // one above the last frame whose sender waits; 0: none
  // Credit units since the beginning, modulo 2^32.
  std::uint32_t eager_received_ = 0, eager_consumed_ = 0, eager_told_;
  Grants grants_;
  std::uint64_t answered_bytes_ = 0;               // of short messages that were granted and have not come
  std::vector<SegmentHeader> requests_;
  std::array<MessageKey, kRecent> recent_{};       // eager messages that were expected; the last ones
  std::size_t recent_count_ = 0;
  Service service_;
  TimePoint served_until_{};
  TcpSocket* freshest_ = nullptr;                  // read from last; acks go there
};

}  // namespace tutti::transport::tcp
