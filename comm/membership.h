#pragma once
// Membership: what is behind tutti::Elastic. One process's way through the worlds of a job: waits for its first one,
// leads where it is its turn, shrinks after failures and takes in who waits. All that it says to processes outside its
// communicator is on the roster.
#include <tutti/elastic.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/roster.h"

namespace tutti::comm {

class Membership {
 public:
  // Without a roster: a world that never changes.
  Membership(Options options, Communicator world);
  // `limit`: how long to wait for others where nobody is at work.
  Membership(Options options, Roster roster, int slot, std::chrono::milliseconds limit);

  Status wait();                       // until this process has a world
  Result<bool> take_in();
  Status go_on();
  void end(const std::string& why);
  const std::shared_ptr<Communicator>& communicator() const { return world_; }
  bool can_go_on() const { return roster_.has_value(); }
  int worlds() const { return roster_ ? roster_->worlds() : 1; }
  int least() const { return roster_ ? roster_->least() : 1; }
  bool enough() const { return world_ && world_->rank_count() >= least(); }

 private:
  struct Call;                         // what rank 0 tells the others of a new world
  using Time = std::chrono::steady_clock::time_point;
  Result<bool> look(Time begun);       // one turn of wait(): whether there is a world now
  bool my_turn(Time begun) const;      // to bring those together who wait, where nobody is at work
  Status lead();
  Status accept(const Roster::Offer& offer);
  Status recover();
  Status shrink();                     // the survivors' world
  Status gather_members();
  Call call_up();                      // of rank 0
  Status late() const;                 // says who is missing

  const Options options_;
  std::optional<Roster> roster_;
  const int slot_ = 0;
  const std::chrono::milliseconds limit_{0};
  std::string ticket_;                 // that it waits with, or was taken in with; "" before
  Time asked_{};                       // when it wrote that ticket down
  std::shared_ptr<Communicator> world_;
  std::vector<int> slots_;             // of the ranks of world_
};

}  // namespace tutti::comm
