#pragma once
// TextLines: which line of a text an offset is in, for messages.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace tutti::topology {

class TextLines {
 public:
  explicit TextLines(const std::string& text) {
    for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
      ends_.push_back(std::ptrdiff_t(at));
  }
  // From 1; an offset below 0 (not known) gives 1.
  int at(std::ptrdiff_t offset) const {
    return 1 + int(std::lower_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
  }

 private:
  std::vector<std::ptrdiff_t> ends_;
};

}  // namespace tutti::topology
