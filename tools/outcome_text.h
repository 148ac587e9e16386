#pragma once
// What people read at the end of a job. Only text; it looks at nothing but the Outcome.
#include <string>
#include "tools/supervisor.h"

namespace tutti::tools {

// "" for success. Lines, the first failure LAST and alone on its line: who, where,
// how, for want of memory or not, its last words.
std::string outcome_text(const Outcome& outcome, const std::string& host);

// "ended with exit status 7", "was killed by SIGKILL (9)"
std::string ending_text(int wait_status);

}  // namespace tutti::tools
