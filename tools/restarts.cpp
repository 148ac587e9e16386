// See restarts.h.
#include "tools/restarts.h"
#include <fmt/format.h>
#include <unistd.h>
#include "tools/outcome_text.h"

namespace tutti::tools {

After Restarts::after(int rank, const Child& child) {
  (void)roster_.read();
  const std::string who = fmt::format("tutti run: rank {} (pid {}) {}", rank, child.pid, ending_text(child.wait_status));
  if (roster_.end()) return After::leave;
  if (!roster_.has_waited(rank)) return After::stop;
  if (used_ < most_) {
    write_all(STDERR_FILENO, fmt::format("{}; it is started again (restart {} of {})\n", who, ++used_, most_));
    return After::restart;
  }
  write_all(STDERR_FILENO, fmt::format("{}; {}\n", who, most_ > 0 ? fmt::format("all {} restarts are used up: it is not started again", most_)
                                                                  : "it is not started again"));
  (void)roster_.add(fmt::format("gone {}", rank));
  return After::leave;
}

bool Restarts::all_again(const Outcome& outcome, int& count) {
  if (!outcome.first_failure || outcome.passed_signal != 0 || !outcome.stop_reason.empty() || used_ == most_) return false;
  if (roster_.has_waited(int(*outcome.first_failure))) return false;
  const Child& child = outcome.children[*outcome.first_failure];
  count = ++used_;
  write_all(STDERR_FILENO, fmt::format("tutti run: {} (pid {}) {}; all ranks are started again (restart {} of {})\n", child.label, child.pid,
                                       ending_text(child.wait_status), used_, most_));
  return true;
}

std::string Restarts::ended() {
  (void)roster_.read();
  return roster_.end().value_or("");
}

}  // namespace tutti::tools
