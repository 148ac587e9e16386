#pragma once
// Member: one rank's membership in one communicator: who the ranks are, the numbering of operations, the programs in use,
// and the first cause once it is broken. Everything under the engine's lock unless said otherwise.
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tutti/communicator.h>
#include <vector>

#include "comm/arguments.h"
#include "comm/brief.h"
#include "comm/engine.h"
#include "comm/gpu_plan.h"
#include "comm/hang_report.h"
#include "comm/planner.h"
#include "comm/relay.h"
#include "comm/shrinking.h"
#include "comm/straight_ranks.h"
#include "comm/watch.h"

namespace tutti { struct NoMemory; }

namespace tutti::comm {

// Of the ranks `members` alone, groups renumbered from 0 in order of first appearance.
std::vector<int> regroup(const std::vector<int>& groups, const std::vector<int>& members);

class Member : public std::enable_shared_from_this<Member> {
 public:
  // `world_ranks[rank]`; `groups` as in algorithms::Request::levels.
  Member(std::shared_ptr<Engine> engine, std::uint32_t id, std::vector<int> world_ranks, int rank,
         std::vector<std::vector<int>> levels, Planner planner);

  int rank() const { return rank_; }
  int rank_count() const { return int(world_ranks_.size()); }
  Rank self() const { return {rank_, rank_count(), engine_->settings().check}; }
  int local_rank() const;
  int local_rank_count() const;
  const std::vector<std::vector<int>>& levels() const { return levels_; }
  std::uint32_t id() const { return id_; }
  const std::shared_ptr<Engine>& engine() const { return engine_; }

  // Without the lock. For a call that cannot be started: a group that this thread has open fails with it, too.
  Work refuse(const Status& why);
  // Without the lock. Checks nothing but the state; `call` has been checked.
  Work start(Prepared&& call);
  Work start_pair(Collective what, Prepared call, int peer);   // send, recv
  // The same on a stream of a GPU: checked, then carried by this member's relay, which comes to be with the first one.
  Work start_on(StreamHandle stream, const Form& form);
  Work start_on(StreamHandle stream, const AllToAllV& call);   // as a group of sends and receives
  // Collective, blocks: from here on operations on streams may use the memory of the other ranks' GPUs, where a test finds that
  // it can be reached; what came of that, in words. Errors: no GPU here, and as of an operation.
  Result<std::string> use_gpu();
  bool uses_peers();                          // what came of it
  // The GPU's; before the first start_on. Without it, the one that there is here.
  void use_device(std::shared_ptr<Device> device) { device_ = std::move(device); }
  // Plans made before are dropped. All ranks do so between the same two operations.
  void set_prices(Prices prices);
  void begin_group();
  Work end_group();
  Result<Communicator> split(int color, int key);
  // Begins; the Work ends when the survivors have agreed. Then take_survivors() gives the communicator that they form.
  Work begin_shrink(std::chrono::milliseconds limit, const std::vector<int>& without = {});
  Result<Communicator> take_survivors();
  Work barrier(DeviceStream stream = {});
  Status status();
  Result<Choice> choose(Collective what, std::uint64_t count, DataType type, ReduceOp op);
  void abort(const std::string& reason);
  void destroy(std::chrono::milliseconds limit);
  static Communicator handle(std::shared_ptr<Member> member) { return Communicator(std::move(member)); }
  static const std::shared_ptr<Member>& of(const Communicator& handle) { return handle.member_; }

