#include "tools/doctor/disk.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>

#include "core/errno_text.h"
#include "tools/child.h"

namespace tutti::tools::doctor {
namespace {

constexpr std::size_t kBlock = 1u << 20, kMost = 32u << 20;
constexpr std::chrono::milliseconds kLongest{500};

// O_TMPFILE where the file system has it: no name that a kill would leave.
int open_unnamed(const std::string& folder) {
  int file = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0) return file;
  std::string name = folder + "/.tutti-doctor-XXXXXX";
  file = mkostemp(name.data(), O_CLOEXEC);
  if (file >= 0) unlink(name.c_str());
  return file;
}

}  // namespace

Disk measure_disk(const std::string& folder) {
  Disk out;
  char absolute[PATH_MAX];
  out.folder = realpath(folder.c_str(), absolute) ? absolute : folder;
  struct statvfs space {};
  if (statvfs(folder.c_str(), &space) == 0) out.free_bytes = std::uint64_t(space.f_bavail) * space.f_frsize;
  const Descriptor file(open_unnamed(folder));
  std::string block(kBlock, '\0');
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = char(i * 2654435761u >> 13);  // no zeros, which some file systems elide
  std::size_t written = 0;
  const auto start = std::chrono::steady_clock::now();
  bool good = file.get() >= 0;
  while (good && written < kMost && written + (2u << 20) < out.free_bytes &&
         std::chrono::steady_clock::now() - start < kLongest) {
    const ssize_t put = write(file.get(), block.data(), block.size());
    good = put > 0;
    written += good ? std::size_t(put) : 0;
  }
  good = good && fsync(file.get()) == 0;
  if (!good) out.error = errno_text(errno);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (good && seconds > 0) out.bytes_per_second = double(written) / seconds;
  return out;
}

}  // namespace tutti::tools::doctor
