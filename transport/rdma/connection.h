#pragma once
// RdmaConnection: this rank's end of a pair: cells to and from the inboxes, writes of granted messages over all its queue pairs.
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/key_hash.h"
#include "transport/rdma/grants.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/shared.h"
#include "transport/rdma/socket_queue.h"

namespace tutti::transport::rdma {

// What a rank tells a peer of its end, before the queue pairs are connected.
struct EndPoint {
  std::uint64_t inbox = 0;
  std::uint32_t keys[kMostPorts] = {};            // of the inbox, by its ports
  std::vector<QueueAddress> queues;               // rail by rail
};

class RdmaConnection final : public Connection {
 public:
  RdmaConnection(Shared& shared, int peer) : shared_(shared), peer_(peer), grants_(shared, *this) {}
  ~RdmaConnection() override;

  // --- setting up ---
  // Queue pairs on each rail; `side`: 0 dialled. `first_id`: of their work requests.
  Status prepare(const std::vector<Rail>& rails, int side, int queues_per_rail, std::uint32_t first_id);
  EndPoint end_point() const;
  Status connect(const Offer& peer_offer, const EndPoint& peer);
  // An empty write on each queue pair; where the peer's comes by one, the way works in this direction.
  Status greet();
  // Of each queue pair it is known whether it works: it has failed, or both greetings have come through. Of those that the peer's are not
  // among, once it has said which it finds good, nothing more is expected.
  bool decided(std::optional<std::uint64_t> peers_good) const;
  std::uint64_t good_queues() const;
  // Those that work both ways; the others go.
  void keep(std::uint64_t queues);
  // It may be used; what has come already is delivered by open().
  void start() { state_ = State::up; }
  void open();

  // --- a break and what follows ---
  // Queue pairs stop; what has arrived still counts. Nothing is sent until reopen().
  void break_off();
  void stop_queues();
  bool settled() const;                           // nothing more arrives
  bool broken() const { return state_ == State::broken; }
  // Those that have failed go.
  void drop_queues();
  // A socket takes their place.
  void go_over(std::unique_ptr<Stream> stream, std::uint32_t id);
  // What the peer is to know, of which its answer says what has arrived, and the other way round.
  std::vector<std::byte> resumption();
  Result<std::vector<std::byte>> answer(std::span<const std::byte> resumption);
  Status reopen(std::span<const std::byte> answer);
  std::uint64_t sent_again() const { return sent_again_; }
  std::uint64_t progress() const { return handled_ + peer_freed_ + moved_; }

  Sent send(const SegmentHeader& header, const std::byte* data, std::uint64_t token) override;
  void expect(const SegmentHeader& message, Readiness readiness, std::byte* place) override;
  std::size_t eager_bytes() const override { return kEagerBytes; }
  std::size_t glance_bytes() const override { return over_socket_ ? 0 : kEagerBytes; }
  const std::byte* glance(const SegmentHeader& message) override;
  void take_glanced() override;
  std::string describe() const override;

  int peer() const { return peer_; }
  bool up() const { return state_ == State::up; }
  const std::vector<std::unique_ptr<Queue>>& queues() const { return queues_; }
  SocketQueue* over_socket() const { return over_socket_; }
  // Of the queue pair with this index.
  void completion(std::size_t queue, const ibv_wc& completion);
  const Status& failure() const { return failure_; }        // not ok: to be given up

  // Sends what waits. Returns whether anything moved.
  bool tend();
  bool tell_sent();
  bool drained() const;
  // Makes what was posted without a completion known to be complete, in the end.
  void flush();
  void abandon(std::uint32_t communicator);
  void stop();                                              // its queue pairs; nothing is sent or arrives any more
  std::size_t memory_bytes() const { return rings_ ? rings_->bytes() : 0; }

  // For Grants and LandedPool.
  void send_grant(const SegmentHeader& header, std::uint64_t told, const GrantBody& body);
  void send_control(CellType type, std::uint32_t communicator);
  void fill_keys(const Registration& registration, std::uint32_t* keys) const;
  std::shared_ptr<const Registration> registered(const std::byte* data, std::uint64_t bytes) const;
  void released(Landed& landed);
  void cannot_copy(const Status& why) { fail(Status(why.code(), "bytes for the memory of this rank's GPU: " + why.text())); }

