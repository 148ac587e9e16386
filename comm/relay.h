#pragma once
// Relay: carries operations between the streams of a GPU and the collectives of host memory. A call becomes slices;
// each is copied by the stream into a slot of pinned memory, run there in place as an ordinary operation of its member,
// and copied out by the stream. All is enqueued when the call is made: the host waits for nothing, and once a lane has been
// used takes no memory of the device's, no pinned memory and no events for it. It knows no wires and no algorithms.
//
// A call alone is put on its stream as   in 1, .. in W, [out 1, in W+1], ..  where
//   in k:  copy to the slot, then a call that says "k has arrived"
//   out k: wait until the word `done` has reached k, copy from the slot
// so the stream's own order guards the slots. Calls on another stream than the one before wait for its end by an event.
//
// The calls of a group must not wait for each other: a send may be what the peer waits for before it receives another. So
// they go by one kernel (Device::carry), on the stream of the first, and each on its lane: collectives have one, sends to
// and receives from each rank one each. Slots and numbers are a lane's.
//
// Where the ranks' GPUs reach each other's memory (use()), a collective may be kernels instead, piece after piece, and no
// slice. They take part in the order of the calls; that they have passed is heard on another stream, so that the user's
// waits for no call of the host's. Kernels of a group meet their peers', which may be alone elsewhere and behind a receive:
// so the sends and receives of such a group are carried beside them, on that other stream.
//
// Where RDMA devices come to the GPUs' memory, calls are carried straight, as few operations on the user's buffers (comm/straight_run.h), each
//   copies that come first, a call "it has arrived", a wait until `done`, copies or additions that come last
// Of a group all sends and receives say so before any is waited for, and the collectives go one after the other on another stream.
#include <tutti/communicator.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <variant>
#include <vector>

#include "comm/arguments.h"
#include "comm/gpu_plan.h"
#include "comm/operation.h"
#include "comm/peer_memory.h"
#include "comm/straight_run.h"
#include "core/device.h"

namespace tutti::comm {

class Engine;
class Member;

using Form = std::variant<AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Gather, Scatter, AllToAll, AllGatherV,
                          ReduceScatterV, Barrier, Send, Recv>;
Collective collective_of(const Form& form);
Result<Prepared> prepare(const Form& form, Rank self);
int peer_of(const Form& form);  // of a send or receive; else -1
inline bool sends(const Form& form) { return std::holds_alternative<Send>(form); }

class Relay : public std::enable_shared_from_this<Relay> {
  struct Lane;

 public:
  static constexpr std::size_t kSlots = Passage::kSlots, kSlotBytes = 2 << 20;
  static constexpr std::size_t kPairSlotBytes = 512 << 10;  // of sends and receives: there may be many lanes of them

  struct Call {
    Form form;
    Prepared checked;
    StreamHandle stream = nullptr, on = nullptr;  // the user's; which it is carried on: of a group all on one
    Lane* lane = nullptr;  // null: to this rank itself
    std::vector<Row> rows;
    bool uniform = true;    // rows of one size, one behind another
    std::size_t element = 1;
    Passage passage;
    std::uint32_t held = 0;  // number of the first slice's operation
    std::uint32_t begun = 0;
    GpuWay way = GpuWay::staged;
    std::uint32_t kernel = 0;  // number of its first one; 0: slices
    std::vector<StraightStage> straight;      // in the GPU's memory; none: slices or kernels
    std::shared_ptr<std::byte> aside;         // their scratch
    std::shared_ptr<Operation> all;  // what the user holds
  };

  // out_of_resources.
  static Result<std::shared_ptr<Relay>> make(std::shared_ptr<Device> device, Member& member);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Without the engine's lock. A call that has been checked, made ready; then those of a group, or one, are numbered and
  // put on their streams. What fails then shows in their operations.
  Result<std::shared_ptr<Call>> book(const Form& form, Prepared&& checked, StreamHandle stream);
  void launch(std::span<const std::shared_ptr<Call>> calls);

  // What collectives that go straight need of the device, whichever they are. out_of_resources.
  Status reserve();
  // Between two operations. invalid_state: it has given up.
  Status use(std::unique_ptr<PeerMemory> peers);
  bool has_peers() const { return peers_ != nullptr; }
  // The last call to it: no operation is made any more. The other ranks hear of it when the streams have come so far.
  void leave();

  // For the engine, under its lock.
  bool advance();  // begins what has arrived, lets go what is done; whether there was anything
  void note_begun();  // which kernels have begun: their operations wait for the other ranks from then on
  void give_up();  // streams that wait go on; nothing begins any more
  void detach();   // the engine ends
  const Member& member() const { return *member_; }
  std::size_t memory_bytes() const { return memory_bytes_ + (area_ ? StraightReduction::kArea : 0) + (peers_ ? peers_->memory_bytes() : 0); }
  // A kernel is at work that rings no bell: look often.
  bool wants_looks() const { return !given_up_ && entered_.load() != left_.load(); }

