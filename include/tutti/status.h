#pragma once
// Status: how something ended. Result<T>: a value, or the Status that explains why there is none.
#include <optional>
#include <string>
#include <utility>

namespace tutti {

enum class Code {
  ok = 0,
  invalid_argument,   // an argument, a buffer or a setting is wrong; nothing was sent
  invalid_state,      // use after destroy or abort
  mismatch,           // ranks called different things, or run with different settings or versions
  peer_lost,          // the process of a rank has died or refuses connections
  timeout,            // no progress, or nobody answered, within the limit
  network,            // a system call on a connection failed
  out_of_resources,   // memory, descriptors or a user's cap
  unsupported,        // known, but not possible here; the text says why
  aborted,            // abort() or destroy() was called while the operation was pending
  internal,           // a bug of tutti
  damaged,            // data was changed on its way or in memory (see TUTTI_CHECK)
};
inline constexpr Code kLastCode = Code::damaged;

// Name as in the enum, e.g. "peer_lost".
const char* code_name(Code code);

// A value: copies and compares. `culprit` is the rank that caused a failure, -1 where no rank is to blame or known.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text, int culprit = -1) : code_(code), culprit_(culprit), text_(std::move(text)) {}

  bool ok() const { return code_ == Code::ok; }
  explicit operator bool() const { return ok(); }
  Code code() const { return code_; }
  int culprit() const { return culprit_; }
  const std::string& text() const { return text_; }
  // "peer_lost (rank 3): tcp to host2: connection reset by peer"; "ok" for success.
  std::string to_string() const;

  bool operator==(const Status&) const = default;

 private:
  Code code_ = Code::ok;
  int culprit_ = -1;
  std::string text_;
};

// Holds a T exactly when status().ok(). Reading value() of a failed Result ends the process with the status's text.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}              // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}      // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& value() & { return require(), *value_; }
  const T& value() const& { return require(), *value_; }
  T&& value() && { return require(), std::move(*value_); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void require() const;
  std::optional<T> value_;
  Status status_;
};

namespace detail {
[[noreturn]] void value_of_failed_result(const Status& status);
}

template <class T>
void Result<T>::require() const {
  if (!value_) detail::value_of_failed_result(status_);
}

}  // namespace tutti
