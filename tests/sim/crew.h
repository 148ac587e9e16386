#pragma once
// A crew: the ranks of one job as simulated processes, each with the real bootstrap, engine and communicator, that make
// the same exchanges one after another. Nothing in it blocks: a process acts in its ticks only, and wakes itself while
// it waits, since memory that ranks share tells nobody.
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/member.h"
#include "tests/cuda/twin_device.h"
#include "tests/sim/exchange.h"
#include "transport/sim/sim_world.h"

namespace tutti::sim {

// What rank `rank` makes as its exchange number `index`.
using Agenda = std::function<Exchange(int rank, int index)>;

struct CrewOptions {
  int ranks = 2, hosts = 1;                  // hosts take turns or neighbours, by the seed
  SimOptions world;
  Settings settings;
  Agenda agenda;
  int exchanges = 1;                         // a rank is done after so many
  int most_pending = 1;                      // exchanges of one rank at a time
  Nanoseconds pause{0};                      // 0..pause of thinking before each
  int carry_on = 0;                          // exchanges among the survivors, after a failure and shrink()
  int regrow = 0;                            // then, together with a newcomer: Crew::replace()
  int late_rank = -1;                        // thinks for late_by from each start to the next
  Nanoseconds late_by{0};
  bool gpus = false;  // each rank has a twin of one: exchanges are on one of its streams, or on none
};

class Crew;

class CrewRank {
 public:
  // A newcomer makes no exchanges but those after the regrowth.
  CrewRank(Crew& crew, int rank, SimLoop& loop, comm::JoinRequest request, bool newcomer = false);
  ~CrewRank();

  // Completed well, all of them.
  bool done() const;
  bool over() const { return done() || verdict; }
  // Has a connection for data to that rank.
  bool reaches(int rank) const;
  Communicator& communicator() { return communicator_; }
  // Of its engine: what is still set aside for messages. Empty when all is done.
  std::string debts() const;

  const int rank;
  SimLoop& loop;
  bool joined = false;
  int completed = 0;
  int wrong = 0;                             // exchanges that ended well with other bytes than they should
  int spoiled = 0;                           // that failed and changed an input that was not in place
  std::optional<Status> verdict;             // the first failure, also of starting up
  TimePoint verdict_at{};
  std::string first_wrong;                   // which exchange that was
  std::set<std::string> later_verdicts;      // of other exchanges that were pending then, where they differ
  bool hold = false;                         // starts nothing new
  // With carry_on, after the verdict.
  std::optional<Status> shrunk;              // how shrink() ended
  std::optional<Status> second_verdict;
  std::vector<int> new_place;                // rank and rank_count among the survivors
  int carried = 0;                           // exchanges that ended well among them
  int regrown = 0;                           // and among them and the newcomer

 private:
  struct Pending {
    int index;
    Share share;
    Work work;
  };
  void tick();
  void join();
  void drive();
  void collect();
  void start_next();
  void carry_on();
  void regrow();
  bool carry(Communicator& with, std::uint64_t index);
  bool carries() const;
  void judge(const Pending& pending);
  void end(const Status& status);
  void set_alarm();

  Crew& crew_;
  comm::JoinRequest request_;
  const bool newcomer_;
  bool larger_ = false;                      // member_ is of the regrown world
  Task<Result<std::unique_ptr<comm::World>>> joining_;
  std::shared_ptr<comm::Member> member_;
  Communicator communicator_;
  std::list<Pending> pending_;
  std::optional<Work> shrinking_;
  Communicator survivors_;
  std::list<Pending> carrying_;              // one at most
  int started_ = 0;
  TimePoint next_start_{};
  std::shared_ptr<twin::TwinDevice> gpu_;
  std::list<Pending> on_streams_;            // ended; after a failure a stream may still copy from and to them
  std::vector<DeviceStream> streams_;        // among them none
  bool moved_ = false;
  Nanoseconds nap_{0};
  std::shared_ptr<void> alarm_;
};

class Crew {
 public:
  Crew(std::uint64_t seed, const CrewOptions& options);
  ~Crew();

  // Until all ranks have joined. False: they have not within a minute.
  bool assemble();
  bool run_until_over(Nanoseconds limit, int except = -1);
  bool all(const std::function<bool(const CrewRank&)>& holds, int except = -1) const;
  int count() const { return options.ranks; }
  CrewRank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
  // Connections for data between two ranks, from which the bootstrap's are told apart by their number.
  std::vector<std::uint64_t> data_wires(int a, int b) const;
  // Those from the time before: their control link's, if they have one.
  std::vector<std::uint64_t> control_wires(int a, int b) const;
  // A new process on the victim's host, which the survivors take in when they have carried on.
  CrewRank& replace(int victim);
  const comm::JoinRequest& invitation() const { return invitation_; }
  // Runs until nothing is set aside any more, and says what still is.
  std::string debts(int except = -1);
  // What each rank ended with.
  std::string report() const;

  const CrewOptions options;
  SimWorld world;

 private:
  std::vector<std::uint64_t> wires(int a, int b, bool data) const;
  int host_of(int rank) const;
  comm::JoinRequest request_of(int rank) const;

  std::vector<std::unique_ptr<CrewRank>> ranks_;
  bool neighbours_ = false;                  // of ranks that are on one host
  std::unique_ptr<CrewRank> newcomer_;
  comm::JoinRequest invitation_;             // to the regrown world, but for the rank
  std::uint64_t first_data_wire_ = 0;
};

}  // namespace tutti::sim
