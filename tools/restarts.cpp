// See restarts.h.
#include "tools/restarts.h"
#include <fmt/format.h>
#include <unistd.h>
#include "core/error_table.h"
#include "tools/outcome_text.h"

namespace tutti::tools {
namespace {

void tell(const std::string& line) { write_all(STDERR_FILENO, with_code(line, launcher_row(line)) + "\n"); }

}  // namespace

After Restarts::after(int rank, const Child& child) {
  (void)roster_.read();
  const std::string who =
      fmt::format("tutti run: rank {} (pid {}) {}", rank, child.pid, ending_text(child.wait_status));
  if (roster_.end()) return After::leave;
  if (!roster_.has_waited(rank)) return After::stop;
  if (used_ < most_) {
    tell(fmt::format("{}; it is started again (restart {} of {})", who, ++used_, most_));
    return After::restart;
  }
  tell(fmt::format("{}; {}", who,
                   most_ > 0 ? fmt::format("all {} restarts are used up: it is not started again", most_)
                             : "it is not started again"));
  (void)roster_.add(fmt::format("gone {}", rank));
  return After::leave;
}

bool Restarts::all_again(const Outcome& outcome, int& count) {
  if (!outcome.first_failure || outcome.passed_signal != 0 || !outcome.stop_reason.empty() || used_ == most_)
    return false;
  if (roster_.has_waited(int(*outcome.first_failure))) return false;
  const Child& child = outcome.children[*outcome.first_failure];
  count = ++used_;
  tell(fmt::format("tutti run: {} (pid {}) {}; all ranks are started again (restart {} of {})", child.label, child.pid,
                   ending_text(child.wait_status), used_, most_));
  return true;
}

std::string Restarts::ended() {
  (void)roster_.read();
  return roster_.end().value_or("");
}

}  // namespace tutti::tools
