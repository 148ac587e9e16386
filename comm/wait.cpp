// Waiting: who drives the engine, how long to spin, and when to sleep.
//
// A thread in wait() drives the engine itself, so a blocking operation costs no hand-over between threads. It spins for
// about as long as a wake-up would cost, then sleeps in the loop, where a peer's doorbell or a socket wakes it. One
// thread at a time sleeps there; others wait on turn_. The progress thread drives only what nobody waits for.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "comm/brief.h"
#include "comm/engine.h"
#include "comm/member.h"
#include "comm/relay.h"
#include "core/log.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint32_t kLoopEvery = 1024;         // passes between looks at the loop while spinning
constexpr microseconds kSpin{60};                  // about two wake-ups across cores
constexpr microseconds kCrowdedSpin{40};           // with more ranks than cores: yielding between the looks
constexpr int kWary = 64;                          // waits that yield between the looks after one that has slept
constexpr int kBriefLooks = 128;  // 2 to 4 us: longer than a peer is late that had to make an operation of its last one
constexpr microseconds kBriefYield{20};            // instead, where the core is given away between the looks
constexpr milliseconds kNap{100};                  // longest sleep, so that deadlines are seen
constexpr microseconds kGlance{50};                // while a kernel carries: what it says rings no bell
constexpr milliseconds kTick{2};                   // of the progress thread while operations come and go
constexpr int kTicks = 50;                         // without a start, until it dozes
constexpr milliseconds kIdleTick{500};             // of the dozing one

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool Engine::progress() {
  const std::uint64_t before = deliveries_;
  bool any = false;
  if (++passes_ % kLoopEvery == 0) any |= loop_->run(Nanoseconds(0));      // first: it takes the alarms that relays look for
  for (auto* t : wires_) any |= t->poll();
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const std::shared_ptr<Operation> operation =
        pending_[i]->execution && pending_[i]->execution->blocked() ? pending_[i] : nullptr;
    if (!operation) continue;
    any |= operation->execution->retry();
    if (operation->execution && operation->execution->finished()) complete(*operation, {});
  }
  for (std::size_t i = 0; i < relays_.size(); ++i) any |= relays_[i]->advance();
  return any || deliveries_ != before;
}

Nanoseconds Engine::spin_limit() const {
  if (settings_.spin.count() >= 0) return settings_.spin;
  return oversubscribed_ ? kCrowdedSpin : kSpin;
}

// How often to look for arrivals before asking the clock, or giving the core away: a look at memory costs less than
// either, a look at sockets more.
std::uint32_t Engine::looks_for_a_clock() const {
  const bool sockets = std::any_of(wires_.begin(), wires_.end(), [this](auto* t) { return t == tcp_.get(); });
  return sockets ? 1 : 32;
}

void Engine::drive() {
  {
    Lock held = lock();
    if (stopping_) return;
    journal_.tick();
    progress();
    loop_->run(Nanoseconds(0));
    check_deadlines();
  }
  run_callbacks();
}

void Engine::wait(Operation& operation, Nanoseconds limit) {
  Lock held = lock();
  ++drivers_;
  operation.waited = true;
  if (!operation.unwaited) expects_wait_ = true;
  const bool bounded = limit >= Nanoseconds(0);
  TimePoint spin_until{};
  const TimePoint end = bounded ? loop_->now() + limit : TimePoint::max();
  std::uint32_t quiet = 0;
  const std::uint32_t looks = looks_for_a_clock();
  while (!operation.complete() && !stopping_) {
    const bool moved = progress();
    if (!callbacks_.empty()) {          // what is waited for may complete by one
      held.unlock();
      run_callbacks();
      held = lock();
    }
    if (moved) {
      quiet = 0;
      continue;
    }
    if (operation.complete()) break;
    if (++quiet % looks != 0) {
      if (contenders_.load(std::memory_order_relaxed) > 0) {
        held.unlock();
        pause_cpu();
        held = lock();
      } else {
        if (quiet == 1) journal_.tick();
        else pause_cpu();
      }
      continue;
    }
    const TimePoint now = loop_->now();
    journal_.tick();
    if (quiet == looks) spin_until = now + spin_limit();
    if (now >= end) break;
    if (now < spin_until) {
      if (oversubscribed_ || wary_ > 0 || contenders_.load(std::memory_order_relaxed) > 0) {
        held.unlock();
        sched_yield();
        held = lock();
      }
      continue;
    }
    wary_ = kWary;      // whoever we wait for may want this core
    sleep(held, bounded ? end - now : kForever);
    check_deadlines();
    quiet = 0;
  }
  if (wary_ > 0) --wary_;
  --drivers_;
  if (queued_) turn_.notify_all();
  if (drivers_ == 0 && !pending_.empty() && (!expects_wait_ || !relays_.empty())) {
    if (!relays_.empty()) alarmed_ = true;      // nobody waits for what streams have told of
    bell_.ring();
  }
  const bool callbacks = !callbacks_.empty();
  held.unlock();
  if (callbacks) run_callbacks();
}