  // For the engine, under the lock.
  Operation* find(int peer, const transport::SegmentHeader& header);
  int rank_of(int world_rank) const;                      // -1: not a member
  void wire_up(int world_rank, const Wire& wire);
  void forget(Operation& operation);
  std::span<const Wire> wires() const { return wires_; }
  const Status& broken() const { return broken_; }
  void break_with(const Status& why) {
    if (broken_.ok()) broken_ = why;
    suspicion_ = {};
    hang_.timer = nullptr;
  }
  // A cause is known, the verdict is not; the timer ends that.
  struct Suspicion {
    Status cause;
    int origin = -1;                  // the world rank that saw it
    std::shared_ptr<void> timer;
  };
  Suspicion& suspicion() { return suspicion_; }
  Watch& watch() { return watch_; }
  Shrinking& shrinking();
  // A hang report that is known here and not everybody's yet; the timer makes it so. And the last one that was.
  struct Hang {
    HangReport draft;
    int origin = -1;                  // the world rank that made it
    std::shared_ptr<void> timer;
    std::optional<std::pair<std::uint32_t, bool>> last;    // sequence, whether a collective
    bool told(const HangReport& report) const { return last == std::pair(report.sequence, report.collective); }
  };
  Hang& hang() { return hang_; }
  bool destroyed() const { return destroyed_; }
  std::uint32_t started() const;     // number of the first collective that has not begun here
  // For the relay, under the lock. Numbers for `count` operations that begin later; what peers send for them is kept until then.
  // The state of the communicator, where it cannot have any.
  Result<std::uint32_t> hold(const Form& form, std::uint32_t count);
  // `program`: by which; null: as planned.
  Result<std::shared_ptr<Operation>> begin_held(const Form& form, Prepared call, std::uint32_t number, std::shared_ptr<const Program> program);
  // A stand_in() that kernels carry: numbered and pending from here on.
  Status start_in_kernel(const Prepared& call, const std::shared_ptr<Operation>& operation);
  // Of a collective with rows of one size, where kernels may carry it; without the lock.
  struct GpuChoice {
    GpuWay way = GpuWay::staged;
    double seconds = 0;
  };
  GpuChoice gpu_choice(const Prepared& call);
  // How a call on streams runs in the memory of GPUs, or not at all: it is staged in the host's. All that take part in it decide alike. Without
  // the lock.
  StraightWay straight_way(const Form& form, const Prepared& call);
  std::shared_ptr<Operation> stand_in();      // for several, in the user's hand
  int world_rank(int rank) const { return world_ranks_[std::size_t(rank)]; }
  // Whether it belongs to an operation that has ended here.
  bool has_ended(const transport::SegmentHeader& header, int peer) const;
  std::optional<Call> earlier(std::uint32_t sequence) const;   // what was called; of the last kKeptCalls collectives

 private:
  struct ProgramKey {
    std::string algorithm;
    Collective collective;
    int root;
    bool in_place;
    auto operator<=>(const ProgramKey&) const = default;
  };
  struct Group {
    std::thread::id owner;
    int depth = 0;
    std::vector<std::shared_ptr<Operation>> operations;   // bound, not begun
    std::vector<std::shared_ptr<Relay::Call>> on_streams; // booked, not launched
    Status refused;                                       // why the first call that could not be one of them was not
  };
  std::shared_ptr<Operation> make_operation(const Call& call);
  std::shared_ptr<const Program> program(const std::string& algorithm, const algorithms::Request& request);
  std::shared_ptr<const Program> pair_program(Collective what, int peer);
  Result<std::shared_ptr<const Program>> plan(const Prepared& call);
  Result<Prepared> imagine(Collective what, std::uint64_t count, DataType type, ReduceOp op) const;
  // Null: it is none.
  Brief* brief(const Prepared& call);
  void address(Prepared& call, const Program& program, std::uint32_t sequence);
  bool needs_wide(const Binding& binding, const Program& program) const;
  void stage(Operation& operation, Prepared& call, bool wide) const;
  // Under the lock: planned, numbered and bound, not begun. Changes the call. Throws NoMemory when it is numbered already.
  Result<std::shared_ptr<Operation>> bind(Prepared& call, std::optional<std::uint32_t> held_number = {}, std::shared_ptr<const Program> by = nullptr);
  algorithms::Request request_of(const Prepared& call) const;
  std::shared_ptr<const Program> straight_program(const Prepared& call);
  StraightReduction straight_reduction(const Prepared& call);
  void bind_pair(const std::shared_ptr<Operation>& operation, Collective what, Prepared& call, int peer);
  bool is_held(std::uint32_t sequence) const;
  Result<Device*> device();
  Result<std::shared_ptr<Relay>> relay();
  Group* group_of_this_thread();
  void launch(std::vector<std::shared_ptr<Relay::Call>> calls);   // without the lock
  // One that is complete when all these are, with `failure`, or the first of theirs.
  Work joined(const std::vector<std::shared_ptr<Operation>>& operations, const Status& failure);
  std::unique_ptr<ResultCheck> make_check(const Prepared& call, const Operation& of);
  void begin(const std::shared_ptr<Operation>& operation);
  Work refuse(const Status& why, Engine::Lock& held);
  Work starve(std::shared_ptr<Operation> operation, const NoMemory& why, Engine::Lock& held);
  Work submit(const std::shared_ptr<Operation>& operation, Engine::Lock& held);
  void to_self(const std::shared_ptr<Operation>& operation, Prepared call);
  // Under the lock: of these ranks of this communicator, in this order. This rank is among them.
  std::shared_ptr<Member> descend(std::uint32_t id, const std::vector<int>& members);

