#pragma once
// How bytes move: one interface for all wires. A transport carries segments of messages between two ranks and tells its
// Listener what arrived. It knows nothing of collectives, schedules or sums.
//
// Threads: a transport, its connections and its listener are driven by one thread at a time (the engine's lock).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tutti/status.h>

namespace tutti::transport {

// Names one message on the lane from its sender to its receiver: the k-th of one operation of one communicator.
struct MessageKey {
  std::uint32_t communicator = 0;   // id and epoch, as comm/ hands them out
  std::uint32_t operation = 0;      // op_seq, low 32 bits
  std::uint32_t message = 0;        // k; low 16 bits travel
  bool operator==(const MessageKey&) const = default;
};

// Travels in front of every segment.
struct SegmentHeader {
  MessageKey key;
  std::uint32_t bytes = 0;          // of this segment
  std::uint64_t offset = 0;         // of this segment within its message
  std::uint64_t message_bytes = 0;
  std::uint64_t call = 0;           // the packed call (collective, type, op, root, count): both sides' must agree
  std::uint32_t plan = 0;           // hash of the sender's plan; low 16 bits travel
  // Does not travel. The earliest unfinished message of its lane in the oldest operation of its communicator: the one
  // that must always find room in the end, or ranks could wait for each other with all room taken by later ones.
  bool first = false;
  // Does not travel. The receiver only puts these bytes in their place, and the source stays as it is until on_sent():
  // the wire may leave them there for the receiver to fetch (Connection::lent_bytes).
  bool lend = false;
};

// Keeps arrived bytes readable until released. Empty (holder null): bytes are valid during the call only (small
// segments: at most a few KB; the listener copies what it cannot use at once).
class LeaseHolder {
 public:
  virtual void release(std::uint64_t token) = 0;
  // Of a segment that came without data: brings its bytes here. False: they do not come this way. What was written here
  // counts for nothing then; the segment comes once more in another way, or its communicator is broken.
  virtual bool fetch(std::uint64_t /*token*/, std::byte* /*into*/, std::uint32_t /*bytes*/) { return false; }
 protected:
  ~LeaseHolder() = default;
};
struct Lease {
  LeaseHolder* holder = nullptr;
  std::uint64_t token = 0;
  void release() { if (holder) holder->release(token); holder = nullptr; }
};

// Implemented by comm/. `peer` is the number given to Transport::connect.
class Listener {
 public:
  // Where the bytes of this segment may be written directly; nullptr: nowhere yet (the transport lands them itself).
  // Asked by transports that copy anyway (TCP); they then call on_segment with data == the pointer given.
  virtual std::byte* landing(int peer, const SegmentHeader& header) = 0;
  // A whole segment is there. Takes over the lease: must release it, now or later. Segments of one message may come in
  // any order (several sockets), each exactly once. data == nullptr: it is lent (SegmentHeader::lend), and lies with the
  // sender until the lease's holder has fetched it.
  virtual void on_segment(int peer, const SegmentHeader& header, const std::byte* data, Lease lease) = 0;
  // A segment accepted with Sent::pending: its source may now be reused. `token` as given to send().
  virtual void on_sent(int peer, std::uint64_t token) = 0;
  // A segment arrived with other bytes than were sent, as its checksum says, and cannot be sent again (shared memory).
  // Nothing of it is delivered.
  virtual void on_damaged(int peer, const SegmentHeader& header) = 0;
  // The connection is gone for good. Said once; nothing else is said of this peer afterwards.
  virtual void on_lost(int peer, const Status& why) = 0;
  // The connection's last socket is gone, but it can go on when it gets new ones (TCP, where it was asked for).
  // Otherwise whoever listens has to disconnect it.
  virtual void on_broken(int /*peer*/, const Status& /*why*/) {}
 protected:
  ~Listener() = default;
};

// What a receiver can do with a message's bytes, in the order in which it comes to that.
enum class Readiness : std::uint8_t {
  none,
  ahead,     // nothing yet: its turn comes, but earlier work still needs the memory
  partly,    // take them as they come, or soon after
  lands,     // Listener::landing has a place for every byte of it from now on
};

enum class Sent {
  done,      // the source may be reused at once
  pending,   // accepted; on_sent(token) follows when the source may be reused
  again,     // no room now; nothing was taken. Try again after a later poll()
};

class Connection {
 public:
  virtual ~Connection() = default;
  // Hands over one segment (header.bytes at data). Segments of one message are given in ascending order, once each.
  virtual Sent send(const SegmentHeader& header, const std::byte* data, std::uint64_t token) = 0;
  // As send(), for bytes that Transport::stage() has taken: done or again.
  virtual Sent send_staged(const SegmentHeader&, std::uint64_t /*staged*/) { return Sent::again; }
  // How ready the receiver is for this message (transports with grants tell the sender; others ignore it): its key,
  // message_bytes, call and plan, as this side has them. Optional for messages of at most eager_bytes(); said at most
  // twice, `ahead` and then something better. `place`: of one that `lands`, where
  // every byte of it may be written; else nullptr.
  virtual void expect(const SegmentHeader& message, Readiness readiness, std::byte* place) = 0;
  virtual std::size_t eager_bytes() const = 0;
  // The largest segment that may be sent with SegmentHeader::lend; 0: this wire lends nothing.
  virtual std::size_t lent_bytes() const { return 0; }
  // A look past Transport::poll(), at what came next. Of this whole message (its header as it must have come) the
  // bytes, which stay until take_glanced(); nullptr: it is not there, or something else is before it. Messages of at
  // most glance_bytes() can be looked at, and send() is done with them at once, unless they are lent; 0: this wire has no memory to look at.
  virtual std::size_t glance_bytes() const { return 0; }
  virtual const std::byte* glance(const SegmentHeader& /*message*/) { return nullptr; }
  virtual void take_glanced() {}
  // "shm", "tcp 10.0.0.1:4000 -> 10.0.0.2:5000 (4 sockets)"
  virtual std::string describe() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;                            // "shm", "tcp"
  // Segment bytes that suit this wire for a message of that size. Both ends compute the same.
  virtual std::size_t segment_bytes(std::uint64_t message_bytes) const = 0;
  // Multicast: takes the bytes once for `readers` calls of send_staged() on connections of this transport. 0: no room
  // now, try again. kNoStage: this wire (or so few bytes) has no use for it, send() to each.
  static constexpr std::uint64_t kNoStage = ~std::uint64_t(0);
  virtual std::uint64_t stage(const std::byte* /*data*/, std::uint32_t /*bytes*/, int /*readers*/) { return kNoStage; }
  // Whether receivers would read these bytes where they lie: then there is nothing to stage, and send() is pending.
  virtual bool in_place(const SegmentHeader& /*header*/, const std::byte* /*data*/) const { return false; }
  // Gives back the reads of a staged segment that will not happen.
  virtual void unstage(std::uint64_t /*staged*/, int /*readers*/) {}
  // Moves what can be moved without blocking; calls the listener. Returns whether anything happened.
  virtual bool poll() = 0;
  // The communicator is broken: its users' buffers are theirs again when this returns. What is under way goes on from
  // copies or into the void; on_sent may or may not follow.
  virtual void abandon(std::uint32_t /*communicator*/) {}
  // Whether everything handed over would arrive if this process ended now.
  virtual bool drained() const { return true; }
  // Before the caller sleeps in the loop: make sure that what arrives from now on wakes it. False: something is there
  // already, poll again. wake_done() follows when the sleep ends.
  virtual bool prepare_sleep() = 0;
  virtual void wake_done() = 0;
  virtual std::size_t memory_bytes() const = 0;
  // What its accounts hold for messages under way, in words. Empty when none is: otherwise something leaks.
  virtual std::string debts() const { return ""; }
};

}  // namespace tutti::transport
