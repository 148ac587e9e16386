#pragma once
// Engine: what one rank runs all its communicators on: the loop, the transports, the connections and the pending
// operations. A state machine under one lock, driven by whoever waits (wait.cpp) or else by its progress thread; stall.cpp
// looks after what does not move.
// It knows no algorithms: operations come with their program.
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tutti/status.h>
#include <unordered_map>
#include <vector>

#include "comm/bell.h"
#include "comm/handshake.h"
#include "comm/hang_report.h"
#include "comm/inquiry.h"
#include "comm/journal.h"
#include "comm/metrics.h"
#include "comm/operation.h"
#include "comm/watch.h"
#include "comm/word.h"
#include "core/config.h"
#include "core/fork.h"
#include "core/net.h"
#include "transport/tcp/shared.h"
#include "transport/transport.h"

namespace tutti { class Device; }
namespace tutti::transport::shm { class ShmTransport; }
namespace tutti::transport { class RdmaTransport; class TcpTransport; }

namespace tutti::comm {

class Brief;
class Member;
class Relay;

// In MessageKey::communicator: a send or recv, numbered by pair of ranks instead of by communicator.
inline constexpr std::uint32_t kPairBit = 1u << 31;

// How the engine reaches other ranks; given by the bootstrap. Callbacks come from Loop::run.
class Directory {
 public:
  using OnStream = std::function<void(Result<std::vector<std::unique_ptr<Stream>>>)>;
  virtual ~Directory() = default;
  // Authenticated streams to a rank, for one of the transports: a Unix stream for shm, `count` TCP streams for tcp and rdma.
  virtual void dial(int world_rank, Purpose purpose, int count, Nanoseconds limit, OnStream on_stream) = 0;
  // Streams that other ranks dialled.
  using OnIncoming = std::function<void(int world_rank, Purpose purpose, std::vector<std::unique_ptr<Stream>>)>;
  virtual void on_incoming(OnIncoming on_incoming) = 0;
  // To all other ranks, over the control plane. And what comes from there.
  virtual void say(const Word& word) = 0;
  using OnWord = std::function<void(int from, const Word& word)>;
  virtual void on_word(OnWord on_word) = 0;
  // Whether that rank has left or died, as far as is known here.
  virtual bool gone(int world_rank) const = 0;
  // Its process has certainly ended.
  virtual bool ended(int world_rank) const = 0;
  // Sees to it that there is a link of the control plane with that rank.
  virtual void link(int world_rank) = 0;
  // A rank whose process has ended, as the control plane sees it.
  using OnGone = std::function<void(int world_rank, const Status& why)>;
  virtual void on_gone(OnGone on_gone) = 0;
  // "rank 3 (host2, pid 4711)"
  virtual std::string describe(int world_rank) const = 0;
};

struct EngineSetup {
  std::unique_ptr<Loop> loop;
  std::unique_ptr<Directory> directory;   // made on that loop; null for a world of one rank
  std::unique_ptr<record::Recorder> recorder;   // the flight recorder; null: none
  Settings settings;
  int world_rank = 0, world_size = 1, local_rank = 0;
  int numa = -1;                          // node where this rank runs, as the kernel numbers them; -1: not known
  bool oversubscribed = false;            // more ranks on this host than cores
  bool threaded = true;                   // false: no progress thread (simulation drives)
};

class Engine final : public transport::Listener, public std::enable_shared_from_this<Engine> {
 public:
  static constexpr Nanoseconds kForever{-1};
  explicit Engine(EngineSetup setup);
  ~Engine();
  Status begin();                          // starts the progress thread; out_of_resources
  // Ends every pending operation with `aborted`, stops the thread, closes connections. Idempotent.
  void shut_down(const std::string& reason);

  using Lock = std::unique_lock<std::mutex>;
  Lock lock();
  const Settings& settings() const { return settings_; }
  int world_rank() const { return world_rank_; }
  const Origin& origin() const { return origin_; }

  // Without the lock.
  void wait(Operation& operation, Nanoseconds limit);
  void drive();
  bool add_callback(Operation& operation, std::function<void(const Status&)>& callback);
  void run_callbacks();
  std::size_t memory();
  void alarm();        // something of a relay's has changed; from a thread of the device's, so without any lock

