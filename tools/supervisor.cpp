// The poll loop of `tutti run`, see supervisor.h.
//
// Stopping has one way: SIGTERM to each process's group (or the end of its control stream), `kill_after` later SIGKILL
// to everything below us. We are a subreaper, so "below us" includes what lost its parent; waitpid says when nothing is
// left.
//
// Control stream: lines "signal NUMBER". Its end means: stop.
#include "tools/supervisor.h"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tools/descendants.h"

namespace tutti::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kReadBytes = 64 * 1024;      // a pipe's usual capacity
constexpr std::chrono::milliseconds kKillAgain{50};   // a process may have forked while we listed them

bool failed(int wait_status) { return wait_status != 0; }

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options) : options_(options) {}
  Status begin();
  Status start_all(std::span<const Command> commands);
  void run();
  std::span<const Child> children() const { return outcome_.children; }
  Outcome take() { return std::move(outcome_); }

 private:
  struct Source { std::size_t child; bool is_error; };      // what a pollfd behind the fixed ones belongs to

  Status fork_all(std::span<const Command> commands);
  void step();
  void reap();
  void note_end(std::size_t index, int wait_status, long peak_kilobytes);
  void answer_failures(std::span<const std::size_t> ended);
  bool restart(std::size_t index);
  void choose_first_failure(std::span<const std::size_t> ended);
  void judge_left_out();
  void pass_on(int signal);
  void stop();
  void end_leftovers();
  void kill_when_due();
  int poll_limit() const;
  void read_signals();
  void read_lifeline();
  void read_control();
  void read_ended();
  void obey(std::string_view order);
  void read_output(const Source& source);
  void drain();
  void drain(std::size_t child);
  bool any_alive() const;

  SupervisorOptions options_;
  std::vector<Command> commands_;
  Descriptor signals_;
  std::vector<LineOutput> out_, err_;
  std::vector<Descriptor> logs_;
  Outcome outcome_;
  std::vector<char> bytes_ = std::vector<char>(kReadBytes);
  std::string orders_;                      // a partial line of the control stream
  bool nothing_left_ = false;
  bool stopping_ = false, killing_ = false, leftovers_told_ = false;
  Clock::time_point kill_at_{};
};

Status Supervisor::begin() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int number : {SIGCHLD, SIGPIPE, SIGTTOU}) sigaddset(&mask, number);
  for (const int number : kPassedSignals) {
    struct sigaction now{};
    sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&mask, number);      // nohup's wish is kept
  }
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  sigdelset(&mask, SIGPIPE);
  sigdelset(&mask, SIGTTOU);
  std::signal(SIGCHLD, SIG_DFL);            // ignored, children would vanish without a status
  signals_ = Descriptor(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.get() < 0) return Status(Code::out_of_resources, fmt::format("signalfd: {}", std::strerror(errno)));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  outcome_.memory_before = memory_events();
  return {};
}

Status Supervisor::start_all(std::span<const Command> commands) {
  Status status = fork_all(commands);
  for (std::size_t i = 0; i < outcome_.children.size() && status; ++i)
    status = confirm(outcome_.children[i], commands[i]);
  if (status) return status;
  options_.kill_after = std::chrono::milliseconds(0);
  stop();
  run();
  return status;
}