  std::shared_ptr<Engine> engine_;
  std::uint32_t id_;
  std::byte barrier_byte_{};        // what a barrier reduces
  std::vector<int> world_ranks_;
  std::vector<int> rank_of_world_;
  int rank_;
  std::vector<std::vector<int>> levels_;
  std::vector<Wire> wires_;
  Planner planner_;
  struct PlanKey {
    Collective collective;
    std::uint64_t bytes;
    int root;
    bool in_place, uniform, contiguous;
    auto operator<=>(const PlanKey&) const = default;
  };
  std::map<PlanKey, std::shared_ptr<const Program>> plans_;
  std::map<ProgramKey, std::shared_ptr<const Program>> programs_;
  // The last shapes of calls and whether they are brief, by a hash of the shape.
  struct BriefShape {
    std::uint64_t call = ~std::uint64_t(0);       // packed
    bool in_place = false;
    std::unique_ptr<Brief> brief;
  };
  std::array<BriefShape, 16> briefs_;
  std::uint32_t next_sequence_ = 0;
  static constexpr std::size_t kKeptCalls = 64;
  std::array<std::uint64_t, kKeptCalls> calls_{};   // packed, by sequence
  std::deque<std::shared_ptr<Operation>> window_;   // by sequence, from first_sequence_; empty pointers: complete
  std::uint32_t first_sequence_ = 0;
  struct Pair {
    std::uint32_t sends = 0, receives = 0;          // numbers of the next ones
    std::deque<std::shared_ptr<Operation>> receiving, sending;
    std::deque<std::pair<std::shared_ptr<Operation>, Prepared>> to_self;   // sends to oneself without a receive yet
    std::deque<std::uint32_t> held;                 // numbers of receives that have not begun
  };
  std::vector<Pair> pairs_;
  std::vector<Group> groups_;
  Status broken_;
  Suspicion suspicion_;
  Hang hang_;
  Watch watch_;                                   // of operations that do not move
  std::unique_ptr<Shrinking> shrinking_;          // made when somebody wants it
  bool destroyed_ = false;
  std::shared_ptr<Operation> held_;               // in window_ for each collective that has its number and has not begun
  std::shared_ptr<Device> device_;
  std::mutex relay_mutex_;
  std::shared_ptr<Relay> relay_;
  std::map<std::tuple<Collective, int, std::uint64_t>, GpuChoice> gpu_choices_;   // by root and bytes, too
  std::optional<StraightRanks> straight_;
  std::map<std::tuple<Collective, int, std::uint64_t, std::size_t>, std::string> straight_algorithms_;   // by root, bytes and element; "": none
};

}  // namespace tutti::comm
