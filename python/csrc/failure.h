#pragma once
// Failure: a Status as the exception that Python sees: torch_tutti.Error, a RuntimeError with `code` and `culprit`.
#include <tutti/status.h>

#include <exception>
#include <stdexcept>
#include <string>

namespace tutti_torch {

class Failure : public std::runtime_error {
 public:
  explicit Failure(tutti::Status why) : std::runtime_error(why.to_string()), status(std::move(why)) {}
  const tutti::Status status;
};

// Throws unless ok.
inline void check(const tutti::Status& status) {
  if (!status.ok()) throw Failure(status);
}

// For calls that are refused before anything is sent.
[[noreturn]] inline void refuse(const std::string& why) { throw Failure(tutti::Status(tutti::Code::invalid_argument, why)); }
[[noreturn]] inline void unsupported(const std::string& why) { throw Failure(tutti::Status(tutti::Code::unsupported, why)); }

}  // namespace tutti_torch
