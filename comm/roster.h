#pragma once
// Roster: who is at work in a job whose ranks come and go, who waits, who will not come. A file that only grows, a line
// a change; ranks and launchers append to it and read what is new. It needs no process to serve it: on one host it lies
// in memory that the launcher holds (a memfd), or it is a file on a disk that hosts share. It decides nothing.
//
//   job RANKS LEAST             the first line
//   wait SLOT TICKET            a process wants to be taken in; an earlier one of the slot is no more
//   offer TICKET RANK COUNT ID  ... and is asked to be RANK of COUNT in the world that ID (hexadecimal) names
//   formed SLOT:TICKET ...      these have met and are at work; who was before and is not named has been lost
//   gone SLOT                   nobody will come for it, unless one waits later
//   end TEXT                    the job is over
// Lines of several hosts may come in another order here than there: tickets tell what is out of date.
// A line of another kind is for launchers (tools/assembly.h).
#include <tutti/communicator.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::comm {

// A word that nobody else has.
std::string new_ticket();

class Roster {
 public:
  enum class State { absent, waiting, offered, member, gone };
  struct Waiting {
    int slot;
    std::string ticket;
  };
  struct Offer {
    int rank = 0, count = 0;
    UniqueId id;
  };

  // For a roster in a file without a name: the descriptor stays the caller's.
  explicit Roster(int descriptor) : descriptor_(descriptor), owned_(false) {}
  // invalid_argument: names the path and what is wrong.
  static Result<Roster> open(const std::string& path);
  Roster(Roster&& other) noexcept;
  Roster& operator=(Roster&&) = delete;
  ~Roster();

  // Appends a line, whole. out_of_resources: the disk is full or gone.
  Status add(const std::string& line);
  // Takes in what was added since. invalid_argument: this is no roster.
  Status read();

  int ranks() const { return int(states_.size()); }
  int least() const { return least_; }
  State state(int slot) const { return states_[std::size_t(slot)]; }
  int count(State state) const;
  // In the order of slots.
  std::vector<Waiting> waiting() const;
  std::optional<Offer> offer(const std::string& ticket) const;
  bool has_waited(int slot) const {
    return has_waited_[std::size_t(slot)];
  }  // whatever its program is, it knows this roster
  int worlds() const { return worlds_; }                                         // formed so far
  const std::optional<std::string>& end() const { return end_; }
  const std::vector<std::string>& other_lines() const { return other_lines_; }

  static std::string offer_line(const std::string& ticket, const Offer& offer);

 private:
  void take(std::string_view line);
  void wait(int slot, const std::string& ticket);
  void form(const std::map<int, std::string>& members);
  int descriptor_;
  bool owned_;
  std::size_t offset_ = 0;
  std::string partial_;
  int least_ = 1, worlds_ = 0;
  std::vector<State> states_;
  std::vector<bool> has_waited_;
  std::vector<std::string> tickets_;              // of each slot, the newest
  std::map<std::string, Offer> offers_;
  std::set<std::string> formed_;                  // tickets of all that have been members
  std::optional<std::string> end_;
  std::vector<std::string> other_lines_;
};

}  // namespace tutti::comm
