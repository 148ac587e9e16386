#pragma once
// Where ranks meet before they know each other: each registers what it is; when all have, each is told who its
// neighbours on the control plane are. Or all are told why it cannot be: twice the same rank, other sizes, versions or
// settings, ranks that never came. One meeting, then it is finished. A plain object on a Loop.
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "comm/rank_info.h"
#include "comm/reception.h"

namespace tutti::comm {

struct MeetingAnswer {
  Status status;
  std::uint32_t epoch = 0;           // random: names this meeting's world
  std::vector<RankInfo> neighbours;  // control_neighbours(), by rank
};

// Ranks at distances 1, 2, 4, ... in both directions, ascending, without the rank itself.
std::vector<int> control_neighbours(int rank, int rank_count);
// "TUTTI_ORDER is canonical here and default there", for two texts of Settings::shared_text().
std::string difference(const RankInfo& a, const RankInfo& b);

// The caller's side, over a stream that has been through the handshake. `patience`: how long this rank will wait; the
// meeting ends with the first rank that gives up. The answer's own status is inside. network, timeout.
Task<Result<MeetingAnswer>> ask_meeting_point(Loop& loop, Stream& stream, const RankInfo& own, Nanoseconds patience,
                                              TimePoint deadline);

class MeetingPoint {
 public:
  MeetingPoint(Loop& loop, const JobKey& key, int own_rank);
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  // The first port from `port` on, of `ports`, that is free on at least one of the hosts ("@name": port 0, one host).
  Status listen(const std::vector<std::string>& hosts, int port, int ports);
  std::vector<std::string> addresses() const { return reception_.addresses(); }
  int port() const { return reception_.port(); }

  // A rank in this process. The callback comes from Loop::run and must not destroy this object.
  void add(const RankInfo& info, Nanoseconds patience, std::function<void(const MeetingAnswer&)> answer);
  // All ranks have been told; the object may go.
  bool finished() const { return verdict_ && unsent_ == 0; }
  Event& finish() { return finish_; }

 private:
  struct Entry {
    RankInfo info;
    std::unique_ptr<Stream> stream;  // or
    std::function<void(const MeetingAnswer&)> callback;
    TimePoint gives_up;
  };
  Task<void> serve(std::unique_ptr<Stream> stream);
  void enter(Entry entry);
  void watch(std::list<Entry>::iterator entry);
  void inspect(const RankInfo& info);
  void consider();
  void decide(Status status);
  void answer(Entry& entry, const Status& status);
  Task<void> send_answer(std::unique_ptr<Stream> stream, std::vector<std::byte> bytes);
  void set_timer();
  void report();
  Status missing_ranks() const;
  std::string list_missing() const;
  double waited() const;  // seconds
  const RankInfo* find(int rank) const;

  Loop& loop_;
  std::optional<TimePoint> started_;  // when the first rank came
  Reception reception_;
  std::list<Entry> entries_;
  std::optional<Status> problem_;  // found; everybody who comes soon shall hear it too
  TimePoint problem_until_ = kNever;
  std::optional<Status> verdict_;
  std::uint32_t epoch_ = 0;
  std::string departed_;  // who came and left again, for the error
  int unsent_ = 0;
  Event finish_;
  std::shared_ptr<void> timer_, report_;
  TaskSet tasks_;  // dies first
};

}  // namespace tutti::comm
