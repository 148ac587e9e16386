// World: threads, environment, forks.
#include "tests/process/world.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace tutti::test {
namespace {

// All threads to their ends; a failure in one of them is a failure of the test.
void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "thread " << i << ": " << e.what();
      }
    });
  for (auto& thread : threads) thread.join();
}

// Before any test, so that no machine's profile decides what they see.
const int kNoProbe = ::setenv("TUTTI_PROBE", "0", 0);

}  // namespace

Environment::Environment(Settings settings) {
  for (const auto& [name, value] : settings) {
    const char* now = std::getenv(name.c_str());
    before_.emplace_back(name, now ? std::optional<std::string>(now) : std::nullopt);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}
Environment::~Environment() {
  for (auto at = before_.rbegin(); at != before_.rend(); ++at) {
    if (at->second) ::setenv(at->first.c_str(), at->second->c_str(), 1);
    else ::unsetenv(at->first.c_str());
  }
}

std::string fresh_address() {
  static std::atomic<int> next{0};
  return "@tutti-test-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
}

Communicator joined(int rank, int rank_count, const std::string& address) {
  Options options;
  options.job_key = "key of " + address;
  options.init_timeout = std::chrono::seconds(60);
  auto made = Communicator::create(rank, rank_count, address, options);
  if (!made) throw std::runtime_error(made.status().to_string());
  return std::move(made).value();
}

World::World(int rank_count, const Settings& settings) : World(rank_count, 0, fresh_address(), settings) {}

World::World(int rank_count, int first, const std::string& address, const Settings& settings)
    : ranks_(std::size_t(rank_count - first)) {
  const Environment environment(settings);
  std::atomic<int> made{0};
  in_threads(rank_count - first, [&](int i) {
    ranks_[std::size_t(i)] = joined(first + i, rank_count, address);
    ++made;
  });
  if (made != rank_count - first) throw std::runtime_error("the ranks did not meet");
}

void World::run(const std::function<void(Communicator&)>& body) {
  in_threads(int(ranks_.size()), [&](int i) { body(ranks_[std::size_t(i)]); });
}

Child::Child(const std::function<int()>& body) : pid_(::fork()) {
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  int code = 99;
  try {
    code = body();
  } catch (const std::exception& e) {
    ::write(2, e.what(), std::char_traits<char>::length(e.what())) < 0 ? ::_exit(98) : ::_exit(99);
  }
  ::_exit(code);
}

Child::~Child() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::signal(int number) const { ::kill(pid_, number); }

int Child::exit_code() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int in_own_pid_namespace(const std::function<int()>& body) {
  if (::unshare(CLONE_NEWPID) != 0) return kNoNamespace;
  const pid_t inside = ::fork();
  if (inside == 0) ::_exit(body());
  int status = 0;
  ::waitpid(inside, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 9;
}

}  // namespace tutti::test