  // Under the lock.
  void add_member(std::shared_ptr<Member> member);
  void remove_member(std::uint32_t communicator);
  Status add_relay(std::shared_ptr<Relay> relay);   // out_of_resources
  std::uint32_t next_token() { return ++last_token_; }
  // The world's, the start-up probe's, and one for those that this rank splits off; no other rank gives the same.
  static constexpr std::uint32_t kWorldCommunicator = 0, kProbeCommunicator = 1;
  std::uint32_t allot_communicator();
  // Runs it here and now, if its peers come within a few looks. False: what it has sent is sent, the rest is an operation's. `record`: its
  // number in the flight recorder.
  bool over_at_once(Member& member, Brief& brief, const Binding& binding, std::uint32_t& record);
  void start(const std::shared_ptr<Operation>& operation);   // execution is bound
  void track(const std::shared_ptr<Operation>& operation);   // without execution (groups)
  void complete(Operation& operation, Status status);
  // One that a kernel carries: it fails where a peer is lost already, or makes another call.
  void start_in_kernel(const std::shared_ptr<Operation>& operation);
  // Another rank made another call, or planned another schedule for it.
  void disagree(Member& member, int peer, Operation& operation, std::uint64_t call);
  // Something is wrong with a communicator. The lowest rank that is still there says which cause is everybody's verdict;
  // the others tell what they saw and wait for its word, for at most kVerdictWait.
  void fail(Member& member, const Status& cause);
  void suspect(Member& member, const Status& cause, int origin);
  // The verdict is known: ends all operations of the communicator with it.
  void settle(Member& member, const Status& verdict);
  void connect(int world_rank);
  // Whether the RDMA devices come to that GPU's memory: tried out at the first call. unsupported: why not, of each.
  Status use_gpu(const std::shared_ptr<Device>& gpu);
  Purpose over_network();                  // what is tried first with ranks of other hosts
  std::unique_ptr<Execution> take_execution();
  void keep(std::unique_ptr<Execution> execution);
  Wire wire(int world_rank) const { return peers_[std::size_t(world_rank)].wire; }
  std::string describe(int world_rank) const;
  std::size_t memory_bytes() const;
  std::string debts() const;               // of its transports, and what nobody has asked for; empty: none
  bool has_members() const { return !members_.empty(); }
  bool progress();
  Loop& loop() { return *loop_; }
  Directory& directory() { return *directory_; }       // there is none in a world of one rank
  // Wakes whoever sleeps, after operations were started from outside a wait.
  void nudge();
  // Tells all ranks that this is the verdict.
  void spread_verdict(Member& member, const Status& verdict);

 private:
  std::byte* landing(int peer, const transport::SegmentHeader& header) override;
  void on_segment(int peer, const transport::SegmentHeader& header, const std::byte* data, transport::Lease lease) override;
  void on_sent(int peer, std::uint64_t token) override;
  void on_damaged(int peer, const transport::SegmentHeader& header) override;
  void on_lost(int peer, const Status& why) override;
  void on_broken(int peer, const Status& why) override;

  struct Peer {
    Wire wire;
    enum { none, connecting, up, lost } state = none;
    Status lost_why;
    std::shared_ptr<void> reminder;      // while this rank waits to be dialled, or for a new connection
    // Of a link over TCP (links.cpp).
    TimePoint broken_since{}, silent_since{}, renew_at{};
    TimePoint heard_at{}, heard_since{}; // the last word of its over the control plane, and the first of an unbroken series
    Status broken_why;
    std::optional<transport::tcp::Unacknowledged> oldest;    // when last looked at
    std::uint64_t moved_at_break = 0;
    int fruitless = 0;                   // breaks in a row, with nothing moved between them
    bool renewing = false;
  };
  struct Parked {
    int peer;
    Piece piece;
  };

