#pragma once
// Execution: one run of a Program over bound memory and live connections. It starts steps when their dependencies
// allow, pipelines dependent steps byte by byte, and reduces segments as they arrive. It knows nothing of threads,
// time, planning or users. Driven under the engine's lock; nothing is allocated once its vectors have grown.
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <span>
#include <tutti/types.h>
#include <vector>

#include "comm/layout.h"
#include "comm/lending.h"
#include "comm/program.h"
#include "comm/stand.h"
#include "transport/transport.h"

namespace tutti::comm {

struct Wire {
  transport::Connection* connection = nullptr;   // null while connecting
  transport::Transport* transport = nullptr;
};

// A segment that came before it could be used. Unleased ones are copied in.
class Piece {
 public:
  Piece(const transport::SegmentHeader& header, const std::byte* data, transport::Lease lease);
  const transport::SegmentHeader& header() const { return header_; }
  const std::byte* data() const;                // nullptr: to be fetched
  const transport::Lease& lease() const { return lease_; }
  std::uint64_t end() const { return header_.offset + header_.bytes; }
  void release() { lease_.release(); }
  transport::Lease take_lease() { return std::exchange(lease_, {}); }

 private:
  static constexpr std::size_t kSmall = 64;   // copied without an allocation
  transport::SegmentHeader header_;
  const std::byte* leased_ = nullptr;
  bool elsewhere_ = false;                    // with the sender, to be fetched
  transport::Lease lease_;
  std::array<std::byte, kSmall> small_;
  std::vector<std::byte> large_;
};

struct Binding {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t divide_by = 1;                  // avg, at the steps that complete
  std::uint64_t vector = 0;                     // elements; see Layout::bind
  Blocks in, out;
  transport::SegmentHeader header;              // key.communicator, key.operation, call, plan
  std::uint64_t segment_limit = 0;              // bytes; 0: the wire's own
  Lending lending;                              // of messages with one reader, where its wire can
  // Of a straight run (comm/straight_run.h): the memory may be a GPU's. No byte of it is touched here, and the copies are made by the stream;
  // scratch is given.
  bool straight = false;
  std::byte* scratch = nullptr;
  std::uint32_t token = 0;  // upper half of the tokens given to connections; the lower says which segment
};

class Execution {
 public:
  void bind(std::shared_ptr<const Program> program, const Binding& binding);
  // Before start(): the whole message of this step is on its way to so many of its peers.
  void sent_before(std::uint32_t step, std::uint32_t peers);
  // `wires` by communicator rank; must outlive the execution.
  void start(std::span<const Wire> wires);
  bool started() const { return !wires_.empty(); }
  bool finished() const { return unfinished_ == 0; }

  // Where a segment's bytes may go directly, or nullptr.
  std::byte* landing(int peer, const transport::SegmentHeader& header) const;
  enum class Verdict { taken, unexpected };     // unexpected: no such message, or not its size
  // Takes over the lease, also when unexpected.
  Verdict arrived(int peer, const transport::SegmentHeader& header, const std::byte* data, transport::Lease lease);
  void sent(std::uint32_t segment);              // the lower half of its token
  // That a message from this rank belongs to; -1: none.
  int step_of(int peer, const transport::SegmentHeader& header) const;
  // The oldest of its communicator: its earliest message on each lane may use the room that is kept for it.
  void set_oldest() { oldest_ = true; }
  // Tries sends again that found no room or no connection. Returns whether anything moved.
  bool retry();
  bool blocked() const { return !blocked_.empty(); }
  // Gives back everything held; afterwards it may be bound again.
  void release();

  const Program* program() const { return program_.get(); }
  const transport::SegmentHeader& header() const { return binding_.header; }
  // Ranks whose messages (or room) the unfinished steps wait for; for reports.
  std::vector<int> waits_for() const;
  // The first so many of those waits. The operation's fields are left empty.
  std::vector<Stand> stands(std::size_t most) const;
  // Whether something is still to be sent to or received from this rank. What
  // has arrived but waits here does not count.
  bool needs(int peer) const;
  std::uint64_t moved_bytes() const { return moved_; }
  std::size_t memory_bytes() const;             // held now, scratch above all

 private:
  struct State {
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t done = 0;          // contiguous bytes that later steps may rely on
    std::uint64_t submitted = 0;     // send: bytes handed to all peers
    std::uint64_t staged = 0;        // send: the shared stage of the current segment, 0 none
    transport::Transport* stage = nullptr;   // send: whose stage that is; the wires of a lost rank have none
    std::uint64_t segment = 0;       // send: bytes of the current segment
    std::uint32_t cursor = 0;        // send: peers that have the current segment
    std::uint32_t outstanding = 0;   // send: segments not yet acknowledged
    std::uint32_t slot = 0;          // recv: first of its piece lists, one a peer
    transport::Readiness expected{};   // recv: as the peers were told
    bool finished = false, blocked = false;
    bool lends = false;              // send: the current segment
    const std::byte* begin(Side side) const { return side == Side::source ? source : target; }
  };

  std::uint64_t allowed(std::uint32_t step) const;
  void advance(std::uint32_t step);
  bool run(std::uint32_t step);
  bool misses(std::uint32_t index, std::uint32_t position) const;
  std::uint64_t segment_for(const algorithms::Step& step, std::uint64_t bytes) const;
  bool lends(const algorithms::Step& step, std::uint64_t bytes) const;
  void run_send(std::uint32_t index, std::uint64_t limit);
  bool send_segment(std::uint32_t index);
  std::uint32_t take_off(std::uint32_t step, const transport::SegmentHeader& header);
  bool first_on_lane(std::uint32_t index, std::uint32_t position) const;
  void block(std::uint32_t index);
  void run_local(std::uint32_t index, std::uint64_t limit);
  void run_held(std::uint32_t index, std::uint64_t limit);
  void run_combine(std::uint32_t index, std::uint64_t limit);
  const Piece* piece_at(std::uint32_t slot, std::uint64_t offset) const;
  void drop_pieces(std::uint32_t slot, std::uint64_t below);
  void apply(std::uint32_t index, const transport::SegmentHeader& header, const std::byte* data, const transport::Lease& lease);
  void mark(std::uint32_t index, std::uint64_t offset, std::uint64_t bytes);
  void expect(std::uint32_t index);
  bool tell(std::uint32_t index, transport::Readiness readiness);
  void finish_if_done(std::uint32_t index);
  void reduce(std::byte* out, std::span<const std::byte* const> inputs, std::uint64_t bytes, bool completes) const;
  std::pair<std::byte*, std::uint64_t> place(const algorithms::Chunks& chunks);

  std::shared_ptr<const Program> program_;
  Binding binding_;
  Layout layout_;
  std::span<const Wire> wires_;
  std::vector<State> states_;
  std::vector<std::vector<Piece>> pieces_;
  struct Early { std::uint32_t step; std::uint64_t offset, bytes; };
  std::vector<Early> early_;                    // applied, or acknowledged, but behind a gap
  std::vector<Early> on_way_;                   // sent and not acknowledged; by the lower half of their tokens
  std::vector<std::uint32_t> free_;             // places in on_way_
  std::vector<std::uint32_t> blocked_, work_;
  std::vector<std::byte> scratch_;
  bool oldest_ = false;
  std::uint32_t unfinished_ = 0;
  std::uint64_t moved_ = 0;
};

}  // namespace tutti::comm
