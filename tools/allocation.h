#pragma once
// Allocation: which hosts a scheduler has given to this step, where it has started one `tutti run` on each: `srun tutti
// run PROGRAM` needs no flags for hosts. A value read from the environment; it asks nobody.
#include <optional>
#include <string>
#include <tutti/status.h>
#include <vector>
#include "core/config.h"

namespace tutti::tools {

struct Allocation {
  std::vector<std::string> hosts;      // by number
  int host_number = 0;
  int port = 0;                        // the same for all of the step
};

// Slurm's names, of a step that srun has started. Empty: there is none, or of one host. invalid_argument: names
// variable and value, or that several `tutti run` were started on a host.
Result<std::optional<Allocation>> read_allocation(const ReadVariable& read);

}  // namespace tutti::tools
