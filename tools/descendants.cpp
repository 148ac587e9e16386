// Reads /proc once an answer, see descendants.h.
#include "tools/descendants.h"
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <unistd.h>

namespace tutti::tools {

std::pair<pid_t, pid_t> parse_stat(std::string_view text) {
  const auto name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 4 >= text.size()) return {0, 0};
  pid_t pid = 0, parent = 0;
  const std::string_view tail = text.substr(name_end + 4);      // ") S PARENT ..."
  const bool good = std::from_chars(text.data(), text.data() + text.size(), pid).ec == std::errc() &&
                    std::from_chars(tail.data(), tail.data() + tail.size(), parent).ec == std::errc();
  return good ? std::pair{pid, parent} : std::pair<pid_t, pid_t>{0, 0};
}

std::vector<pid_t> descendants(pid_t of) {
  std::multimap<pid_t, pid_t> children;
  std::error_code ignored;      // processes end while we read: no error
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name[0] < '0' || name[0] > '9') continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    const auto [pid, parent] = parse_stat(text);
    if (pid > 0) children.emplace(parent, pid);
  }
  std::vector<pid_t> found{of};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto child = first; child != last; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

void signal_descendants(int signal) {
  for (const pid_t pid : descendants(getpid())) kill(pid, signal);
}

}  // namespace tutti::tools
