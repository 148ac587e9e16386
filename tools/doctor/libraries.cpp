#include "tools/doctor/libraries.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "tools/doctor/devices.h"

namespace tutti::tools::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargestOfOurs = 64u << 20;       // NVIDIA's has more than 200 MB

// "0.1.0" where it is tutti's, which says so in itself; else "".
std::string version_of_ours(const fs::path& library) {
  constexpr std::string_view kMark = "libnccl.so.2 of tutti ";
  std::error_code error;
  if (const auto size = fs::file_size(library, error); error || size > kLargestOfOurs) return "";
  std::ifstream file(library, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto at = bytes.find(kMark);
  if (at == std::string::npos) return "";
  const auto from = at + kMark.size();
  return bytes.substr(from, bytes.find_first_not_of("0123456789.", from) - from);
}

// The last word of a line of /proc/PID/maps, where its file is a libnccl.
std::string library_of(const std::string& line) {
  const auto slash = line.find('/');
  if (slash == std::string::npos) return "";
  const std::string path = line.substr(slash);
  return fs::path(path).filename().string().starts_with("libnccl.so") ? path : "";
}

}  // namespace

std::vector<LoadedLibrary> loaded_nccl(const std::string& root) {
  std::map<std::string, std::vector<std::string>> processes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/proc", error)) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::set<std::string> paths;
    for (const std::string& line : lines_of(entry.path() / "maps"))
      if (const std::string path = library_of(line); !path.empty()) paths.insert(path);
    for (const std::string& path : paths)
      processes[path].push_back(fmt::format("{} (pid {})", line_of(entry.path() / "comm"), pid));
  }
  std::vector<LoadedLibrary> out;
  for (auto& [path, names] : processes) {
    std::sort(names.begin(), names.end());
    out.push_back({path, version_of_ours(root + path), std::move(names)});
  }
  return out;
}

}  // namespace tutti::tools::doctor
