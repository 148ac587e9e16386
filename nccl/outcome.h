#pragma once
// Outcome: how a call of NCCL's API ended: the code that it returns and the text that ncclGetLastError gives for it.
#include <tutti/status.h>

#include <string>

#include "nccl/nccl.h"

namespace tutti::nccl {

struct [[nodiscard]] Outcome {
  ncclResult_t code = ncclSuccess;
  std::string text;
  bool ok() const { return code == ncclSuccess; }
  bool failed() const { return code != ncclSuccess && code != ncclInProgress; }
};

// What NCCL's programs expect for it. The text names the culprit.
Outcome outcome_of(const Status& status);
// "call: the outcome's text"
Outcome in(const char* call, Outcome outcome);

// The last failure of this thread, or where it has had none, of the process.
void remember(const Outcome& outcome);
std::string last_failure();

}  // namespace tutti::nccl
