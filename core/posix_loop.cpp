#include "core/posix_loop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "core/check.h"
#include "core/fork.h"
#include "core/posix_net.h"

namespace tutti {
namespace {

constexpr std::uint64_t kDoorbellId = ~0ull;

}  // namespace

Poller::Poller()
    : epoll_(kept_from_children([] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      doorbell_(kept_from_children([] { return ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); })) {
  TUTTI_CHECK(epoll_ >= 0 && doorbell_ >= 0 && "out of descriptors: raise ulimit -n");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kDoorbellId;
  TUTTI_CHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, doorbell_, &event) == 0);
}

Poller::~Poller() {
  close_kept(doorbell_);
  close_kept(epoll_);
}

Poller::WatchId Poller::add(int descriptor) {
  if (free_.empty()) {
    free_.push_back(std::uint32_t(watches_.size()));
    watches_.push_back(std::make_unique<Watch>());
  }
  std::uint32_t index = free_.back();
  free_.pop_back();
  Watch& watch = *watches_[index];
  watch.descriptor = descriptor;
  return (std::uint64_t(watch.generation) << 32) | index;
}

Poller::Watch* Poller::find(WatchId id) {
  std::uint32_t index = std::uint32_t(id);
  if (index >= watches_.size()) return nullptr;
  Watch& watch = *watches_[index];
  return watch.descriptor >= 0 && watch.generation == std::uint32_t(id >> 32) ? &watch : nullptr;
}

void Poller::remove(WatchId id) {
  Watch* watch = find(id);
  TUTTI_CHECK(watch != nullptr);
  arm(*watch, id, 0);
  // Moved out first: what a callback owns may come back here when it dies.
  Callback dead[] = {std::move(watch->readable.callback), std::move(watch->writable.callback)};
  std::uint32_t generation = watch->generation + 1;
  *watch = Watch();
  watch->generation = generation;
  free_.push_back(std::uint32_t(id));
}

void Poller::arm(Watch& watch, WatchId id, std::uint32_t events) {
  if (watch.armed == events) return;
  // Without any interest it must leave: the kernel reports hang-ups even so.
  int what = events == 0 ? EPOLL_CTL_DEL : watch.armed == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  TUTTI_CHECK(::epoll_ctl(epoll_, what, watch.descriptor, &event) == 0);
  watch.armed = events;
}

void Poller::set(WatchId id, std::uint32_t event, Callback callback) {
  Watch* watch = find(id);
  TUTTI_CHECK(watch != nullptr);
  Side& side = watch->side(event);
  if (callback) arm(*watch, id, watch->armed | event);
  ++side.version;
  std::swap(side.callback, callback);  // the old one dies last: its end may come back here
}

bool Poller::call(WatchId id, std::uint32_t event) {
  Watch* watch = find(id);
  if (!watch || !watch->side(event).callback) return false;
  // Taken out while it runs: it may unset or replace itself, or destroy the stream.
  Callback running = std::move(watch->side(event).callback);
  watch->side(event).callback = nullptr;
  std::uint32_t version = watch->side(event).version;
  running();
  watch = find(id);
  if (watch && watch->side(event).version == version) watch->side(event).callback = std::move(running);
  return true;
}

bool Poller::dispatch(WatchId id, std::uint32_t events) {
  if (events & (EPOLLERR | EPOLLHUP)) events |= EPOLLIN | EPOLLOUT;
  bool called = false;
  if (events & EPOLLIN) called |= call(id, EPOLLIN);
  if (events & EPOLLOUT) called |= call(id, EPOLLOUT);
  if (called) return true;
  if (Watch* watch = find(id))
    arm(*watch, id, (watch->readable.callback ? EPOLLIN : 0u) | (watch->writable.callback ? EPOLLOUT : 0u));
  return false;
}

int Poller::wait_for_events(Nanoseconds limit, epoll_event* events, int capacity) {
#ifdef SYS_epoll_pwait2
  if (fine_waits_) {
    timespec spec{};
    spec.tv_sec = limit.count() / 1000000000;
    spec.tv_nsec = limit.count() % 1000000000;
    long count = ::syscall(SYS_epoll_pwait2, epoll_, events, capacity, limit.count() < 0 ? nullptr : &spec, nullptr, 0);
    if (count >= 0 || errno != ENOSYS) return int(count);
    fine_waits_ = false;
  }
#endif
  constexpr std::int64_t kLongest = 1 << 30;
  std::int64_t milliseconds =
      limit.count() < 0 ? -1 : std::min<std::int64_t>((limit.count() + 999999) / 1000000, kLongest);
  return ::epoll_wait(epoll_, events, capacity, int(milliseconds));
}