 private:
  enum class State { joining, up, broken, over };
  struct CellInRing {
    std::uint32_t unit, bytes, end;
  };
  // Of a message that was granted: where it may be written, until where.
  struct Leave {
    GrantBody where;
    std::uint64_t until = 0, call = 0;
    std::uint32_t plan = 0;
    std::size_t queue = 0;                   // of the grid cell that was begun
  };
  struct Control {
    Cell cell;
    GrantBody body;
  };
  static constexpr std::uint32_t kControlUnits = 64;       // of the ring, that data leaves free
  static constexpr std::uint32_t kWritesUnderWay = 8;      // of a queue pair: those with room take the next, so that slow ones take less

  bool delivers() const { return state_ == State::up || state_ == State::broken; }
  std::size_t peer_port(std::size_t queue) const { return rails_[rail_of_[queue]].port[1 - side_]; }
  bool send_again();
  Status post_cell(const CellInRing& cell, bool signaled);
  Status post_write(std::size_t queue, const Posted& posted, bool signaled);
  Queue& main() { return *queues_[main_]; }
  QueuePair& pair(std::size_t queue) const { return static_cast<QueuePair&>(*queues_[queue]); }     // while it joins
  Status write_greeting(std::size_t queue);
  std::byte* place_of(std::uint32_t immediate, std::uint32_t bytes);
  void give_back(const Posted& posted);
  bool put(Cell cell, const std::byte* payload, bool control, bool signaled = false);
  void stamp(Cell& cell);
  bool owes_credit() const;
  Sent send_cell(const SegmentHeader& header, const std::byte* data);
  bool refuse(const SegmentHeader& header);
  Sent send_writes(const SegmentHeader& header, const std::byte* data, std::uint64_t token, Leave& leave);
  bool choose_queue(std::size_t& queue);
  void deliver(const ibv_wc& completion);
  void cell_arrived(std::uint32_t unit);
  bool read_cell(std::uint32_t unit, Cell& cell) const;
  void hear(const Cell& cell);
  std::vector<ibv_wc>::iterator next_arrival(std::size_t from = 0);
  void data_arrived(const Cell& cell, const std::byte* payload);
  void control_arrived(const Cell& cell, const std::byte* payload);
  void completed(Queue& queue, const ibv_wc& completion);
  void retire(Posted& posted);
  void answer_revocations();
  void fail(const Status& why);
  void fail(const std::string& nonsense);

  Shared& shared_;
  const int peer_;
  State state_ = State::joining;
  Status failure_;
  bool opened_ = false;                                     // the queue pairs are agreed upon and in use
  std::vector<Rail> rails_;
  int side_ = 0;
  std::vector<std::unique_ptr<Queue>> queues_;              // rail by rail
  SocketQueue* over_socket_ = nullptr;                      // the only one then
  std::vector<std::size_t> rail_of_;
  std::size_t main_ = 0, turn_ = 0;                         // cells go by main_
  std::uint64_t greetings_ = 0;                             // bits: by which queue pairs they have come
  std::vector<ibv_wc> early_;                               // came before open()

  std::unique_ptr<Block> rings_;                            // the inbox, then what its cells are sent from
  EndPoint there_;
  std::deque<CellInRing> in_ring_;                          // sent, not known to be handled
  std::size_t cells_again_ = 0;                             // the last so many of those are to be sent again
  std::uint64_t sent_again_ = 0;                            // of both kinds, so far
  std::deque<Posted> writes_again_;
  std::vector<Posted> unsure_;                              // writes of failed queue pairs, of which the peer is asked
  std::uint64_t moved_ = 0;                                 // writes completed and arrived
  std::uint32_t head_ = 0, peer_freed_ = 0;                 // of the ring to the peer, in units since the beginning
  std::uint32_t credit_taken_ = 0, peer_used_ = 0;
  std::uint32_t handled_ = 0, freed_told_ = 0;              // of the inbox
  std::uint32_t used_ = 0, used_told_ = 0;
  std::unordered_set<std::uint32_t> reserves_;              // communicators whose reserve is taken
  std::deque<Control> waiting_;
  std::unordered_map<MessageKey, Leave, KeyHash> leaves_;
  std::unordered_set<std::uint32_t> abandoned_;             // communicators
  std::vector<std::uint32_t> revocations_;                  // communicators; to be answered
  std::vector<std::uint64_t> sent_;                         // tokens that the listener is to be told
  Grants grants_;
};

}  // namespace tutti::transport::rdma
