// The outer one of the launcher's two processes, see guard.h.
#include "tools/guard.h"
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/error_table.h"
#include "tools/child.h"
#include "tools/descendants.h"
#include "tools/refusal.h"
#include "tools/supervisor.h"

namespace tutti::tools {
namespace {

sigset_t guarded_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : kPassedSignals) {
    struct sigaction now{};
    sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  return set;
}

// Until `inner` has ended; its wait status. Reaps whatever else becomes ours.
int wait_for(pid_t inner, const sigset_t& signals) {
  for (;;) {
    int wait_status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
      if (pid == inner) return wait_status;
    }
    const int number = sigwaitinfo(&signals, nullptr);
    if (number > 0 && number != SIGCHLD) kill(inner, number);
  }
}

void kill_all_below() {
  for (;;) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    if (descendants(getpid()).empty()) return;
    signal_descendants(SIGKILL);
    if (waitpid(-1, nullptr, 0) < 0 && errno == ECHILD) return;
  }
}

}  // namespace

int run_guarded(const std::function<int(int lifeline)>& body) {
  const sigset_t signals = guarded_signals();
  std::signal(SIGCHLD, SIG_DFL);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int ends[2];
  std::fflush(nullptr);
  pid_t inner = -1;
  if (pipe2(ends, O_CLOEXEC) != 0 || (inner = fork()) < 0) {
    return refuse("run", {Code::out_of_resources, fmt::format("cannot start: {}", std::strerror(errno))}, kFailure);
  }
  if (inner == 0) {
    setpgid(0, 0);        // so that Ctrl-C reaches the ranks once, through us
    close(ends[1]);
    const int status = body(ends[0]);
    std::fflush(nullptr);
    _exit(status);
  }
  const Descriptor lifeline(ends[1]);
  close(ends[0]);
  const int wait_status = wait_for(inner, signals);
  kill_all_below();
  if (!WIFSIGNALED(wait_status)) return WEXITSTATUS(wait_status);
  const std::string line =
      fmt::format("tutti run: its supervising process (pid {}) was killed by {}; all processes of the job were killed",
                  inner, signal_name(WTERMSIG(wait_status)));
  fmt::print(stderr, "{}\n", with_code(line, launcher_row(line)));
  return 128 + WTERMSIG(wait_status);
}

}  // namespace tutti::tools
