#pragma once
// One connection: two directions of bytes between two ends, in order and unharmed, but late, in pieces, and perhaps cut
// off. It acts as the kernels of both hosts and the network between them do; an end's process only sees what its stream
// returns.
//
// As with TCP: an end that closes sends what it wrote and then an end of file; if it had unread bytes, or bytes arrive
// at it later, it answers with a reset. A reset drops what is on its way, and by chance what had arrived but was not
// read.
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/net.h"
#include "transport/sim/byte_ring.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/fabric.h"

namespace tutti::sim {

class SimLoop;

class Wire : public EventTarget, public std::enable_shared_from_this<Wire> {
 public:
  using Callback = std::shared_ptr<const std::function<void()>>;

  // End 0 has connected, end 1 has accepted.
  Wire(Fabric& fabric, const Route& route, SimLoop* client, std::string client_address, SimLoop* server,
       std::string server_address, bool passes_descriptors);
  ~Wire() override;

  // What streams do.
  IoResult read(int end, std::span<std::byte> into);
  IoResult write(int end, std::span<const iovec> from);
  Status send_descriptors(int end, std::span<const int> descriptors);
  Result<std::vector<int>> receive_descriptors(int end);
  std::size_t unsent(int end) const;       // written and not arrived yet; a failed connection has nothing to lose
  void when_readable(int end, std::function<void()> callback);
  void when_writable(int end, std::function<void()> callback);
  void close(int end);

  // What loops do. Calls back what is wanted and possible at that end; returns whether anything was.
  bool dispatch(int end);
  bool due(int end) const;                 // a callback would be called now
  bool listed(int end) const { return end_at(end).listed; }
  void set_listed(int end, bool listed) { ends_[static_cast<std::size_t>(end)].listed = listed; }

  // What faults do.
  void break_off(int end);                 // a reset travels from this end, which itself fails at once
  void break_after(int end, std::uint64_t bytes);   // when so many more from `end` have arrived: break_off there
  // Flips these bits of the byte that `end` will have written `bytes` behind what has arrived so far.
  void flip_after(int end, std::uint64_t bytes, std::byte bits);
  void half_close(int end);                // end of file behind what was written; reading goes on
  void set_stalled(bool stalled);          // as if its path was a black hole; other wires of the link are not
  void heal();                             // its links may be up again
  void kill(int end, bool by_reset);       // the process is gone

  std::uint64_t number() const { return number_; }
  SimLoop* loop(int end) const { return end_at(end).loop; }
  const std::string& address(int end) const { return end_at(end).address; }
  bool open(int end) const { return end_at(end).open; }
  std::uint64_t written(int end) const { return pipe_from(end).written; }
  std::uint64_t arrived(int end) const { return pipe_from(end).arrived; }   // of what `end` wrote

  void fire(std::uint32_t what) override;
  std::string describe(std::uint32_t what) const override;

 private:
  enum What : std::uint32_t { kArrive = 0, kAck = 2, kNudge = 4, kGiveUp = 6 };   // plus the writing end

  struct Segment {
    enum class Kind { data, end_of_file, reset } kind = Kind::data;
    std::uint64_t end = 0;                 // offset behind its last byte
    TimePoint arrival;
  };
  struct Passed {
    std::uint64_t offset = 0;              // of the byte they lie beside
    std::vector<int> descriptors;
  };
  // What one end writes and the other reads. read <= arrived <= written; acked <= read.
  struct Pipe {
    Link* link = nullptr;
    ByteRing bytes;                        // from read to written
    std::uint64_t written = 0, arrived = 0, read = 0, acked = 0, ack_to = 0;
    std::uint64_t break_at = UINT64_MAX;
    std::vector<std::pair<std::uint64_t, std::byte>> flips;      // offsets, and what is flipped there
    std::deque<Segment> in_flight;         // the first one holds up the others: nothing overtakes
    std::deque<Passed> passed;
    TimePoint next_event = TimePoint::max();          // of kArrive; max: none is scheduled
    TimePoint held_since = TimePoint::max();          // the link was down when the first segment was to arrive
    bool ack_scheduled = false, ack_held = false;
    bool ended = false;                    // end of file has arrived
    bool wants_room = false;               // the writer was turned down
  };
  struct End {
    SimLoop* loop = nullptr;
    std::string address;
    bool open = true;
    bool fin_sent = false, reset_sent = false;
    bool listed = false;                   // in its loop's list
    Status failure;
    Callback readable, writable;
  };

  const End& end_at(int end) const { return ends_[static_cast<std::size_t>(end)]; }
  End& end_at(int end) { return ends_[static_cast<std::size_t>(end)]; }
  const Pipe& pipe_from(int end) const { return pipes_[static_cast<std::size_t>(end)]; }
  Pipe& pipe_from(int end) { return pipes_[static_cast<std::size_t>(end)]; }
  Pipe& pipe_to(int end) { return pipe_from(1 - end); }

  bool readable(int end) const;
  bool writable(int end) const;
  std::size_t room(const Pipe& pipe) const;
  bool down(const Pipe& pipe) const { return stalled_ || pipe.link->down(); }
  void schedule(TimePoint when, std::uint32_t what, int end);
  void wake(int end);
  void nudge(int end);
  void take(int from, const std::byte* data, std::size_t bytes);
  void launch(int from, const Segment& segment);
  void schedule_arrival(int from);
  void arrive(int from);
  void deliver(int from, const Segment& segment);
  void deliver_bytes(int from, const Segment& segment);
  void acknowledge(int from);
  void send_reset(int end);
  void fail(int end, int error);
  void give_up(int from);
  void drop_passed(Pipe& pipe, std::uint64_t before);
  std::string text(int end) const;

  Fabric& fabric_;
  const std::uint64_t number_;
  const bool passes_descriptors_;
  bool stalled_ = false;
  std::array<End, 2> ends_;
  std::array<Pipe, 2> pipes_;              // pipes_[e]: from end e
};

// One end of a wire, as the library sees it.
class SimStream final : public Stream {
 public:
  SimStream(std::shared_ptr<Wire> wire, int end) : wire_(std::move(wire)), end_(end) {}
  ~SimStream() override { wire_->close(end_); }
  IoResult read(std::span<std::byte> into) override { return wire_->read(end_, into); }
  IoResult write(std::span<const iovec> from) override { return wire_->write(end_, from); }
  void when_readable(std::function<void()> callback) override { wire_->when_readable(end_, std::move(callback)); }
  void when_writable(std::function<void()> callback) override { wire_->when_writable(end_, std::move(callback)); }
  Status send_descriptors(std::span<const int> descriptors) override {
    return wire_->send_descriptors(end_, descriptors);
  }
  Result<std::vector<int>> receive_descriptors() override { return wire_->receive_descriptors(end_); }
  std::size_t unsent_bytes() const override { return wire_->unsent(end_); }
  std::string local_address() const override { return wire_->address(end_); }
  std::string remote_address() const override { return wire_->address(1 - end_); }
  // For faults: SimWorld names wires by this number.
  std::uint64_t wire() const { return wire_->number(); }

 private:
  std::shared_ptr<Wire> wire_;
  int end_;
};

}  // namespace tutti::sim
