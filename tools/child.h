#pragma once
// One started process: its pid, its output, and how it ended. It decides nothing: when to signal and what an end means
// is the supervisor's business.
#include <string>
#include <sys/types.h>
#include <tutti/status.h>
#include <vector>
#include "tools/line_output.h"
#include "topology/graph.h"

namespace tutti::tools {

enum class Input { none, inherited, control };   // control: a pipe of ours, see Child::control

// What to start. A value.
struct Command {
  std::string label;                       // "rank 3", "host b"
  std::string prefix;                      // of each line of its output
  std::string log;                         // file that gets its output too, as it comes; "": none
  std::vector<std::string> arguments;      // [0]: a path, or a name without a slash that execvp looks up
  std::vector<std::string> environment;    // "NAME=value", all of it
  Input input = Input::none;
  topology::CpuSet cpus;                   // where it may run; empty: wherever we may
};

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }
  int get() const { return fd_; }
  void close();

 private:
  int release();
  int fd_;
};

struct Child {
  std::string label;
  pid_t pid = -1;
  bool alive = false;
  int wait_status = 0;                     // valid when not alive
  long peak_kilobytes = 0;                 // likewise
  bool stopped_by_us = false;              // we had signalled it to end before it did
  Descriptor exec_failure;                 // an errno, or its end when exec has succeeded; for confirm()
  Descriptor out, err, control;            // control: written by us; closing it asks the process to end
  // Its own process group has the same number. Sends to the group when `group`, else to the process alone.
  void signal(int number, bool group) const;
};

// Forks and executes in a process group of its own. The process dies with the calling thread (PR_SET_PDEATHSIG). Call
// from a process with one thread. out_of_resources (fork, pipe).
Result<Child> start(const Command& command);

// Waits until the program has begun: once for each child, after all have been forked, so that they begin side by side.
// invalid_argument (exec failed; names program and errno).
Status confirm(Child& child, const Command& command);

// Of execvp: 127 when nothing was found, 126 when it cannot be executed, 0 when it can; `why` then says so with a hint.
int find_program(const std::string& name, const std::string& search_path, std::string& why);

}  // namespace tutti::tools