int Poller::wait(Nanoseconds limit, bool& woken) {
  constexpr int kBatch = 64;
  epoll_event events[kBatch];
  int count = wait_for_events(limit, events, kBatch);
  TUTTI_CHECK(count >= 0 || errno == EINTR);
  int called = 0;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 != kDoorbellId) {
      called += dispatch(events[i].data.u64, events[i].events);
      continue;
    }
    woken = true;
    std::uint64_t rings;
    while (::read(doorbell_, &rings, sizeof rings) < 0 && errno == EINTR) {
    }
    // After the read: a wake() in between adds nothing, and this wait is about to return anyway.
    rung_.exchange(false);
  }
  return called;
}

void Poller::wake() {
  if (rung_.exchange(true)) return;
  std::uint64_t one = 1;
  while (::write(doorbell_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

std::shared_ptr<void> Deadlines::add(TimePoint when, std::function<void()> callback) {
  struct Handle {
    std::weak_ptr<Entries> entries;
    Key key;
    Handle(const std::shared_ptr<Entries>& of, Key which) : entries(of), key(which) {}
    ~Handle() {
      auto alive = entries.lock();
      if (!alive) return;
      auto node = alive->by_time.extract(key);  // dies after the map is whole again
    }
  };
  Key key{when, ++count_};
  entries_->by_time.emplace(key, std::move(callback));
  return std::make_shared<Handle>(entries_, key);
}

std::optional<TimePoint> Deadlines::next() const {
  if (entries_->by_time.empty()) return std::nullopt;
  return entries_->by_time.begin()->first.first;
}

int Deadlines::run_due(TimePoint now) {
  int called = 0;
  const std::uint64_t newest = count_;  // those added meanwhile wait for the next round
  auto entries = entries_;
  while (!entries->by_time.empty()) {
    auto [when, number] = entries->by_time.begin()->first;
    if (when > now || number > newest) break;
    auto node = entries->by_time.extract(entries->by_time.begin());
    node.mapped()();
    ++called;
  }
  return called;
}

PosixLoop::PosixLoop(const Settings& settings) : network_(std::make_unique<PosixNetwork>(*this, settings)) {}
PosixLoop::~PosixLoop() = default;

TimePoint PosixLoop::now() { return std::chrono::time_point_cast<Nanoseconds>(std::chrono::steady_clock::now()); }
Network& PosixLoop::network() { return *network_; }
std::shared_ptr<void> PosixLoop::at(TimePoint when, std::function<void()> callback) {
  return deadlines_.add(when, std::move(callback));
}

std::shared_ptr<void> PosixLoop::watch(int descriptor, std::function<void()> callback) {
  const Poller::WatchId id = poller_->add(descriptor);
  poller_->set(id, EPOLLIN, std::move(callback));
  return {nullptr, [poller = poller_, id](std::nullptr_t) { poller->remove(id); }};
}

std::uint64_t PosixLoop::random() {
  std::uint64_t bits = 0;
  while (::getrandom(&bits, sizeof bits, 0) != ssize_t(sizeof bits)) {
  }
  return bits;
}

std::optional<TimePoint> PosixLoop::next_due() const { return posted_.empty() ? deadlines_.next() : TimePoint::min(); }

Nanoseconds PosixLoop::until_next_deadline() {
  auto due = next_due();
  if (!due) return Nanoseconds(-1);
  TimePoint time = now();
  return *due <= time ? Nanoseconds(0) : *due - time;
}

void PosixLoop::wait(Nanoseconds limit) {
  // Reads no member that run() changes: see the contract.
  pollfd watched{poller_->descriptor(), POLLIN, 0};
  timespec spec{};
  spec.tv_sec = limit.count() / 1000000000;
  spec.tv_nsec = limit.count() % 1000000000;
  ::ppoll(&watched, 1, limit.count() < 0 ? nullptr : &spec, nullptr);
}

int PosixLoop::run_posted() {
  std::vector<std::function<void()>> now_due;
  now_due.swap(posted_);
  for (auto& callback : now_due) callback();
  return int(now_due.size());
}

bool PosixLoop::run(Nanoseconds limit) {
  const bool for_ever = limit.count() < 0;
  const TimePoint start = now();
  const TimePoint end = for_ever || limit > TimePoint::max() - start ? TimePoint::max() : start + limit;
  bool woken = false;
  for (;;) {
    int called = run_posted();
    TimePoint time = now();
    called += deadlines_.run_due(time);
    TimePoint until = std::min(end, next_due().value_or(TimePoint::max()));
    Nanoseconds wait = called > 0 || until <= time ? Nanoseconds(0) : until - time;
    called += poller_->wait(until == TimePoint::max() && called == 0 ? Nanoseconds(-1) : wait, woken);
    if (called > 0 || woken) return called > 0;
    if (now() >= end) return false;
  }
}

std::unique_ptr<PosixLoop> make_posix_loop(const Settings& settings) { return std::make_unique<PosixLoop>(settings); }

}  // namespace tutti
