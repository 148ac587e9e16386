#include <tutti/status.h>

#include <cstdio>
#include <cstdlib>

#include "core/check.h"
#include "core/error_table.h"

namespace tutti {

const char* code_name(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid_argument";
    case Code::invalid_state: return "invalid_state";
    case Code::mismatch: return "mismatch";
    case Code::peer_lost: return "peer_lost";
    case Code::timeout: return "timeout";
    case Code::network: return "network";
    case Code::out_of_resources: return "out_of_resources";
    case Code::unsupported: return "unsupported";
    case Code::aborted: return "aborted";
    case Code::internal: return "internal";
    case Code::damaged: return "damaged";
  }
  return "unknown";
}

std::string Status::to_string() const {
  std::string out = code_name(code_);
  if (culprit_ >= 0) out += " (rank " + std::to_string(culprit_) + ")";
  if (!text_.empty()) out += ": " + text_;
  return ok() ? out : with_code(std::move(out), error_row(code_, text_));
}

namespace detail {

void value_of_failed_result(const Status& status) {
  std::fprintf(stderr, "tutti: value of a failed result was read: %s\n", status.to_string().c_str());
  std::abort();
}

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "tutti: internal error, please report: %s:%d: %s [TUTTI-E821]\n", file, line, expression);
  std::abort();
}

}  // namespace detail
}  // namespace tutti
