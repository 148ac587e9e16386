#pragma once
// Fork: what a child of fork() has of its parent's ranks, which is nothing. A child that does not exec, the worker of a data loader say, would hold a
// dead rank's sockets open, so that peers see it end with its last child only; and the locks and states that it copies are as they happened to be. So
// descriptors that are kept from children are /dev/null there, before fork() has returned, and what was made before a fork can tell (Origin).
//
// For fork() alone: children by posix_spawn, popen, system and vfork exec, and everything here is closed on exec.
#include <sys/types.h>
#include <tutti/status.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace tutti {

namespace detail {
extern std::atomic<std::uint32_t> forks;
}

// How many forks lie between this process and the one that loaded the library. A load.
inline std::uint32_t fork_count() { return detail::forks.load(std::memory_order_relaxed); }

// Calls make(), which opens a descriptor or gives -1, and keeps what it gives from children: no fork comes between. errno is make's.
int kept_from_children(const std::function<int()>& make);
// The same for one that is open; -1: nothing.
void keep_from_children(int descriptor);
// Somebody else is about to close it.
void let_go(int descriptor);
// No fork comes between the two.
void close_kept(int descriptor);
// A mapping that children do not have: to touch it there is a fault. So that they keep neither its pages nor its file, with the file's locks.
void keep_mapping_from_children(void* data, std::size_t bytes);

// The process in which a thing was made.
class Origin {
 public:
  Origin();
  bool here() const { return forks_ == fork_count(); }
  // {invalid_state}: the thing, named by `what`, is used in a child of that process.
  Status elsewhere(std::string_view what) const;

 private:
  std::uint32_t forks_;
  pid_t process_;
};

// Never destroyed: what a child has of its parent's, and whose end would touch what is not there.
void abandon(std::shared_ptr<const void> thing);

// A T for each process: a child has one of its own from its first use on, since its parent's may be locked. Never destroyed. Any thread.
// To be a static variable.
template <class T>
class PerProcess {
 public:
  T& operator*() {
    Place* place = place_.load(std::memory_order_acquire);
    return place && place->forks == fork_count() ? place->thing : renew(place);
  }

 private:
  struct Place {
    T thing;
    std::uint32_t forks = fork_count();
  };
  T& renew(Place* old) {
    Place* const fresh = new Place;
    if (place_.compare_exchange_strong(old, fresh, std::memory_order_acq_rel)) return fresh->thing;
    delete fresh;      // another thread came first
    return old->thing;
  }
  std::atomic<Place*> place_{nullptr};
};

}  // namespace tutti
