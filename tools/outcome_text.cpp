// See outcome_text.h.
#include "tools/outcome_text.h"
#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <string_view>
#include <sys/wait.h>
#include "core/error_table.h"

namespace tutti::tools {
namespace {

// Another `tutti run` has said it already, with more knowledge.
constexpr std::string_view kFirstFailure = "tutti run: first failure: ";
constexpr double kMebibyteInKilobytes = 1024;

// SIGKILL by itself, or as a shell tells of it.
bool looks_killed(int wait_status) {
  return WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) == SIGKILL : WEXITSTATUS(wait_status) == 128 + SIGKILL;
}

std::string others_text(const Outcome& outcome) {
  const std::size_t stopped = outcome.terminated + outcome.killed;
  if (stopped == 0) return "";
  return fmt::format("tutti run: the others were stopped by us: {} after SIGTERM, {} by SIGKILL\n", outcome.terminated,
                     outcome.killed);
}

std::string failure_line(const Outcome& outcome, const std::string& host) {
  const Child& child = outcome.children[*outcome.first_failure];
  const auto& last = outcome.last_lines[*outcome.first_failure].lines();
  if (!last.empty() && last.back().starts_with(kFirstFailure)) return last.back() + "\n";
  std::string line = fmt::format("{}{} on {} (pid {}) {}", kFirstFailure, child.label, host, child.pid,
                                 ending_text(child.wait_status));
  if (looks_killed(child.wait_status)) {
    line +=
        fmt::format("; {}; its peak memory was {:.0f} MiB", memory_verdict(outcome.memory_before, outcome.memory_after),
                    static_cast<double>(child.peak_kilobytes) / kMebibyteInKilobytes);
  }
  line = with_code(std::move(line), launcher_row(line));
  if (!last.empty()) line += fmt::format("; its last line: {}", last.back());
  return line + "\n";
}

}  // namespace

std::string ending_text(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("ended with exit status {}", WEXITSTATUS(wait_status));
  return fmt::format("was killed by {} ({})", signal_name(WTERMSIG(wait_status)), WTERMSIG(wait_status));
}

std::string outcome_text(const Outcome& outcome, const std::string& host) {
  std::string text;
  if (outcome.passed_signal != 0) {
    text += fmt::format("tutti run: {} came and was passed on to all\n", signal_name(outcome.passed_signal));
  }
  if (!outcome.first_failure) {
    if (!outcome.stop_reason.empty())
      text += with_code(fmt::format("tutti run: all were stopped by us: {}", outcome.stop_reason),
                        launcher_row(outcome.stop_reason)) +
              "\n";
    return text;
  }
  const auto& last = outcome.last_lines[*outcome.first_failure].lines();
  if (last.size() > 1 && !last.back().starts_with(kFirstFailure)) {
    text += fmt::format("tutti run: {} said last:\n", outcome.children[*outcome.first_failure].label);
    for (const std::string& line : last) text += fmt::format("    {}\n", line);
  }
  return text + others_text(outcome) + failure_line(outcome, host);
}

}  // namespace tutti::tools
