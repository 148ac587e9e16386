#pragma once
// Rehearsal: plays a score on a machine of prices, event by event, in virtual time. Deterministic: what happens at one
// time happens in the order in which it was set going. No threads, no clock, no bytes moved.
//
// The machine. Every rank has one processor and a link out and one in (full duplex) at the price of the last border;
// every group of a level has a link out and one in at that border's price.
//   processor  `message` for each message that is sent, once its first segment may go; bytes * operands * gamma for a
//              reduction. One after another. Copies are free.
//   path       the sender's link out; where the message leaves its group, the link out of the outermost group that it
//              leaves and the link in of the one that it enters; the receiver's link in. Links between are not charged:
//              which of them lead outside is not known. A segment occupies a link for bytes * beta, first come first
//              served; it goes on as soon as its head has passed (cut-through), `alpha` of the border crossed later. So
//              alone it takes alpha + bytes * max(beta).
//   rules      as Execution's: a step goes as far as earlier ones on the same memory have come, segment by segment; a
//              receive from n senders adds when all n are there; within innermost groups a multicast
//              may be one write. Messages of one lane leave in order. A message's next segment follows when the one
//              before has left the rank: links are shared fairly between lanes. Sends are buffered: a send is over when
//              its last byte has left the rank, whether or not anybody receives.
// Crowding multiplies all prices.
#include <cstdint>
#include <vector>

#include "comm/planner.h"
#include "comm/score.h"

namespace tutti::comm {

// Of one border, all of its links together.
struct Crossing {
  double bytes = 0;          // that crossed it
  double busiest_bytes = 0;  // that left one group (the last border: one rank)
  std::uint64_t messages = 0;
  double busiest_seconds =
      0;  // for which its busiest link was occupied; the last border's carry what leaves the group, too
};

class Rehearsal {
 public:
  // The score must outlive it and have as many levels as prices.borders less one.
  explicit Rehearsal(const Score& score);

  // internal: steps that never start; names one. May be called again, with other prices.
  Status play(const Prices& prices);

  const std::vector<double>& finished() const { return finished_; }  // seconds, by rank
  const std::vector<Crossing>& crossings() const { return crossings_; }
  std::uint64_t events() const { return order_; }
  std::size_t memory_bytes() const;  // at its largest

 private:
  enum class Kind : std::uint32_t { transmit, sent, leave, enter, land, arrive, reduced };
  struct Event {
    double time = 0, tail = 0;  // of the segment's head; when its last byte comes at the earliest
    std::uint64_t order = 0;
    std::uint32_t step = 0, message = 0, segment = 0;
    Kind kind = Kind::transmit;
    bool operator>(const Event& o) const { return time != o.time ? time > o.time : order > o.order; }
  };
  struct Link {
    double free = 0, busy = 0, bytes = 0;
    double take(double time, double seconds);
  };
  struct State {
    std::uint32_t waits = 0;    // steps to be over before
    std::uint32_t started = 0;  // segments sent off, or whose reduction began
    std::uint32_t done = 0;     // segments that later steps may rely on
    std::uint32_t ready = 0;    // receive: segments that are there from all senders
    std::uint32_t ahead = 0;    // receive: senders of whom more than those are there
  };
  struct Group {
    Link out, in;
  };

  void reset(const Prices& prices);
  void post(Event event, double time, Kind kind);
  void handle(const Event& event);
  void transmit(const Event& event);
  void arrive(const Event& event);
  void advance(std::uint32_t step);
  void move(std::uint32_t step);
  void move_send(std::uint32_t step);
  void move_receive(std::uint32_t step);
  std::uint32_t allowed(std::uint32_t step) const;
  void complete(std::uint32_t step, double time);
  void release(std::uint32_t step, Follower::When when);
  double compute(std::uint32_t rank, double seconds);
  Group& group(std::uint32_t border, std::uint32_t rank) {
    return groups_[border][std::size_t(score_.levels[border][rank])];
  }
  void sum_up();

  const Score& score_;
  Prices prices_;
  double now_ = 0;
  std::uint64_t order_ = 0;
  std::size_t most_events_ = 0;
  std::vector<Event> events_;  // a heap, earliest first
  std::vector<State> states_;
  std::vector<std::uint32_t> arrived_;  // segments, by slot
  std::vector<std::uint32_t> work_;
  std::vector<double> processor_;  // free at, by rank
  std::vector<Group> ranks_;
  std::vector<std::vector<Group>> groups_;  // by level, group
  std::vector<std::uint64_t> messages_;     // by border
  std::vector<double> finished_;
  std::vector<Crossing> crossings_;
};

}  // namespace tutti::comm