  void blame(int peer, bool finally = false);
  bool decides(const Member& member) const;
  void check_result(Operation& operation);
  Operation* find(int peer, const transport::SegmentHeader& header, Member** member) const;
  void note_service(const Operation& operation);
  std::string metrics_text() const, link_metrics() const, rdma_metrics() const;
  void deliver_parked(Operation& operation);
  void missed(Member& member, int peer, const transport::SegmentHeader& header);
  transport::RdmaTransport* rdma();
  void dial(int world_rank, Purpose purpose);
  void streams_ready(int world_rank, Purpose purpose, bool opener, std::vector<std::unique_ptr<Stream>> streams);
  void join_by_shm(int world_rank, bool opener, std::unique_ptr<Stream> stream);
  void join_by_rdma(int world_rank, bool opener, std::vector<std::unique_ptr<Stream>> streams);
  void connected(int world_rank, Result<transport::Connection*> connection, transport::Transport& transport);
  void cannot_connect(int world_rank, const Status& why);
  void mend(int peer);
  void renew(int peer);
  void resume(int peer, bool dialler, std::vector<std::unique_ptr<Stream>> streams);
  bool by_rdma(int peer) const;
  bool link_broken(int peer) const;
  std::uint64_t link_progress(int peer) const;
  void look_after_links(TimePoint now);
  void ask_for_life(int peer);
  void note_word_of(int peer);
  void note_repairs(TimePoint now);
  bool check_deadlines();
  void heard(int from, const Word& word);
  bool look_at(Operation& operation, TimePoint now);
  Nanoseconds report_limit() const;
  void look_for_hang(Operation& operation, Nanoseconds quiet, TimePoint now);
  HangReport explain(const Operation& operation, Nanoseconds quiet, TimePoint fresh);
  void consider_report(Member& member, const HangReport& report, int origin);
  void tell(Member& member, const HangReport& report);
  void ask_all(Member& member, const std::set<int>& on_the_way, TimePoint now, TimePoint since);
  void asked();
  void tell_where_all_stand(TimePoint since);
  void ask(Member& member, const std::set<int>& ranks, TimePoint now);
  Report report_of(const Member& member) const;
  Status stall_of(const Operation& operation, const Holdup& holdup, Nanoseconds quiet) const;
  Status start_thread();
  void progress_loop();
  bool drive_unwaited();
  void sleep(Lock& lock, Nanoseconds limit);
  bool prepare_sleep();
  void drain(Lock& held);
  Nanoseconds spin_limit() const;
  std::uint32_t looks_for_a_clock() const;

  const Origin origin_;
  Settings settings_;
  int world_rank_, world_size_, numa_;
  bool oversubscribed_, threaded_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Directory> directory_;
  Journal journal_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Inquiry> inquiry_;
  std::shared_ptr<void> answers_;        // to an inquiry, while they come in
  struct { std::uint64_t completed = 0, failed = 0, moved = 0; } totals_;     // operations, and bytes of the good ones
  std::unique_ptr<transport::shm::ShmTransport> shm_;
  std::unique_ptr<transport::TcpTransport> tcp_;
  std::shared_ptr<Device> gpu_;          // that rdma_ knows
  Status gpu_reach_;
  std::unique_ptr<transport::RdmaTransport> rdma_;  // made when a pair first may use it
  std::string no_rdma_;                  // why there is none; "": not looked for yet
  TaskSet tasks_;
  std::vector<transport::Transport*> transports_;   // all
  std::vector<transport::Transport*> wires_;        // those with a connection: only they are polled
  std::vector<Peer> peers_;
  std::unordered_map<std::uint32_t, std::shared_ptr<Member>> members_;
  std::uint32_t splits_ = 0, last_token_ = 0;
  std::vector<std::shared_ptr<Operation>> pending_;
  std::vector<std::unique_ptr<Execution>> idle_executions_;
  std::size_t idle_bytes_ = 0;           // that they hold
  std::vector<Parked> parked_;
  std::vector<std::shared_ptr<Relay>> relays_;
  std::atomic<bool> alarmed_{false};     // the progress thread shall drive, whoever is expected to wait
  std::vector<std::pair<std::function<void(const Status&)>, Status>> callbacks_;
  std::uint32_t passes_ = 0;             // of progress(); the loop is asked every so many
  std::uint64_t deliveries_ = 0;
  TimePoint next_deadline_check_{}, next_repairs_note_{};

  std::mutex mutex_;
  std::condition_variable turn_;         // for those that cannot be the one sleeper
  std::atomic<int> contenders_{0};       // threads that want the lock
  bool sleeping_ = false;                // somebody waits in the loop
  int queued_ = 0;                       // threads waiting on turn_
  int wary_ = 0;                         // so many more waits yield while they spin
  std::atomic<int> drivers_{0};          // threads in wait(); changed under the lock
  std::atomic<bool> stopping_{false};
  Bell bell_;                            // wakes the idle progress thread
  std::atomic<bool> expects_wait_{true}; // operations are usually waited for at once: leave the progress thread alone
  std::atomic<std::uint32_t> starts_{0};   // operations so far; written under the lock
  std::atomic<bool> dozing_{false};        // the progress thread has seen no start for a while and looks seldom
  std::thread thread_;
};

}  // namespace tutti::comm
