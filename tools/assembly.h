#pragma once
// Assembly: how the launchers of a job's hosts find one another before a rank is started, and what they keep in common
// afterwards: the job's roster (comm/roster.h), in a file that all hosts see, or one a host, kept alike by Gossip. Its
// lines of launchers:
//
//   key HEX                            the job's key, in a file of which nobody else can read
//   host NUMBER RANKS NAME ADDRESS GOSSIP STARTED   a launcher is there, since that microsecond of its clock
//   meet HOST:PORT                     where the ranks meet, from host 0
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tutti/status.h>
#include <vector>
#include "comm/roster.h"
#include "tools/job.h"
#include "tools/gossip.h"

namespace tutti::tools {

struct AssemblyPlan {
  int least = 1;                            // ranks that the job wants at least
  bool elastic = false;
  std::string file;                         // where hosts meet; "": at the job's master address
  std::optional<int> host_number;           // none: the first that is free; only with a file
  std::vector<std::string> host_names;      // by number, as far as they are known
  std::string local_address;                // of this host, for others; "": the best interface's
  std::chrono::milliseconds limit{120'000};
  std::function<void(const std::string&)> tell;      // a line for the user
  std::function<bool()> stop = [] { return false; }; // no longer wanted
};

class Assembly {
 public:
  // Completes `job`: host number, key, and where the ranks meet. With one host it only makes a roster. timeout: who is
  // missing; aborted: plan.stop(); invalid_argument: the address is not this host's, the port is taken, or another host
  // was started with other flags.
  static Result<std::unique_ptr<Assembly>> meet(Job& job, const AssemblyPlan& plan);
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;
  ~Assembly();

  int roster() const { return roster_.get(); }
  const std::string& path() const { return path_; }      // for the ranks; valid while this lives
  // Of a job on several hosts that is not elastic: a text comes there when another
  // host's part of it has failed; -1: one host.
  int ended() const { return ended_.get(); }
  // The launcher of that host is there, as far as is known here.
  bool lives(int host) const;
  // This host's part has failed: all are told.
  void fail(const std::string& why);

 private:
  Assembly() = default;
  struct Host {
    std::string name, address, gossip;
    int ranks = 0;
    bool calls_us = false;
  };
  Status open_memory(const Job& job, const AssemblyPlan& plan);
  Status open_file(Job& job, const AssemblyPlan& plan);
  Status take_number(Job& job, const AssemblyPlan& plan);
  Status open_gossip(const Job& job, const AssemblyPlan& plan);
  Status announce(const Job& job, const AssemblyPlan& plan);
  Status wait_for_all(Job& job, const AssemblyPlan& plan);
  Status read(const Job& job, comm::Roster& roster);
  bool complete(const Job& job) const;
  void stay_in_touch(Job job);              // on watcher_: with hosts that come back too, and to hear of the end
  std::string missing(const Job& job, const AssemblyPlan& plan) const;

  Descriptor roster_, ended_, ending_end_;
  std::string path_, file_;
  mutable std::mutex mutex_;
  std::map<int, Host> hosts_;               // under the mutex, once watcher_ is there
  int number_ = 0;                          // of this host
  std::string meet_;
  std::string local_address_;
  std::int64_t started_ = 0;
  std::string master_;                      // "host:port"
  std::unique_ptr<Gossip> gossip_;            // goes before the roster
  std::thread watcher_;
  std::atomic<bool> ending_{false}, failed_{false};
};

}  // namespace tutti::tools
