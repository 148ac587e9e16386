#pragma once
// Trial: a small all-reduce by the library itself. Bounded by its own limits; a failure is in the value.
#include <tutti/communicator.h>

#include "tools/doctor/examination.h"

namespace tutti::tools::doctor {

// Two threads of this process as ranks, over "shm" or "tcp". Sets TUTTI_TRANSPORT and TUTTI_PROBE of this process for
// as long as it runs: no other thread may read or write the environment meanwhile.
Trial try_locally(const std::string& transport);
// As one rank of a job that meets by `id`; all ranks must call it. The value is of this rank.
Trial try_together(int rank, int rank_count, const UniqueId& id, const std::string& job_key);

}  // namespace tutti::tools::doctor
