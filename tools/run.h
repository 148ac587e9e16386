#pragma once
// `tutti run`: starts the ranks of a job, on this host or on several, and stays until the last of their processes is gone.
// See docs/launching.md. Flags that contradict each other or would have no effect are refused.
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <tutti/status.h>
#include <vector>
#include "tools/job.h"

namespace tutti::tools {

struct RunFlags {
  std::string local_ranks = "1";               // a number, or auto
  std::optional<int> host_count, host_rank;    // --nnodes, --node-rank
  std::optional<std::string> master_address;
  std::optional<int> master_port;
  std::vector<std::string> hosts;
  double kill_after_seconds = 5;
  std::string bind = "auto";                   // auto, none, numa, core
  bool no_prefix = false;
  bool table = false;
  bool control = false;                        // started by another `tutti run`: orders come on standard input
  std::vector<std::string> program;            // with its arguments
};

// `program`: what program_begin() has cut off; read when the command line is parsed.
void add_run(CLI::App& app, const std::vector<std::string>& program, int& status);

// Where in argv PROGRAM (or the "--" before it) begins behind `run` and its flags; argc when there is none. CLI11 must not see
// what follows: it would take our flags from it, and take lists in brackets apart.
int program_begin(const CLI::App& app, int argc, const char* const* argv);

// Everything in `flags` alone that is wrong: invalid_argument, which names the flag.
Status check_flags(const RunFlags& flags);

// `cores`: of this host, for auto. The port is still 0 where the user gave none.
Result<Job> job_from(const RunFlags& flags, int cores);

}  // namespace tutti::tools
