#pragma once
// Bootstrap: from (rank, rank_count, where to meet) to a World: every rank knows every rank, has control links, and can
// reach any rank with authenticated streams. Uses Loop and Network only, so that it also runs in simulation; the one
// call that may block is Network::resolve.
//
//   1. Each rank listens (TCP, and an abstract Unix socket), then registers at the meeting point, which rank 0 hosts
//   unless
//      a UniqueId's maker does. The meeting point answers when all are there, or says to all what is wrong.
//   2. Each rank connects to its neighbours at distances 1, 2, 4, ...; these links stay as the control plane.
//   3. The table of all ranks spreads over them in ceil(log2 n) rounds (the all-gather of Bruck et al., 1997).
//
// Errors: timeout (who is missing; where it was tried and what came back), mismatch (both sides are named), network,
// invalid_argument, peer_lost (a rank died meanwhile).
#include <tutti/communicator.h>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/dial.h"
#include "comm/meeting_point.h"
#include "comm/rank_info.h"
#include "comm/reception.h"
#include "core/config.h"
#include "core/host.h"
#include "core/task.h"

namespace tutti::comm {

struct JoinRequest {
  int rank = 0, rank_count = 1;
  std::vector<std::string> addresses;  // "host:port" or "@name", any of which leads to the meeting point
  int ports = 1;                       // of so many ports from the address's on, the first that was free
  bool rank_0_hosts = true;            // false: the maker of a UniqueId does
  JobKey key;
  Settings settings;
  std::optional<HostFacts> host;  // empty: this process's (read_host_facts)
  Figures figures;                // of this rank's profile
};
// With a UniqueId's addresses and key. invalid_argument.
Result<JoinRequest> request_from(const UniqueId& id, int rank, int rank_count, const Settings& settings);

class Joining;

// One rank's view of all ranks. Destroying it says goodbye to the others. Belongs to the loop's thread.
class World {
 public:
  int rank() const { return rank_; }
  int rank_count() const { return int(ranks_.size()); }
  const std::vector<RankInfo>& ranks() const { return ranks_; }
  const RankInfo& info(int rank) const { return ranks_[std::size_t(rank)]; }
  int local_rank() const;  // among the ranks with the same host identity, by rank
  int local_rank_count() const;
  std::string describe(int rank) const { return info(rank).describe(); }
  Control& control() { return *control_; }  // rank_count 1: without links

  // A stream to that rank: shm over its Unix socket (unsupported when it is on another host), tcp and control over TCP
  // or, for control on one host, Unix. Refused: peer_lost. The task must not outlive the World.
  Task<Result<std::unique_ptr<Stream>>> connect_to(int rank, Purpose purpose, std::uint16_t index, std::uint16_t count,
                                                   std::uint32_t call, TimePoint deadline);
  // Streams that other ranks opened with connect_to. From Loop::run; what came before waits. May destroy the World.
  using OnConnection = std::function<void(const PeerHello&, std::unique_ptr<Stream>)>;
  void set_on_connection(OnConnection callback);
  // Opens a control link to that rank, unless there is one or one is being opened. Where nobody answers, the rank is
  // lost. Of two ranks the higher one dials; the lower one knocks.
  void link(int rank);

 private:
  friend class Joining;
  World(Loop& loop, int rank, const JobKey& key, Nanoseconds link_timeout)
      : loop_(loop), rank_(rank), key_(key), link_timeout_(link_timeout) {}
  void arrived(const PeerHello& hello, std::unique_ptr<Stream> stream);
  Task<Result<std::unique_ptr<Stream>>> dial_rank(const RankInfo& peer, PeerHello hello, TimePoint deadline);

  Loop& loop_;
  const int rank_;
  const JobKey key_;
  const Nanoseconds link_timeout_;
  std::uint32_t epoch_ = 0;
  RankInfo own_;
  std::vector<RankInfo> ranks_;
  Joining* joining_ = nullptr;  // until join() ends
  std::unique_ptr<Reception> reception_;
  std::unique_ptr<Control> control_;
  void begin_control(std::map<int, std::unique_ptr<Stream>> links);
  void dial_link(int rank);
  Task<void> open_link(int rank);
  Task<void> mend_link(int rank);

  OnConnection on_connection_;
  std::set<int> opening_;
  std::deque<std::pair<PeerHello, std::unique_ptr<Stream>>> early_;
  TaskSet tasks_;  // dies first
};

// `request` and `loop` must outlive the task. Ends by the init_timeout plus a few seconds.
Task<Result<std::unique_ptr<World>>> join(Loop& loop, const JoinRequest& request);

// For make_unique_id: a meeting point on this host, and the id that leads to it. Drive the loop until
// point->finished().
struct OpenMeeting {
  UniqueId id;
  std::unique_ptr<MeetingPoint> point;
};
Result<OpenMeeting> open_meeting(Loop& loop);

}  // namespace tutti::comm