Status Supervisor::fork_all(std::span<const Command> commands) {
  commands_.assign(commands.begin(), commands.end());
  outcome_.last_lines.resize(commands.size());
  for (const Command& command : commands) {
    logs_.emplace_back(
        command.log.empty() ? -1 : open(command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (command.log.empty() || logs_.back().get() >= 0) continue;
    return Status(Code::invalid_argument,
                  fmt::format("cannot write the log {} of {}: {}", command.log, command.label, std::strerror(errno)));
  }
  for (std::size_t i = 0; i < commands.size(); ++i) {
    auto child = start(commands[i]);
    if (!child.ok()) return child.status();
    for (const int fd : {child->out.get(), child->err.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
    outcome_.children.push_back(std::move(child).value());
    out_.emplace_back(STDOUT_FILENO, commands[i].prefix, outcome_.last_lines[i]);
    err_.emplace_back(STDERR_FILENO, commands[i].prefix, outcome_.last_lines[i]);
  }
  return {};
}

void Supervisor::run() {
  while (!nothing_left_) {
    step();
    reap();
    if (!any_alive()) end_leftovers();
    kill_when_due();
  }
  drain();
  judge_left_out();
}

void Supervisor::step() {
  std::vector<pollfd> polled{{signals_.get(), POLLIN, 0},
                             {options_.lifeline, POLLIN, 0},
                             {options_.control, POLLIN, 0},
                             {options_.ended, POLLIN, 0}};
  const std::size_t fixed = polled.size();
  std::vector<Source> sources;
  for (std::size_t i = 0; i < outcome_.children.size(); ++i) {
    for (const bool is_error : {false, true}) {
      const int fd = (is_error ? outcome_.children[i].err : outcome_.children[i].out).get();
      if (fd < 0) continue;
      polled.push_back({fd, POLLIN, 0});
      sources.push_back({i, is_error});
    }
  }
  if (poll(polled.data(), polled.size(), poll_limit()) <= 0) return;
  if (polled[0].revents) read_signals();
  if (polled[1].revents) read_lifeline();
  if (polled[2].revents) read_control();
  if (polled[3].revents) read_ended();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (polled[i + fixed].revents) read_output(sources[i]);
  }
}

// Also of adopted processes, whose status nobody asks for.
void Supervisor::reap() {
  std::vector<std::size_t> ended;
  for (;;) {
    int wait_status = 0;
    rusage usage{};
    const pid_t pid = wait4(-1, &wait_status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) nothing_left_ = true;            // ECHILD
    if (pid <= 0) break;
    auto& children = outcome_.children;
    const auto child =
        std::find_if(children.begin(), children.end(), [&](const Child& c) { return c.alive && c.pid == pid; });
    if (child == children.end()) continue;
    note_end(static_cast<std::size_t>(child - children.begin()), wait_status, usage.ru_maxrss);
    ended.push_back(static_cast<std::size_t>(child - children.begin()));
  }
  answer_failures(ended);
}

void Supervisor::answer_failures(std::span<const std::size_t> ended) {
  std::vector<std::size_t> decisive;
  for (const std::size_t index : ended) {
    const Child& child = outcome_.children[index];
    if (stopping_ || !failed(child.wait_status)) continue;
    const After after =
        options_.after_failure && outcome_.passed_signal == 0 ? options_.after_failure(child, index) : After::stop;
    if (after == After::restart && restart(index)) continue;
    if (after == After::leave) outcome_.left_out.push_back(index);
    else decisive.push_back(index);
  }
  choose_first_failure(decisive);
}

// With all that the old process has left behind in its group gone. False: it cannot be started any more.
bool Supervisor::restart(std::size_t index) {
  Child& child = outcome_.children[index];
  kill(-child.pid, SIGKILL);
  drain(index);
  auto next = start(commands_[index]);
  if (!next.ok() || !confirm(*next, commands_[index])) return false;
  for (const int fd : {next->out.get(), next->err.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  child = std::move(next).value();
  outcome_.last_lines[index] = LastLines();
  ++outcome_.restarts;
  nothing_left_ = false;
  return true;
}

// Nobody has come through without them: the first of them is what the job failed of.
void Supervisor::judge_left_out() {
  const auto& children = outcome_.children;
  if (outcome_.first_failure || outcome_.left_out.empty() || !outcome_.stop_reason.empty()) return;
  if (std::any_of(children.begin(), children.end(), [](const Child& child) { return child.wait_status == 0; })) return;
  outcome_.first_failure = outcome_.left_out.front();
}

void Supervisor::note_end(std::size_t index, int wait_status, long peak_kilobytes) {
  Child& child = outcome_.children[index];
  child.alive = false;
  child.wait_status = wait_status;
  child.peak_kilobytes = peak_kilobytes;
  child.stopped_by_us = stopping_;
  if (stopping_) ++(killing_ ? outcome_.killed : outcome_.terminated);
}

// Of several that were found ended at once, a signal's victim is the likelier cause than one that gave up by itself.
void Supervisor::choose_first_failure(std::span<const std::size_t> ended) {
  if (stopping_) return;
  for (const std::size_t index : ended) {
    const int status = outcome_.children[index].wait_status;
    if (!failed(status)) continue;
    const auto& first = outcome_.first_failure;
    if (!first || (WIFSIGNALED(status) && !WIFSIGNALED(outcome_.children[*first].wait_status)))
      outcome_.first_failure = index;
  }
  if (!outcome_.first_failure) return;
  outcome_.memory_after = memory_events();
  stop();
}

void Supervisor::pass_on(int signal) {
  const bool asks_to_end = signal != SIGUSR1;
  if (asks_to_end && outcome_.passed_signal != 0) {      // the second: now
    if (!stopping_) stop();
    kill_at_ = Clock::now();
    return;
  }
  if (asks_to_end && !stopping_) outcome_.passed_signal = signal;
  for (const Child& child : outcome_.children) {
    if (child.control.get() >= 0) {
      write_all(child.control.get(), fmt::format("signal {}\n", signal));
    } else {
      child.signal(signal, asks_to_end);     // SIGUSR1 would end a helper process that does not expect it
    }
  }
}

void Supervisor::stop() {
  stopping_ = true;
  kill_at_ = Clock::now() + options_.kill_after;
  for (Child& child : outcome_.children) {
    if (child.control.get() >= 0) {
      child.control.close();
    } else {
      child.signal(SIGTERM, true);
    }
  }
}

// What the processes have left behind is asked to end, once; kill_when_due() does not ask.
void Supervisor::end_leftovers() {
  if (leftovers_told_) return;
  leftovers_told_ = true;
  if (!stopping_) stop();
  signal_descendants(SIGTERM);
}

void Supervisor::kill_when_due() {
  if (!stopping_ || nothing_left_ || Clock::now() < kill_at_) return;
  killing_ = true;
  signal_descendants(SIGKILL);
  kill_at_ = Clock::now() + kKillAgain;
}

// Milliseconds until kill_at_, rounded up.
int Supervisor::poll_limit() const {
  if (!stopping_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(kill_at_ - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) pass_on(static_cast<int>(info.ssi_signo));
  }
}

void Supervisor::read_lifeline() {      // nobody writes there: readable means ended
  options_.lifeline = -1;
  if (stopping_) return;
  outcome_.stop_reason = "the launcher itself was killed";
  stop();
}

void Supervisor::read_ended() {
  char text[2048];
  const ssize_t count = read(options_.ended, text, sizeof text);
  options_.ended = -1;
  if (stopping_ || count <= 0) return;
  outcome_.stop_reason.assign(text, static_cast<std::size_t>(count));
  stop();
}

void Supervisor::read_control() {
  char bytes[256];
  const ssize_t count = read(options_.control, bytes, sizeof bytes);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) {
    options_.control = -1;
    if (stopping_) return;
    outcome_.stop_reason = "the launcher that started this host has ended or told it to stop";
    stop();
    return;
  }
  orders_.append(bytes, static_cast<std::size_t>(count));
  for (auto end = orders_.find('\n'); end != std::string::npos; end = orders_.find('\n')) {
    obey(std::string_view(orders_).substr(0, end));
    orders_.erase(0, end + 1);
  }
}

void Supervisor::obey(std::string_view order) {
  constexpr std::string_view kSignal = "signal ";
  int number = 0;
  if (order.substr(0, kSignal.size()) != kSignal) return;
  std::from_chars(order.data() + kSignal.size(), order.data() + order.size(), number);
  if (std::find(kPassedSignals.begin(), kPassedSignals.end(), number) != kPassedSignals.end()) pass_on(number);
}

void Supervisor::read_output(const Source& source) {
  Descriptor& from = source.is_error ? outcome_.children[source.child].err : outcome_.children[source.child].out;
  LineOutput& to = source.is_error ? err_[source.child] : out_[source.child];
  const ssize_t count = read(from.get(), bytes_.data(), bytes_.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count > 0 && logs_[source.child].get() >= 0)
    write_all(logs_[source.child].get(), {bytes_.data(), static_cast<std::size_t>(count)});
  // When nobody reads our output any more, closing lets the process know as if it had written there itself.
  const bool go_on = count > 0 ? to.feed({bytes_.data(), static_cast<std::size_t>(count)}) : (to.finish(), false);
  if (!go_on) from.close();
}

// All writers are gone, or have passed the pipe to a process that is not below
// us: takes what is there, waits for nothing.
void Supervisor::drain() {
  for (std::size_t i = 0; i < outcome_.children.size(); ++i) drain(i);
}

void Supervisor::drain(std::size_t child) {
  for (const bool is_error : {false, true}) {
    const Descriptor& from = is_error ? outcome_.children[child].err : outcome_.children[child].out;
    pollfd ready{from.get(), POLLIN, 0};
    while (from.get() >= 0 && poll(&ready, 1, 0) > 0) read_output({child, is_error});
    if (from.get() >= 0) (is_error ? err_ : out_)[child].finish();
  }
}

bool Supervisor::any_alive() const {
  return std::any_of(outcome_.children.begin(), outcome_.children.end(),
                     [](const Child& child) { return child.alive; });
}

}  // namespace

int Outcome::exit_status() const {
  if (first_failure) {
    const int status = children[*first_failure].wait_status;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return stop_reason.empty() ? 0 : 128 + SIGTERM;
}

Result<Outcome> supervise(std::span<const Command> commands, const SupervisorOptions& options,
                          const std::function<void(std::span<const Child>)>& started) {
  Supervisor supervisor(options);
  if (Status status = supervisor.begin(); !status) return status;
  if (Status status = supervisor.start_all(commands); !status) return status;
  if (started) started(supervisor.children());
  supervisor.run();
  return supervisor.take();
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

}  // namespace tutti::tools
