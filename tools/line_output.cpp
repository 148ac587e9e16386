// Lines and prefixes, see line_output.h.
#include "tools/line_output.h"
#include <cerrno>
#include <poll.h>
#include <unistd.h>

namespace tutti::tools {

void LastLines::add(std::string_view line) {
  if (line.find_first_not_of(" \t") == std::string_view::npos) return;
  lines_.emplace_back(line);
  if (lines_.size() > kKept) lines_.pop_front();
}

void LineOutput::take_line(std::size_t end, char terminator, std::string& out) {
  const std::string_view line(partial_.data(), end);
  last_.add(line);
  out.append(prefix_).append(line).push_back(terminator);
  after_return_ = terminator == '\r';
}

bool LineOutput::feed(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    if (c == '\n' && partial_.empty() && after_return_) {
      out.push_back('\n');
      after_return_ = false;
    } else if (c == '\n' || c == '\r') {
      take_line(partial_.size(), c, out);
      partial_.clear();
    } else {
      partial_.push_back(c);
      if (partial_.size() < kLongestLine) continue;
      take_line(partial_.size(), '\n', out);
      partial_.clear();
    }
  }
  return write_all(target_, out);
}

bool LineOutput::finish() { return partial_.empty() || feed("\n"); }

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      pollfd ready{descriptor, POLLOUT, 0};       // somebody made our terminal non-blocking
      poll(&ready, 1, -1);
    } else if (written < 0 && errno == EPIPE) {
      return false;
    } else if (written < 0 && errno != EINTR) {
      return true;
    }
  }
  return true;
}

}  // namespace tutti::tools
