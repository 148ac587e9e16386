#pragma once
// Log lines on stderr: "tutti [rank 3] warning: ...". Level by TUTTI_LOG
// (error, warning, info, debug; default warning).
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace tutti::log {

enum class Level { error, warning, info, debug };
Level level();
void set_level(Level level);
void set_rank(int rank);                        // of this thread, for the prefix; -1: none
void write(Level level, std::string_view text);  // one write(2), whole lines
// Once a process for each distinct text.
void write_once(Level level, const std::string& text);

template <class... Args>
void error(fmt::format_string<Args...> text, Args&&... args) {
  write(Level::error, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> text, Args&&... args) {
  write(Level::warning, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
  if (level() >= Level::info) write(Level::info, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
  if (level() >= Level::debug) write(Level::debug, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace tutti::log
