#include "trainer/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace tutti::trainer {

std::string progress_bar(long begin, long done, long steps, double seconds) {
  constexpr long kWidth = 30;
  const long filled = steps > 0 ? done * kWidth / steps : kWidth;
  std::string bar(std::size_t(filled), '=');
  if (filled < kWidth) bar += '>' + std::string(std::size_t(kWidth - filled - 1), ' ');
  const long left = done > begin ? long(seconds / double(done - begin) * double(steps - done) + 0.5) : 0;
  const std::string time = left >= 3600 ? fmt::format("{}:{:02}:{:02}", left / 3600, left / 60 % 60, left % 60) : fmt::format("{}:{:02}", left / 60, left % 60);
  return fmt::format("[{}] {} %  {} left", bar, steps > 0 ? done * 100 / steps : 100, time);
}

Progress::Progress(bool wanted, long begin, long steps) : wanted_(wanted && isatty(STDOUT_FILENO) == 1), begin_(begin), steps_(steps) {}

void Progress::clear() {
  if (!shown_.empty()) fmt::print("\r\033[K");      // back to the begin of the line, and it is empty
  shown_.clear();
  std::fflush(stdout);
}

void Progress::say(const std::string& text) {
  if (text.empty()) return;
  const std::string bar = shown_;
  clear();
  fmt::print("{}{}", text, bar);
  shown_ = bar;
  std::fflush(stdout);
}

void Progress::show(long done) {
  if (!wanted_) return;
  clear();
  shown_ = progress_bar(begin_, done, steps_, std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  fmt::print("{}", shown_);
  std::fflush(stdout);
}

}  // namespace tutti::trainer
