#pragma once
// World: some ranks of one job, each a thread of this process, or all of them split between here and forked processes.
// Settings are in the environment while the ranks are made and gone afterwards.
// TUTTI_PROBE is 0 unless a test says otherwise.
#include <sys/types.h>

#include <tutti/tutti.h>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

using Settings = std::vector<std::pair<std::string, std::string>>;

// setenv for as long as it lives; then what was there before.
class Environment {
 public:
  explicit Environment(Settings settings);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

// An address that no other world of any process has.
std::string fresh_address();
// Throws std::runtime_error with the status's text.
Communicator joined(int rank, int rank_count, const std::string& address);

class World {
 public:
  // All ranks here. Throws when they cannot meet.
  explicit World(int rank_count, const Settings& settings = {});
  // The ranks `first` and later here; the others are made elsewhere with the same address.
  World(int rank_count, int first, const std::string& address, const Settings& settings = {});

  // One thread a rank runs `body`; returns when all have. An exception in a body is a test failure.
  void run(const std::function<void(Communicator&)>& body);
  Communicator& operator[](std::size_t i) { return ranks_[i]; }
  std::size_t size() const { return ranks_.size(); }

 private:
  std::vector<Communicator> ranks_;
};

// A forked process that runs `body` and exits with what it returns. Killed and reaped when this ends.
class Child {
 public:
  explicit Child(const std::function<int()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void signal(int number) const;
  int exit_code();  // waits; 128 + the signal that ended it

 private:
  pid_t pid_;
};

// Runs it in a process of a PID namespace of its own, from a Child. What it returns; kNoNamespace: that is not permitted here.
inline constexpr int kNoNamespace = 77;
int in_own_pid_namespace(const std::function<int()>& body);

}  // namespace tutti::test
