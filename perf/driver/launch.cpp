#include "perf/driver/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGraceAfterFailure{3}, kGraceAfterSuccess{10};

std::string random_hex(int words) {
  std::random_device device;
  std::string text;
  for (int i = 0; i < words; ++i) text += fmt::format("{:08x}", device());
  return text;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Owns the members from fork to wait. All of it happens on one thread, since PR_SET_PDEATHSIG watches the thread that
// forked.
class Members {
 public:
  Members(const Options& options, std::span<char* const> args, const Environment& environment);
  ~Members();
  int run();

 private:
  pid_t start(int process);
  void poll_once();
  void take_signals();
  void take_messages();
  void reap();
  void kill_all(int signal);
  void fail(int status);
  int finish();

  const Options& options_;
  std::vector<std::string> args_;
  Environment environment_;
  std::map<pid_t, int> running_;  // process -> first rank
  int pipe_[2] = {-1, -1};
  int signals_ = -1;
  sigset_t watched_{}, before_{};
  int interrupted_ = 0;  // the signal that ends all
  int status_ = kExitOk;
  std::string messages_, deaths_;
  Clock::time_point deadline_ = Clock::time_point::max();
};

Members::Members(const Options& options, std::span<char* const> args, const Environment& environment)
    : options_(options), args_(args.begin(), args.end()), environment_(environment) {
  sigemptyset(&watched_);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&watched_, signal);
  sigprocmask(SIG_BLOCK, &watched_, &before_);
  environment_["TUTTI_RANK_COUNT"] = std::to_string(options.processes * options.threads);
  environment_["TUTTI_ADDRESS"] = make_address();
  environment_["TUTTI_JOB_KEY"] = make_key();
}

Members::~Members() {
  for (const int fd : {pipe_[0], pipe_[1], signals_})
    if (fd >= 0) close(fd);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

pid_t Members::start(int process) {
  environment_["TUTTI_RANK"] = std::to_string(process * options_.threads);
  environment_["TUTTI_LOCAL_RANK"] = environment_["TUTTI_RANK"];
  std::vector<std::string> names_and_values, args = args_;
  for (const auto& [name, value] : environment_) names_and_values.push_back(name + "=" + value);
  args.push_back(fmt::format("--member={}", pipe_[1]));
  const std::vector<char*> argv = pointers(args), envp = pointers(names_and_values);
  const pid_t parent = getpid(), child = fork();
  if (child != 0) return child;
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == parent) execve("/proc/self/exe", argv.data(), envp.data());
  _exit(127);
}

void Members::kill_all(int signal) {
  for (const auto& [process, rank] : running_) kill(process, signal);
}

void Members::fail(int status) {
  if (status_ == kExitOk) {
    status_ = status;
    deadline_ = Clock::now() + kGraceAfterFailure;
  }
}

void Members::take_signals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == ssize_t(sizeof info)) {
    if (info.ssi_signo == SIGCHLD || interrupted_) continue;
    interrupted_ = int(info.ssi_signo);
    kill_all(SIGKILL);
  }
}

void Members::take_messages() {
  char text[4096];
  for (ssize_t got; (got = read(pipe_[0], text, sizeof text)) > 0;) messages_.append(text, std::size_t(got));
}

void Members::reap() {
  int status = 0;
  for (pid_t process; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto found = running_.find(process);
    if (found == running_.end()) continue;
    const int rank = found->second;
    running_.erase(found);
    if (interrupted_) continue;
    const bool expected_kill = WIFSIGNALED(status) && Clock::now() >= deadline_;
    if (WIFSIGNALED(status) && !expected_kill)
      deaths_ += fmt::format("{} was ended by signal {} ({})\n", rank, WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WIFSIGNALED(status) || WEXITSTATUS(status) == 127)
      fail(kExitFailed);
    else if (WEXITSTATUS(status) != 0)
      fail(WEXITSTATUS(status));
    else if (deadline_ == Clock::time_point::max())
      deadline_ = Clock::now() + kGraceAfterSuccess;
  }
}

void Members::poll_once() {
  int timeout_ms = -1;
  if (deadline_ != Clock::time_point::max()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    timeout_ms = left.count() > 0 ? int(left.count()) + 1 : 100;
  }
  pollfd fds[2] = {{signals_, POLLIN, 0}, {pipe_[0], POLLIN, 0}};
  poll(fds, 2, timeout_ms);
  take_signals();
  take_messages();
  reap();
  if (Clock::now() < deadline_) return;
  for (const auto& [process, rank] : running_)
    if (status_ == kExitOk) deaths_ += fmt::format("{} did not end after the others had; it was killed\n", rank);
  if (status_ == kExitOk && !running_.empty()) status_ = kExitFailed;
  kill_all(SIGKILL);
}

int Members::finish() {
  take_messages();
  if (interrupted_) {
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    signal(interrupted_, SIG_DFL);
    raise(interrupted_);
    return kExitFailed;
  }
  std::string text = merged_failures(messages_ + deaths_);
  if (text.empty() && status_ == kExitFailed)
    text = Status(Code::peer_lost, "a rank failed without a message").to_string() + "\n";
  std::fputs(text.c_str(), stderr);
  return status_;
}

int Members::run() {
  signals_ = signalfd(-1, &watched_, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signals_ < 0 || pipe2(pipe_, O_NONBLOCK) != 0) {
    fmt::print(
        stderr, "{}\n",
        Status(Code::out_of_resources, fmt::format("cannot watch the ranks: {}", std::strerror(errno))).to_string());
    return kExitFailed;
  }
  fcntl(pipe_[0], F_SETFD, FD_CLOEXEC);
  for (int process = 0; process < options_.processes; ++process) {
    const pid_t started = start(process);
    if (started > 0) {
      running_[started] = process * options_.threads;
      continue;
    }
    deaths_ += fmt::format("{} could not be started: {}\n", process * options_.threads, std::strerror(errno));
    status_ = kExitFailed;
    deadline_ = Clock::now();
    break;
  }
  while (!running_.empty()) poll_once();
  return finish();
}

}  // namespace

std::string make_address() { return fmt::format("@tutti-perf-{}", random_hex(4)); }
std::string make_key() { return random_hex(8); }

int run_members(const Options& options, std::span<char* const> args, const Environment& environment) {
  return Members(options, args, environment).run();
}

void tell_failure(int fd, int rank, const std::string& text) {
  std::string line = fmt::format("{} {}", rank, text.substr(0, 4000));
  for (char& c : line) c = c == '\n' ? ' ' : c;
  line += '\n';
  const ssize_t written = write(fd, line.data(), line.size());  // at most PIPE_BUF bytes: never mixed with another's
  (void)written;
}

std::string merged_failures(const std::string& messages) {
  std::vector<std::pair<std::string, std::vector<int>>> by_text;
  for (std::size_t at = 0; at < messages.size();) {
    const std::size_t end = std::min(messages.find('\n', at), messages.size());
    const std::string line = messages.substr(at, end - at);
    at = end + 1;
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const int rank = std::stoi(line);
    const std::string text = line.substr(space + 1);
    auto known = std::find_if(by_text.begin(), by_text.end(), [&](const auto& entry) { return entry.first == text; });
    if (known == by_text.end()) known = by_text.insert(by_text.end(), {text, {}});
    known->second.push_back(rank);
  }
  std::string lines;
  for (auto& [text, ranks] : by_text) {
    std::sort(ranks.begin(), ranks.end());
    lines += fmt::format("{} {}: {}\n", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "), text);
  }
  return lines;
}

}  // namespace tutti::perf
