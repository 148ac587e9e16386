#include "topology/unpacked_archive.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/errno_text.h"
#include "topology/child_process.h"

namespace tutti::topology {
namespace {

namespace fs = std::filesystem;

// A snapshot of the largest known machine has 60,000 entries and 20 MB.
constexpr std::size_t kMaxEntries = 1'000'000, kMaxListing = 256u << 20;
constexpr unsigned long long kMaxBytes = 1ull << 30;
constexpr std::chrono::minutes kLimit{2};

bool climbs(const std::string& name) {
  const fs::path path(name);
  for (const fs::path& part : path)
    if (part == "..") return true;
  return path.is_absolute();
}

// tar -tv prints "drwxr-xr-x owner/group size date time name [-> target]".
Status check_entry(const std::string& file, const std::string& line, unsigned long long& bytes) {
  std::istringstream words(line);
  std::string mode, owner, date, time, name;
  unsigned long long size = 0;
  const bool entry = words >> mode && mode.size() >= 10;
  if (entry && std::string("-dlh").find(mode[0]) == std::string::npos)
    return Status(Code::invalid_argument,
                  fmt::format("{}: expected files, folders and links, found a device or pipe: {}", file,
                              line.substr(line.find_last_of(' ') + 1)));
  if (!entry || !(words >> owner >> size >> date >> time))
    return Status(Code::invalid_argument, fmt::format("{}: expected a tar archive, tar says \"{:.200}\"", file, line));
  std::getline(words >> std::ws, name);
  if (climbs(name.substr(0, name.find(mode[0] == 'h' ? " link to " : " -> "))))
    return Status(Code::invalid_argument,
                  fmt::format("{}: expected names inside of the archive, found {}", file, name));
  if ((bytes += size) > kMaxBytes)
    return Status(Code::invalid_argument,
                  fmt::format("{}: more than {} MB, expected a snapshot of /sys", file, kMaxBytes >> 20));
  return {};
}

// Bytes on disk that the archive needs, at most.
Result<unsigned long long> check_listing(const std::string& file) {
  const Result<std::string> listing = run_program({"tar", "-t", "-v", "-P", "-f", file}, kLimit, kMaxListing);
  if (!listing) return Status(listing.status().code(), fmt::format("{}: {}", file, listing.status().text()));
  std::istringstream lines(*listing);
  unsigned long long bytes = 0;
  std::size_t entries = 0;
  for (std::string line; std::getline(lines, line);) {
    if (++entries > kMaxEntries)
      return Status(Code::invalid_argument,
                    fmt::format("{}: more than {} entries, expected a snapshot of /sys", file, kMaxEntries));
    if (Status wrong = check_entry(file, line, bytes); !wrong) return wrong;
  }
  if (entries == 0)
    return Status(Code::invalid_argument, file + ": expected a snapshot of /sys, found an empty archive");
  return bytes + entries * 4096;
}

// In memory where there is room for it: ten thousand small files take a slow disk tens of seconds.
std::string folder_for(unsigned long long bytes) {
  std::error_code error;
  struct statvfs room {};
  const bool in_memory = statvfs("/dev/shm", &room) == 0 && room.f_bavail * room.f_frsize > 2 * bytes;
  for (const fs::path& parent : {in_memory ? fs::path("/dev/shm") : fs::path(), fs::temp_directory_path(error)}) {
    std::string folder = (parent / "tutti-snapshot-XXXXXX").string();
    if (!parent.empty() && mkdtemp(folder.data()) != nullptr) return folder;
  }
  return "";
}

// Links that lead out of the folder would show this machine's files instead of the snapshot's.
void cut_links(const fs::path& folder) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  std::vector<fs::path> out;
  for (auto entry = fs::recursive_directory_iterator(root, error); entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    if (!entry->is_symlink(error)) continue;
    const fs::path target = fs::read_symlink(entry->path(), error);
    const fs::path lands = target.is_absolute() ? target : (entry->path().parent_path() / target).lexically_normal();
    const fs::path inside = lands.lexically_relative(root);
    if (inside.empty() || *inside.begin() == "..") out.push_back(entry->path());
  }
  for (const fs::path& link : out) fs::remove(link, error);
}

}  // namespace

Result<UnpackedArchive> UnpackedArchive::unpack(const std::string& file) {
  const Result<unsigned long long> bytes = check_listing(file);
  if (!bytes) return bytes.status();
  const std::string folder = folder_for(*bytes);
  if (folder.empty())
    return Status(Code::out_of_resources, fmt::format("{}: no temporary folder: {}", file, errno_text(errno)));
  UnpackedArchive archive(folder);
  const Result<std::string> done =
      run_program({"tar", "-x", "-f", file, "-C", folder, "--no-same-owner", "--no-same-permissions", "--mode=u+rwX"},
                  kLimit, kMaxListing);
  if (!done) return Status(done.status().code(), fmt::format("{}: {}", file, done.status().text()));
  cut_links(folder);
  return archive;
}

UnpackedArchive::~UnpackedArchive() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

}  // namespace tutti::topology
