#include "core/fork.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {

std::atomic<std::uint32_t> detail::forks{0};

namespace {

std::mutex g_mutex;                       // held while a fork is under way
std::vector<bool>& kept() {
  static auto* const by_descriptor = new std::vector<bool>;      // never destroyed: descriptors may be closed at the very end
  return *by_descriptor;
}

void mark(int descriptor, bool is_kept) {
  if (descriptor < 0) return;
  if (std::size_t(descriptor) >= kept().size()) kept().resize(std::size_t(descriptor) + 1);
  kept()[std::size_t(descriptor)] = is_kept;
}

void before() { g_mutex.lock(); }
void in_parent() { g_mutex.unlock(); }

// Only what is safe in a signal handler: other threads have left their locks behind. The numbers stay taken, so that what still has them closes no
// file of the child's.
void in_child() {
  detail::forks.fetch_add(1, std::memory_order_relaxed);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (std::size_t descriptor = 0; descriptor < kept().size(); ++descriptor) {
    if (!kept()[descriptor]) continue;
    if (nothing < 0 || ::dup3(nothing, int(descriptor), O_CLOEXEC) < 0) ::close(int(descriptor));
  }
  if (nothing >= 0) ::close(nothing);
  g_mutex.unlock();
}

const int g_registered = ::pthread_atfork(before, in_parent, in_child);

}  // namespace

int kept_from_children(const std::function<int()>& make) {
  const std::lock_guard held(g_mutex);
  const int descriptor = make(), error = errno;
  mark(descriptor, true);
  errno = error;
  return descriptor;
}

void keep_from_children(int descriptor) {
  const std::lock_guard held(g_mutex);
  mark(descriptor, true);
}

void let_go(int descriptor) {
  const std::lock_guard held(g_mutex);
  mark(descriptor, false);
}

void close_kept(int descriptor) {
  const std::lock_guard held(g_mutex);
  mark(descriptor, false);
  ::close(descriptor);
}

void keep_mapping_from_children(void* data, std::size_t bytes) { (void)::madvise(data, bytes, MADV_DONTFORK); }

Origin::Origin() : forks_(fork_count()), process_(::getpid()) {}

Status Origin::elsewhere(std::string_view what) const {
  return Status(Code::invalid_state,
                fmt::format("this process ({}) is a child, by fork(), of process {}, which {} belongs to: call it there; a process that is to be a rank itself makes its own",
                            ::getpid(), process_, what));
}

void abandon(std::shared_ptr<const void> thing) {
  struct Abandoned {
    std::mutex mutex;
    std::vector<std::shared_ptr<const void>> things;
  };
  static PerProcess<Abandoned> all;
  const std::lock_guard held((*all).mutex);
  (*all).things.push_back(std::move(thing));
}

}  // namespace tutti