 private:
  struct Running {
    std::uint32_t number;
    std::shared_ptr<Operation> operation;
  };
  struct Lane {
    Relay* relay;
    bool straight = false;       // it has no slots
    std::byte* slots = nullptr;  // pinned; behind them the words
    std::size_t slot_bytes = 0;
    std::uint32_t *arrived = nullptr, *done = nullptr;
    std::byte* remarks = nullptr;
    // Under the engine's lock.
    std::uint32_t last = 0, begun = 0;         // slices given numbers, begun
    std::deque<std::shared_ptr<Call>> calls;   // that have slices to begin
    std::deque<Running> running;               // in the order of their numbers
  };
  struct Manifest {  // of a group, for the kernel, or scratch of a straight call; used again when that has ended
    Manifest(std::byte* at, std::size_t size) : memory(at), bytes(size) {}
    std::byte* const memory;
    const std::size_t bytes;
    std::atomic<bool> in_use{true};
  };
  struct Keep {  // what a stream holds until it has passed
    std::shared_ptr<Relay> relay;
    std::uint32_t calls = 0;
    Manifest* manifest = nullptr;
    std::vector<std::shared_ptr<std::byte>> asides;
  };
  using Calls = std::span<const std::shared_ptr<Call>>;

  Relay(std::shared_ptr<Device> device, Member& member) : device_(std::move(device)), member_(&member) {}
  Result<Lane*> lane_for(const Form& form, bool straight);
  Status make_straight(Call& call, const StraightWay& way);
  void note(const std::byte* data, std::uint64_t bytes);
  Result<std::byte*> allocate_pinned(std::size_t bytes);
  void lay_out(Call& call) const;
  Form slice_of(const Call& call, std::uint32_t slice) const;
  Status number(const std::shared_ptr<Call>& call);
  GpuWay way_of(const Call& call) const;
  std::uint64_t pieces_of(const Call& call) const;
  bool kernels_are_well();
  Status begin_next(Lane& lane);
  bool advance(Lane& lane);

  Status enqueue(Calls calls);
  SharedExchange exchange_of(const Call& call) const;
  Status enqueue_kernels(const Call& call);
  Status enqueue_slices(const Call& call);
  Status enqueue_alone(const Call& call);
  Status enqueue_straight(const Call& call);
  Status follow(StreamHandle later, StreamHandle earlier);
  Status enqueue_straight_in(const Call& call, std::uint32_t stage);
  Status enqueue_straight_out(const Call& call, std::uint32_t stage);
  Status enqueue_in(const Call& call, std::uint32_t slice);
  Status enqueue_out(const Call& call, std::uint32_t slice);
  Status enqueue_group(Calls calls, Keep& keep);
  Status enqueue_beside(Calls pairs, Calls collectives, StreamHandle stream, Keep& keep);
  Status carry(Calls calls, StreamHandle stream, Keep& keep);
  Status copy_rows(const Call& call, std::uint32_t slice, bool in);
  Status copy_to_self(Calls calls, StreamHandle stream);
  Result<Carriage> write_manifest(Calls calls, Keep& keep);
  Result<Manifest*> manifest(std::size_t bytes);
  Result<std::shared_ptr<Manifest>> take(std::vector<std::shared_ptr<Manifest>>& from, std::size_t bytes);

  static bool is_kernel(const std::shared_ptr<Call>& call) { return call->kernel != 0; }
  static void arrived(void* lane);
  static void entered(void* self);
  static void passed(void* keeps);
  static void let_go(void* keeps);
  void alarm();

  std::shared_ptr<Device> device_;
  Member* member_;
  std::mutex order_;               // of calls and what they enqueue
  StreamHandle beside_ = nullptr;  // of this object, for collectives that go straight
  std::byte* area_ = nullptr;      // of the GPU's, for reductions that do; kept until the process ends
  EventHandle last_ = nullptr;     // the end of the last call
  EventHandle joining_ = nullptr;  // where other streams of a group are
  StreamHandle last_stream_ = nullptr;
  bool any_ = false;
  std::vector<std::shared_ptr<Manifest>> manifests_, asides_;
  std::shared_ptr<char> straight_calls_ = std::make_shared<char>();      // streams hold it for those that they have not passed
  std::unique_ptr<PeerMemory> peers_;
  std::uint32_t kernel_ = 0, meeting_ = 1;  // the last kernel's number, the next one's first meeting

  // Under the engine's lock.
  std::map<int, std::unique_ptr<Lane>> lanes_;  // -1: collectives; 2 * peer: sends; 2 * peer + 1: receives; -2 and below: the same, straight
  std::deque<std::shared_ptr<Call>> unfinished_;  // in the order in which streams pass
  std::size_t memory_bytes_ = 0;
  std::uint32_t ended_ = 0;  // of those
  std::atomic<bool> given_up_{false};

  // Written by the device's thread.
  std::atomic<std::uint32_t> passed_{0}, entered_{0}, left_{0};
  std::mutex alarm_;
  Engine* engine_ = nullptr;
};

}  // namespace tutti::comm
