#include "nccl/outcome.h"

#include <fmt/format.h>

#include <mutex>

#include "core/error_table.h"
#include "core/fork.h"
#include "core/log.h"

namespace tutti::nccl {
namespace {

struct Last {
  std::mutex mutex;
  std::string text;
};
Last& last() {
  static PerProcess<Last> kept;
  return *kept;
}

thread_local std::string last_of_this_thread;

ncclResult_t code_of(Code code) {
  switch (code) {
    case Code::ok: return ncclSuccess;
    case Code::invalid_argument: return ncclInvalidArgument;
    case Code::invalid_state:
    case Code::mismatch:
    case Code::unsupported: return ncclInvalidUsage;
    case Code::peer_lost:
    case Code::timeout:
    case Code::network:
    case Code::aborted: return ncclRemoteError;
    case Code::out_of_resources:
    case Code::damaged: return ncclSystemError;
    case Code::internal: break;
  }
  return ncclInternalError;
}

// For the error table: of an outcome that comes from no Status.
Code kind_of(ncclResult_t code) {
  switch (code) {
    case ncclInvalidArgument:
    case ncclInvalidUsage: return Code::invalid_argument;
    case ncclSystemError: return Code::out_of_resources;
    case ncclUnhandledCudaError: return Code::unsupported;
    case ncclRemoteError: return Code::peer_lost;
    default: return Code::internal;
  }
}

}  // namespace

Outcome outcome_of(const Status& status) {
  if (status.ok()) return {};
  return {code_of(status.code()), status.to_string()};
}

Outcome in(const char* call, Outcome outcome) {
  if (outcome.failed()) outcome.text = fmt::format("{}: {}", call, outcome.text);
  return outcome;
}

void remember(const Outcome& outcome) {
  if (!outcome.failed()) return;
  const std::string text = with_code(outcome.text, error_row(kind_of(outcome.code), outcome.text));
  log::warning("{}", text);
  last_of_this_thread = text;
  const std::lock_guard held(last().mutex);
  last().text = text;
}

std::string last_failure() {
  if (!last_of_this_thread.empty()) return last_of_this_thread;
  const std::lock_guard held(last().mutex);
  return last().text;
}

}  // namespace tutti::nccl
