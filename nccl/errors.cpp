// What went wrong: names of results, the last failure, what an asynchronous communicator has come to.
#include "core/config.h"
#include "nccl/api.h"

using tutti::nccl::Outcome;

extern "C" {

const char* pncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "a call of CUDA failed (ncclGetLastError says which)";
    case ncclSystemError: return "a call of the operating system failed (ncclGetLastError says which)";
    case ncclInternalError: return "a bug of this library (ncclGetLastError says where)";
    case ncclInvalidArgument: return "an argument is not valid (ncclGetLastError says which)";
    case ncclInvalidUsage: return "not possible so, or not here (ncclGetLastError says why)";
    case ncclRemoteError: return "another rank ended, failed or cannot be reached (ncclGetLastError names it)";
    case ncclInProgress: return "still in progress";
    default: return "no result of this library";
  }
}

const char* pncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  text.clear();
  if (const auto known = tutti::nccl::find(comm)) text = known->state().text;
  if (text.empty()) text = tutti::nccl::last_failure();
  return text.c_str();
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return tutti::nccl::answer("ncclCommGetAsyncError",
                             tutti::nccl::with(comm, [&](const std::shared_ptr<ncclComm>& of) -> Outcome {
                               if (!asyncError)
                                 return {ncclInvalidArgument, "asyncError is NULL, wanted where to put it"};
                               *asyncError = of->state().code;
                               return {};
                             }));
}

// Reads the variables again, and with them how much is told.
void pncclResetDebugInit() { (void)tutti::read_settings(); }

TUTTI_NCCL_TWIN(ncclGetErrorString);
TUTTI_NCCL_TWIN(ncclGetLastError);
TUTTI_NCCL_TWIN(ncclCommGetAsyncError);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TUTTI_NCCL_TWIN(ncclResetDebugInit);
// NVIDIA's library has this third name of it.
void ncclResetDebugInitInternal() { pncclResetDebugInit(); }
#pragma GCC diagnostic pop

}  // extern "C"
