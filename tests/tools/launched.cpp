#include "tests/tools/launched.h"
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLimit{30};      // a machine under load; reached only by failures

int milliseconds_until(Clock::time_point end) {
  return static_cast<int>(
      std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count()));
}

std::array<int, 2> make_pipe(int flags) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), flags) != 0) throw std::runtime_error("pipe");
  return ends;
}

void put(const char* file, const std::string& text) {
  const int fd = open(file, O_WRONLY);
  if (fd < 0 || write(fd, text.data(), text.size()) < 0) _exit(125);
  close(fd);
}

void prepare(const LaunchSetup& setup) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGCHLD}) std::signal(number, SIG_DFL);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TUTTI_ADDRESS",
                           "TUTTI_JOB_KEY", "TUTTI_LOG", "OMP_NUM_THREADS"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : setup.environment)
    value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  if (!setup.control_group.empty()) put((setup.control_group + "/cgroup.procs").c_str(), "0");
}

}  // namespace

Launched::Launched(const std::vector<std::string>& arguments, const LaunchSetup& setup) {
  const std::string program = std::string(TUTTI_BINARY_DIR) + "/bin/tutti";
  const auto in = make_pipe(O_CLOEXEC), out = make_pipe(O_CLOEXEC), err = make_pipe(O_CLOEXEC),
             witness = make_pipe(O_CLOEXEC);
  if (write(in[1], setup.input.data(), setup.input.size()) != static_cast<ssize_t>(setup.input.size()))
    throw std::runtime_error("input");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    std::vector<char*> words{const_cast<char*>("tutti")};
    for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    prepare(setup);
    dup2(in[0], 0), dup2(out[1], 1), dup2(err[1], 2);
    fcntl(witness[1], F_SETFD, 0);      // inherited by all
    execv(program.c_str(), words.data());
    _exit(125);
  }
  for (const int fd : {in[0], in[1], out[1], err[1], witness[1]}) close(fd);
  out_fd_ = out[0], err_fd_ = err[0], witness_ = witness[0];
}

Launched::~Launched() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {out_fd_, err_fd_, witness_}) {
    if (fd >= 0) close(fd);
  }
}

void Launched::signal(int number) const { kill(pid_, number); }

void Launched::close_output() {
  close(out_fd_);
  out_fd_ = -1;
}

bool Launched::read_some(int milliseconds) {
  std::array<pollfd, 2> polled{{{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}}};
  if ((out_fd_ < 0 && err_fd_ < 0) || poll(polled.data(), polled.size(), milliseconds) <= 0) return false;
  for (const auto& [fd, events, happened] : polled) {
    if (happened == 0) continue;
    std::array<char, 65536> bytes{};
    const ssize_t count = read(fd, bytes.data(), bytes.size());
    std::string& text = fd == out_fd_ ? out_ : err_;
    if (count > 0) {
      text.append(bytes.data(), static_cast<std::size_t>(count));
    } else {
      close(fd);
      (fd == out_fd_ ? out_fd_ : err_fd_) = -1;
    }
  }
  return true;
}

bool Launched::says(const std::string& text, int times) {
  const auto end = Clock::now() + kLimit;
  for (;;) {
    int found = 0;
    for (std::size_t at = 0; (at = out_.find(text, at)) != std::string::npos; at += text.size()) ++found;
    if (found >= times) return true;
    if (!read_some(milliseconds_until(end))) return false;
  }
}

int Launched::exit_status() {
  if (ended_) return status_;
  const auto end = Clock::now() + kLimit;
  while (read_some(milliseconds_until(end))) continue;
  if (out_fd_ >= 0 || err_fd_ >= 0) return -1;      // still open: it has not ended
  int status = 0;
  waitpid(pid_, &status, 0);
  ended_ = true;
  status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return status_;
}

bool Launched::nothing_left() {
  pollfd polled{witness_, POLLIN, 0};
  return poll(&polled, 1, static_cast<int>(std::chrono::milliseconds(kLimit).count())) > 0 &&
         (polled.revents & POLLHUP) != 0;
}

std::vector<std::string> Launched::out_lines() const {
  std::vector<std::string> lines;
  std::istringstream stream(out_);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string Launched::last_error_line() const {
  const auto end = err_.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const auto begin = err_.rfind('\n', end);
  return err_.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

}  // namespace tutti::tools
