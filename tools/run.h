#pragma once
// `tutti run`: starts the ranks of a job, on this host or on several, and stays until the last of their processes is
// gone. See docs/launching.md. Flags that contradict each other or would have no effect are refused.
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <tutti/status.h>
#include <vector>
#include "tools/job.h"

namespace tutti::tools {

struct RunFlags {
  std::string local_ranks = "1";               // a number, auto, or gpu
  int gpus_per_rank = 0;                       // looked for before anything starts
  std::optional<int> host_count, host_rank;    // --nnodes, --node-rank
  std::optional<int> least_hosts;              // --nnodes 2:4
  std::optional<std::string> master_address;
  std::optional<int> master_port;
  std::string endpoint, backend;               // torchrun's --rdzv-endpoint, --rdzv-backend
  std::string rendezvous;                      // a file; "": at master_address
  std::string local_address;
  std::vector<std::string> hosts, host_names;
  std::string log_folder;
  bool module = false;                         // -m: PROGRAM is a module of Python's
  double kill_after_seconds = 5;
  std::optional<int> max_restarts;             // of the ranks of this host
  std::optional<int> min_ranks;                // fewer stop the job; none: all
  std::string bind = "auto";                   // auto, none, numa, core
  bool no_prefix = false;
  bool table = false;
  bool control = false;                        // started by another `tutti run`: orders come on standard input
  std::vector<std::string> program;            // with its arguments
};

// `program`: what program_begin() has cut off; read when the command line is parsed.
void add_run(CLI::App& app, const std::vector<std::string>& program, int& status);

// Where in argv PROGRAM (or the "--" before it) begins behind `run` and its flags; argc when there is none. CLI11 must
// not see what follows: it would take our flags from it, and take lists in brackets apart.
int program_begin(const CLI::App& app, int argc, const char* const* argv);

// torchrun's spellings of what we call otherwise, made ours. invalid_argument, which names the flag.
Status translate(RunFlags& flags);

// Everything in `flags` alone that is wrong: invalid_argument, which names the flag.
Status check_flags(const RunFlags& flags);

// `cores`, `gpus`: of this host, for auto and gpu. The port is still 0 where the user gave none.
Result<Job> job_from(const RunFlags& flags, int cores, int gpus = 0);

}  // namespace tutti::tools
