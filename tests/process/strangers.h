#pragma once
// Processes that are no ranks: at the port where ranks meet, and at the doors of a running job.
#include <atomic>
#include <string>
#include <thread>

namespace tutti::test {

// A port of 127.0.0.1 where nobody listens, as far as can be known.
int unused_port();

// Listens at a port of 127.0.0.1 and answers whoever comes.
class Listening {
 public:
  enum class Answers { nothing, http, other_version };
  explicit Listening(Answers answers = Answers::nothing);
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  std::string address() const;

 private:
  int fd_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// Connects so many times, one after another, and says something that no rank would: a scanner's nothing, a browser's
// request, noise, the beginning of a handshake. From a thread; the destructor waits for it.
class Strangers {
 public:
  Strangers(const std::string& address, int count);
  ~Strangers() { thread_.join(); }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;
  int connected() const { return connected_; }
  bool over() const { return over_; }

 private:
  std::atomic<int> connected_{0};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace tutti::test
