#pragma once
// Who am I, how many are we, and where do we meet: read from what launchers leave in the environment. Knows names and
// rules of launchers; looks nothing up, opens nothing. The rules are for users too: docs/launching.md.
//
// The first that is there decides rank and count:
//   TUTTI_RANK; torchrun (RANK); Open MPI (OMPI_COMM_WORLD_RANK); MPICH and other users of Hydra (PMI_RANK); PMIx
//   (PMIX_RANK); Slurm (SLURM_PROCID, of a step that srun started). Without any: rank 0 of 1.
// And the first that is there decides the address:
//   TUTTI_ADDRESS; MASTER_ADDR with MASTER_PORT; Slurm's first host; for mpirun on one host an abstract Unix socket
//   named after the launcher; for Open MPI on several hosts the host of mpirun, where rank 0 must be. Else an error
//   that asks for TUTTI_ADDRESS. Ports that are not given are 20000 + hash mod 10000 (Slurm: of job and step; Open MPI:
//   of its namespace).
#include <tutti/status.h>
#include <string>
#include <vector>

#include "core/config.h"

namespace tutti::comm {

struct Launch {
  std::string launcher = "none";  // "tutti", "torchrun", "openmpi", "mpich", "pmix", "slurm"
  int rank = 0, rank_count = 1;
  int local_rank = -1, local_rank_count = -1;  // -1: not said
  std::vector<std::string> addresses;          // where to meet, any of them; empty for one rank. "host:port" or "@name"
  int ports = 1;    // the meeting point takes the first free one of so many from the address's port on
  std::string job;  // what the launcher calls the job; not secret; "" when unknown
};

// A process above this one.
struct Ancestor {
  int pid = 0;
  std::string program;  // as in /proc/PID/comm: at most 15 characters
  std::string started;  // with the pid, unique on this host
};
// Nearest first.
std::vector<Ancestor> read_ancestors();

// invalid_argument: names variable, value and what was wanted.
Result<Launch> read_launch(const ReadVariable& read, const std::vector<Ancestor>& ancestors);
// Of this process.
Result<Launch> read_launch();

}  // namespace tutti::comm
