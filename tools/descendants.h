#pragma once
// The processes below this one, read from /proc: what has to be gone before the launcher may say that nothing is left.
// It sends signals to them and reaps none.
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace tutti::tools {

// Children, their children and so on, zombies included. Racy by nature: a process may fork while we read; ask again.
std::vector<pid_t> descendants(pid_t of);

// To each of descendants(getpid()).
void signal_descendants(int signal);

// {pid, parent} from the text of /proc/PID/stat, whose program name may hold
// blanks and parentheses; {0, 0}: not understood.
std::pair<pid_t, pid_t> parse_stat(std::string_view text);

}  // namespace tutti::tools
