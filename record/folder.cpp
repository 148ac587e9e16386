#include "record/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "core/config.h"
#include "core/errno_text.h"

namespace tutti::record {
namespace {

constexpr std::string_view kSuffix = ".rec";

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

// The parts between the dashes; empty: not a recorder's name.
std::vector<std::string> parts_of(const std::string& name) {
  std::string_view rest(name);
  if (!rest.ends_with(kSuffix)) return {};
  rest.remove_suffix(kSuffix.size());
  std::vector<std::string> parts;
  for (std::size_t dash; (dash = rest.find('-')) != std::string_view::npos; rest.remove_prefix(dash + 1))
    parts.emplace_back(rest.substr(0, dash));
  parts.emplace_back(rest);
  const std::string_view digits = "0123456789";
  if (parts.size() != 4 || parts[0].size() != 16 || !all_of(parts[0], "0123456789abcdef")) return {};
  if (!parts[1].starts_with("r") || !all_of(std::string_view(parts[1]).substr(1), digits)) return {};
  return all_of(parts[2], digits) && parts[2].size() < 10 && all_of(parts[3], digits) ? parts
                                                                                      : std::vector<std::string>{};
}

}  // namespace

std::vector<std::string> default_folders() {
  const std::string user = fmt::format("tutti-{}", ::getuid());
  std::vector<std::string> folders;
  if (const std::string runtime = environment("XDG_RUNTIME_DIR"); runtime.starts_with("/"))
    folders.push_back(runtime + "/tutti");
  folders.push_back("/dev/shm/" + user);
  folders.push_back("/tmp/" + user);
  return folders;
}

Status prepare_folder(const std::string& folder, bool own) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return Status(Code::out_of_resources, fmt::format("mkdir({}): {}", folder, errno_text(errno)));
  struct stat found {};
  if ((own ? ::stat(folder.c_str(), &found) : ::lstat(folder.c_str(), &found)) != 0)
    return Status(Code::out_of_resources, fmt::format("stat({}): {}", folder, errno_text(errno)));
  if (!S_ISDIR(found.st_mode)) return Status(Code::out_of_resources, folder + " is not a folder");
  if (!own && (found.st_uid != ::getuid() || (found.st_mode & 077) != 0))
    return Status(Code::out_of_resources, folder + " belongs to another user, or others may write to or read it");
  return {};
}

std::string file_name(std::uint64_t job, int rank, int pid, int n) {
  return fmt::format("{:016x}-r{}-{}-{}{}", job, rank, pid, n, kSuffix);
}
bool is_file_name(const std::string& name) { return !parts_of(name).empty(); }
int pid_of(const std::string& name) {
  const auto parts = parts_of(name);
  return parts.empty() ? -1 : std::atoi(parts[2].c_str());
}
std::string hang_report_path(const std::string& recorder) {
  return recorder.substr(0, recorder.size() - kSuffix.size()) + ".hang.json";
}

std::vector<std::string> recorders_in(const std::string& folder) {
  std::vector<std::string> found;
  DIR* directory = ::opendir(folder.c_str());
  if (!directory) return found;
  while (const dirent* entry = ::readdir(directory))
    if (is_file_name(entry->d_name)) found.push_back(folder + "/" + entry->d_name);
  ::closedir(directory);
  std::sort(found.begin(), found.end());
  return found;
}

bool is_held(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return held;
}

void remove_recorder(const std::string& path) {
  ::unlink(path.c_str());
  ::unlink(hang_report_path(path).c_str());
}

void remove_stale(const std::string& folder) {
  std::vector<std::pair<std::time_t, std::string>> dead;
  for (const std::string& path : recorders_in(folder)) {
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_uid != ::getuid() || is_held(path))
      continue;
    dead.emplace_back(found.st_mtime, path);
  }
  std::sort(dead.rbegin(), dead.rend());          // newest first
  const std::time_t oldest = std::time(nullptr) - kKeptDays * 24 * 3600;
  for (std::size_t i = 0; i < dead.size(); ++i)
    if (i >= kMostDead || dead[i].first < oldest) remove_recorder(dead[i].second);
}

}  // namespace tutti::record
