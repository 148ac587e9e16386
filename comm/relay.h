#pragma once
// Relay: carries operations between the streams of a GPU and the collectives of host memory. A call becomes slices;
// each is copied by the stream into a slot of pinned memory, run there in place as an ordinary operation of its member,
// and copied out by the stream. All is enqueued when the call is made: the host waits for nothing, and after the first
// call takes no memory of the device's, no pinned memory and no events. It knows no wires and no algorithms.
//
// On the stream, with W slots:   in 1, .. in W, [out 1, in W+1], ..  where
//   in k:  copy to the slot, then a call that says "k has arrived"
//   out k: wait until the word `done` has reached k, copy from the slot
// so the stream's own order guards the slots. Calls on another stream than the one before wait for its end by an event.
//
// Where the ranks' GPUs reach each other's memory (use()), an all_reduce may be kernels instead, piece after piece, and no
// slice. They take part in the order of the calls; that they have passed is heard on a stream of the relay's own, so that
// the user's waits for no call of the host's.
#include <tutti/communicator.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <variant>

#include "comm/arguments.h"
#include "comm/gpu_plan.h"
#include "comm/operation.h"
#include "comm/peer_memory.h"
#include "core/device.h"

namespace tutti::comm {

class Engine;
class Member;

using Form =
    std::variant<AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Gather, Scatter, AllToAll, Send, Recv>;
Collective collective_of(const Form& form);
Result<Prepared> prepare(const Form& form, Rank self);

class Relay : public std::enable_shared_from_this<Relay> {
 public:
  static constexpr std::size_t kSlots = 4, kSlotBytes = 2 << 20;
  // out_of_resources.
  static Result<std::shared_ptr<Relay>> make(std::shared_ptr<Device> device, Member& member);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Without the engine's lock. `form` has been checked.
  Work start(const Form& form, StreamHandle stream);

  // Between two operations. invalid_state: it has given up.
  Status use(std::unique_ptr<PeerMemory> peers);
  const PeerMemory* peers() const { return peers_.get(); }
  // The last call to it: no operation is made any more. The other ranks hear of it when the streams have come so far.
  void leave();

  // For the engine, under its lock.
  bool advance();  // begins what has arrived, lets go what is done; whether there was anything
  void note_begun();  // which kernels have begun: their operations wait for the other ranks from then on
  void give_up();  // streams that wait go on; nothing begins any more
  void detach();   // the engine ends
  const Member& member() const { return *member_; }
  std::size_t memory_bytes() const;

 private:
  struct Geometry {  // of one slice, in rows of `each` elements
    std::size_t rows = 1, element = 1, count = 0, each = 0;
    std::size_t in = 0, in_at = 0, out = 0,
                out_at = 0;  // rows that go in and come out, and where in the slot they begin
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::size_t slices() const { return count == 0 ? 1 : (count + each - 1) / each; }
    std::size_t elements(std::size_t slice) const { return std::min(each, count - slice * each); }
  };
  struct Call {
    Form form;
    Geometry geometry;
    std::uint32_t first = 0;  // number of its first slice
    std::uint32_t held = 0;   // and of the operation that this is
    std::size_t begun = 0;
    std::shared_ptr<Operation> all;  // what the user holds
    std::uint32_t kernel = 0;        // number of its first one; 0: slices
  };
  struct Running {
    std::uint32_t number;
    std::shared_ptr<Operation> operation;
  };

  Relay(std::shared_ptr<Device> device, Member& member) : device_(std::move(device)), member_(&member) {}
  Geometry geometry_of(const Form& form) const;
  Form slice_of(const Call& call, std::size_t slice) const;
  std::byte* slot(std::uint32_t number) const { return slots_ + number % kSlots * kSlotBytes; }
  Work start_kernels(const AllReduce& call, GpuWay way, StreamHandle stream);
  Status enqueue_kernels(const AllReduce& call, GpuWay way, std::uint64_t packed, StreamHandle stream);
  Work refused(const std::shared_ptr<Operation>& all, const Form& form, const Status& why);
  bool kernels_are_well();
  Status begin_next();
  Status enqueue(const Geometry& geometry, std::uint32_t first, StreamHandle stream);
  Status enqueue_slices(const Geometry& geometry, std::uint32_t first, StreamHandle stream);
  Status enqueue_in(const Geometry& geometry, std::size_t slice, std::byte* at, StreamHandle stream);
  Status enqueue_out(const Geometry& geometry, std::size_t slice, std::byte* at, std::uint32_t number,
                     StreamHandle stream);
  static void arrived(void* self);
  static void passed(void* keeps);
  static void let_go(void* keeps);
  void alarm();
  void set_done(std::uint32_t number) { std::atomic_ref(*done_).store(number, std::memory_order_release); }

  std::shared_ptr<Device> device_;
  Member* member_;
  std::byte* slots_ = nullptr;     // pinned; behind them the word
  std::uint32_t* done_ = nullptr;  // slices up to this one are done
  std::mutex order_;               // of calls and what they enqueue
  EventHandle last_ = nullptr;     // the end of the last call
  StreamHandle last_stream_ = nullptr;
  bool any_ = false;

  std::unique_ptr<PeerMemory> peers_;
  StreamHandle aside_ = nullptr;
  std::uint32_t kernel_ = 0, meeting_ = 1;  // the last kernel's number, the next one's first meeting; under order_

  // Under the engine's lock.
  std::deque<Call> calls_;  // not passed yet; those from begin_ on have slices to begin
  std::size_t begin_ = 0;
  std::deque<Running> running_;                            // in the order of their numbers
  std::uint32_t last_number_ = 0, begun_ = 0, ended_ = 0;  // slices given numbers, begun; calls ended
  bool given_up_ = false;

  // Written by the device's thread.
  std::atomic<std::uint32_t> arrived_{0}, passed_{0};
  std::mutex alarm_;
  Engine* engine_ = nullptr;
};

}  // namespace tutti::comm
