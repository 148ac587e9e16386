#include "record/recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <tutti/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/errno_text.h"
#include "core/fork.h"
#include "record/folder.h"
#include "record/process.h"
#include "record/ticks.h"

namespace tutti::record {
namespace {

constexpr int kMostNames = 1000;          // recorders of one process with one rank in one job

}  // namespace

Moment moment_of_this_host() {
  const std::int64_t wall = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  const std::uint64_t monotonic = steady_nanoseconds();
  return {has_even_counter() ? counter() : monotonic, std::int64_t(monotonic), wall};
}

Result<std::unique_ptr<Recorder>> Recorder::create(const std::string& folder, const Identity& identity, Clock clock) {
  std::unique_ptr<Recorder> recorder(new Recorder);
  recorder->clock_ = std::move(clock);
  if (Status opened = recorder->open(folder, identity); !opened) {
    if (recorder->fd_ >= 0) remove_recorder(recorder->path_);
    return opened;
  }
  recorder->fill(identity);
  return recorder;
}

Status Recorder::open(const std::string& folder, const Identity& identity) {
  for (int n = 0; n < kMostNames && fd_ < 0; ++n) {
    path_ = folder + "/" + file_name(identity.job, identity.rank, identity.pid, n);
    fd_ = kept_from_children([this] { return ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600); });
    if (fd_ < 0 && errno != EEXIST) break;
  }
  const auto failed = [&](const char* call, int error) { return Status(Code::out_of_resources, fmt::format("{}({}): {}", call, path_, errno_text(error))); };
  if (fd_ < 0) return failed("open", errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) return failed("flock", errno);
  bytes_ = file_bytes(std::min<std::uint32_t>(std::uint32_t(identity.rank_count), kMostPeers));
  // Not a hole in the file: a store to one that cannot be filled would kill the process.
  if (const int error = ::posix_fallocate(fd_, 0, off_t(bytes_)); error != 0) return failed("posix_fallocate", error);
  void* map = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, 0);
  if (map == MAP_FAILED) return failed("mmap", errno);
  map_ = static_cast<std::byte*>(map);
  keep_mapping_from_children(map_, bytes_);      // a mapping holds the lock, too
  return {};
}

void Recorder::fill(const Identity& identity) {
  header_ = reinterpret_cast<Header*>(map_);
  operations_ = reinterpret_cast<OperationEntry*>(map_ + kHeaderBytes);
  events_ = reinterpret_cast<EventEntry*>(operations_ + kOperations);
  peers_ = reinterpret_cast<PeerEntry*>(events_ + kEvents);
  Header& h = *header_;
  h.version = kVersion;
  h.header_bytes = kHeaderBytes;
  h.operations = kOperations;
  h.events = kEvents;
  h.peers = std::min<std::uint32_t>(std::uint32_t(identity.rank_count), kMostPeers);
  h.rank = identity.rank;
  h.rank_count = identity.rank_count;
  h.pid = identity.pid;
  h.job = identity.job;
  h.host_identity = identity.host_identity;
  h.process_start = process_start(identity.pid);
  put_text(h.host, identity.host);
  put_text(h.library, TUTTI_VERSION_STRING);
  h.verdict_culprit = -1;
  h.first = clock_();
  h.last = h.first;
  std::memcpy(h.magic + 1, kMagic + 1, sizeof kMagic - 1);
  std::atomic_ref<char>(h.magic[0]).store(kMagic[0], std::memory_order_release);      // last: before, it is no recorder
}

Recorder::~Recorder() {
  if (map_) ::munmap(map_, bytes_);
  if (fd_ >= 0) close_kept(fd_);
}

void Recorder::event(EventEntry entry) {
  if (++last_event_ == 0) ++last_event_;
  EventEntry& place = events_[last_event_ % kEvents];
  std::atomic_ref<std::uint32_t> stamp(place.stamp);
  stamp.store(0, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  entry.stamp = 0;
  place = entry;
  stamp.store(last_event_, std::memory_order_release);
}

void Recorder::verdict(std::uint32_t communicator, const Status& status, std::uint64_t now) {
  Header& h = *header_;
  if (h.verdict_stamp != 0) return;
  h.verdict_code = std::uint32_t(status.code());
  h.verdict_culprit = status.culprit();
  h.verdict_communicator = communicator;
  h.verdict_ticks = now;
  put_text(h.verdict, status.text());
  std::atomic_ref<std::uint32_t>(h.verdict_stamp).store(1, std::memory_order_release);
}

void Recorder::beat() {
  std::atomic_ref<std::uint32_t> stamp(header_->last_stamp);
  const std::uint32_t before = stamp.fetch_add(1, std::memory_order_acq_rel);
  header_->last = clock_();
  stamp.store(before + 2, std::memory_order_release);
}

void Recorder::close(End end) { header_->end = std::uint32_t(end); }
bool Recorder::clean() const { return header_->end == std::uint32_t(End::clean); }

}  // namespace tutti::record
