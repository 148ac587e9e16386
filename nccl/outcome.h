#pragma once
// Outcome: how a call of NCCL's API ended: the code that it returns and the text that ncclGetLastError gives for it.
#include <tutti/status.h>

#include <exception>
#include <new>
#include <string>
#include <system_error>

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

// What `body` gives; of an exception what it says.
template <class Body>
Outcome caught(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return {ncclSystemError, "no memory is left"};
  } catch (const std::system_error& error) {
    return {ncclSystemError, error.what()};
  } catch (const std::exception& error) {
    return {ncclInternalError, error.what()};
  }
}

// The last failure of this thread, or where it has had none, of the process.
void remember(const Outcome& outcome);
std::string last_failure();

}  // namespace tutti::nccl
