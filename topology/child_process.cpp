#include "topology/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "core/errno_text.h"

namespace tutti::topology {
namespace {

enum class End { closed, late, too_much };

End drain(int from, std::chrono::steady_clock::time_point deadline, std::size_t most, std::string& out) {
  char block[16384];
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return End::late;
    pollfd wanted{from, POLLIN, 0};
    if (const int ready = poll(&wanted, 1, int(std::min<long long>(left, 60'000))); ready <= 0) continue;
    const ssize_t got = read(from, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return End::closed;
    out.append(block, std::size_t(got));
    if (out.size() > most) return End::too_much;
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 0;  // somebody else has collected it: nothing more is known
  return status;
}

Status verdict(const std::string& what, End end, int status, const std::string& said) {
  const std::string tail = said.empty() ? "" : ": " + said.substr(said.size() > 300 ? said.size() - 300 : 0);
  if (end == End::late) return Status(Code::timeout, what + " took too long and was stopped");
  if (end == End::too_much)
    return Status(Code::invalid_argument, what + " gives more than a machine's description can be");
  if (WIFSIGNALED(status))
    return Status(Code::invalid_argument,
                  fmt::format("{} ended by signal {} ({})", what, WTERMSIG(status), strsignal(WTERMSIG(status))));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return Status(Code::unsupported, what + ": no such program in PATH");
  return Status(Code::invalid_argument, fmt::format("{} failed{}", what, tail));
}

}  // namespace

Result<std::string> run_in_child(const std::string& what, const std::function<int(int)>& work,
                                 std::chrono::milliseconds limit, std::size_t most) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0)
    return Status(Code::internal, fmt::format("{}: pipe: {}", what, errno_text(errno)));
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
    close(pipe_ends[0]);
    _exit(work(pipe_ends[1]));
  }
  close(pipe_ends[1]);
  if (child < 0) {
    close(pipe_ends[0]);
    return Status(Code::internal, fmt::format("{}: fork: {}", what, errno_text(errno)));
  }
  std::string out;
  const End end = drain(pipe_ends[0], deadline, most, out);
  close(pipe_ends[0]);
  if (end != End::closed) kill(child, SIGKILL);
  const int status = wait_for(child);
  if (end == End::closed && WIFEXITED(status) && WEXITSTATUS(status) == 0) return out;
  return verdict(what, end, status, out);
}

Result<std::string> run_program(const std::vector<std::string>& arguments, std::chrono::milliseconds limit,
                                std::size_t most) {
  std::vector<char*> list;
  for (const std::string& argument : arguments) list.push_back(const_cast<char*>(argument.c_str()));
  list.push_back(nullptr);
  return run_in_child(
      arguments[0],
      [&list](int out) {
        const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(nothing, 0);
        dup2(out, 1);
        dup2(out, 2);
        setenv("LC_ALL", "C", 1);
        execvp(list[0], list.data());
        return errno == ENOENT ? 127 : 126;
      },
      limit, most);
}

}  // namespace tutti::topology