bool Engine::over_at_once(Member& member, Brief& brief, const Binding& binding, std::uint32_t& record) {
  brief.begin();
  // Who wants the lock, above all the progress thread, gets it in a wait only.
  const bool wanted = contenders_.load(std::memory_order_relaxed) > 0;
  if (stopping_ || wanted || !parked_.empty() || !brief.fits(member.wires())) return false;
  if (!brief.send(member.wires(), binding)) return false;
  shm_->hurry();
  journal_.begun(binding.header, brief.moved_bytes());       // while the bytes are on their way
  bool all = brief.look(member.wires(), binding);
  if (threaded_ && settings_.spin.count() != 0) {
    // Who wants this core may be the one that is waited for.
    const bool yields = oversubscribed_ || wary_ > 0;
    if (wary_ > 0) --wary_;
    const TimePoint until = yields && !all ? loop_->now() + kBriefYield : TimePoint{};
    for (int i = 1; !all && (yields ? loop_->now() < until : i < kBriefLooks); ++i) {
      if (yields) sched_yield();
      else pause_cpu();
      all = brief.look(member.wires(), binding);
    }
  }
  if (!all) {
    record = journal_.waits(binding.header);
    return false;
  }
  brief.finish(member.wires(), binding);
  journal_.over();
  ++totals_.completed;
  totals_.moved += brief.moved_bytes();
  starts_.store(starts_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return true;
}

bool Engine::prepare_sleep() {
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    if (transports_[i]->prepare_sleep()) continue;
    for (std::size_t k = 0; k <= i; ++k) transports_[k]->wake_done();
    return false;
  }
  return true;
}

// Sleeps until something happens, or `limit` (negative: none) or kNap is over. The lock is let go meanwhile.
void Engine::sleep(Lock& held, Nanoseconds limit) {
  Nanoseconds nap = limit >= Nanoseconds(0) ? std::min<Nanoseconds>(limit, kNap) : Nanoseconds(kNap);
  if (std::any_of(relays_.begin(), relays_.end(), [](const auto& relay) { return relay->wants_looks(); }))
    nap = std::min<Nanoseconds>(nap, kGlance);
  if (sleeping_) {
    ++queued_;
    turn_.wait_for(held, nap);
    --queued_;
    return;
  }
  if (!prepare_sleep()) return;
  const Nanoseconds due = loop_->until_next_deadline();
  if (due >= Nanoseconds(0)) nap = std::min(nap, due);
  sleeping_ = true;
  held.unlock();
  loop_->wait(nap);
  held = lock();
  sleeping_ = false;
  for (auto* t : transports_) t->wake_done();
  journal_.tick();
  loop_->run(Nanoseconds(0));
  if (queued_) turn_.notify_all();
}

// Under the lock, after operations were started: the progress thread takes them unless they are about to be waited for.
// One that looks seldom is told to look often.
void Engine::nudge() {
  if (sleeping_) return loop_->wake();
  if (drivers_.load(std::memory_order_relaxed) > 0) return;
  const bool dozes = dozing_.load(std::memory_order_relaxed);
  if (!expects_wait_.load(std::memory_order_relaxed) || dozes) bell_.ring();
  if (dozes) loop_->wake();
}

// Sleeps until there may be something that nobody waits for; looks often for a
// while after an operation was started, then seldom.
void Engine::progress_loop() {
  log::set_rank(world_rank_);
  std::uint32_t seen = 0;
  for (int quiet = 0; !stopping_;) {
    journal_.beat();
    dozing_ = quiet >= kTicks;
    bool rung = false;
    if (dozing_ && drivers_ == 0) {
      loop_->wait(kIdleTick);           // other ranks' questions are heard at once
      rung = bell_.take();
    } else {
      rung = bell_.wait_for(dozing_ ? Nanoseconds(kIdleTick) : Nanoseconds(kTick));
    }
    const std::uint32_t starts = starts_;
    quiet = starts == seen ? std::min(quiet + 1, kTicks) : 0;
    seen = starts;
    if (drivers_ > 0 || (rung && expects_wait_ && !alarmed_.exchange(false))) continue;
    if (!drive_unwaited()) return;
  }
}

// Drives what nobody waits for until it is complete, or somebody waits. False: the engine is gone.
bool Engine::drive_unwaited() {
  Lock held = lock();
  std::uint32_t quiet = 0;
  TimePoint spin_until{};
  do {
    if (stopping_) return true;
    if (drivers_ > 0) break;
    journal_.tick();
    if (pending_.empty()) {
      progress();
      loop_->run(Nanoseconds(0));
      check_deadlines();                // what was sent last may not have arrived
    } else if (progress()) {
      quiet = 0;
    } else {
      const TimePoint now = loop_->now();
      if (quiet++ == 0) {
        spin_until = now + spin_limit();
        for (const auto& operation : pending_) {
          if (operation->waited) continue;
          operation->unwaited = true;
          expects_wait_ = false;
        }
      }
      if (now >= spin_until) {
        sleep(held, kForever);
        journal_.beat();
        quiet = 0;
      } else {
        held.unlock();
        if (oversubscribed_) sched_yield();
        else pause_cpu();
        held = lock();
      }
      check_deadlines();
    }
    if (callbacks_.empty()) continue;
    // A callback may drop the last handle on this engine, which then ends here.
    const std::weak_ptr<Engine> alive = weak_from_this();
    std::shared_ptr<Engine> self = alive.lock();
    if (!self) return false;
    held.unlock();
    run_callbacks();
    self.reset();
    if (alive.expired()) return false;
    held = lock();
  } while (!pending_.empty());
  return true;
}

}  // namespace tutti::comm
