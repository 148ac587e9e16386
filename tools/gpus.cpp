// See gpus.h.
#include "tools/gpus.h"
#include <algorithm>
#include <sstream>

namespace tutti::tools {

int usable_gpus(const std::string& visible, const std::filesystem::path& driver) {
  std::error_code error;
  int all = 0;
  for (std::filesystem::directory_iterator entry(driver, error), end; !error && entry != end; entry.increment(error))
    ++all;
  if (visible.empty()) return all;
  int count = 0;
  std::istringstream list(visible);
  for (std::string one; std::getline(list, one, ',') && count < all; ++count) {
    if (one.starts_with("GPU-") || one.starts_with("MIG-")) continue;
    const bool number =
        !one.empty() && std::all_of(one.begin(), one.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!number || one.size() > 4 || std::stoi(one) >= all) break;
  }
  return count;
}

}  // namespace tutti::tools
