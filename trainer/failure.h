#pragma once
// How the trainer gives up: a Status, thrown where it arose and caught in main. Layers and sums have no use for half a step.
#include <stdexcept>
#include <string>
#include <tutti/status.h>
#include <utility>

namespace tutti::trainer {

class Failure : public std::runtime_error {
 public:
  explicit Failure(Status why) : std::runtime_error(why.to_string()), status_(std::move(why)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

inline void require(const Status& status) {
  if (!status) throw Failure(status);
}
template <class T>
T require(Result<T> result) {
  require(result.status());
  return std::move(*result);
}
[[noreturn]] inline void refuse(std::string text) { throw Failure(Status(Code::invalid_argument, std::move(text))); }

}  // namespace tutti::trainer
