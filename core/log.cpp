#include "core/log.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

#include "core/error_table.h"
#include "core/fork.h"

namespace tutti::log {
namespace {
std::atomic<Level> g_level{Level::warning};
thread_local int t_rank = -1;
constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
}  // namespace

Level level() { return g_level.load(std::memory_order_relaxed); }
void set_level(Level level) { g_level.store(level, std::memory_order_relaxed); }
void set_rank(int rank) { t_rank = rank; }

void write(Level lvl, std::string_view text) {
  if (lvl > level()) return;
  const std::string said = lvl <= Level::warning ? with_code(std::string(text), warning_row(text)) : std::string(text);
  std::string line = t_rank >= 0 ? fmt::format("tutti [rank {}] {}: {}\n", t_rank, kNames[int(lvl)], said)
                                 : fmt::format("tutti {}: {}\n", kNames[int(lvl)], said);
  if (::write(2, line.data(), line.size()) < 0) return;   // nobody left to tell
}

void write_once(Level lvl, const std::string& text) {
  struct Said {
    std::mutex mutex;
    std::set<std::string> texts;
  };
  static PerProcess<Said> said;
  {
    std::lock_guard lock((*said).mutex);
    if (!(*said).texts.insert(text).second) return;
  }
  write(lvl, text);
}

}  // namespace tutti::log
