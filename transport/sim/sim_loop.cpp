#include "transport/sim/sim_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace tutti::sim {

namespace {

// A process that calls for a tick from its tick gets it so much later at the earliest: time goes on.
constexpr Nanoseconds kAgain = microseconds{1};

}  // namespace

class SimLoop::Timer : public EventTarget, public std::enable_shared_from_this<SimLoop::Timer> {
 public:
  Timer(EventQueue& queue, SimLoop& loop, TimePoint when, std::function<void()> callback)
      : EventTarget(queue), loop_(loop.weak_from_this()), when_(when), callback_(std::move(callback)) {
    loop.deadlines_.emplace(when_, id());
  }

  void cancel() { take(); }
  bool call() {
    const auto callback = take();                  // the callback may drop the handle
    if (callback) callback();
    return static_cast<bool>(callback);
  }
  void fire(std::uint32_t) override {
    const auto loop = loop_.lock();
    if (!loop || !loop->alive_ || !callback_) return;
    loop->timers_.push_back(shared_from_this());
    loop->need_tick();
  }
  std::string describe(std::uint32_t) const override {
    const auto loop = loop_.lock();
    return fmt::format("timer of process {}{}", loop ? loop->process() : -1, callback_ ? "" : " (cancelled)");
  }

 private:
  std::function<void()> take() {
    if (const auto loop = loop_.lock()) loop->deadlines_.erase({when_, id()});
    return std::exchange(callback_, nullptr);
  }

  std::weak_ptr<SimLoop> loop_;
  const TimePoint when_;
  std::function<void()> callback_;
};

SimLoop::SimLoop(Fabric& fabric, Host& host, int process)
    : EventTarget(fabric.events), fabric_(fabric), host_(host), process_(process), dice_(fabric.dice.next()),
      network_(fabric, host, *this) {}

SimLoop::~SimLoop() = default;

bool SimLoop::run(Nanoseconds) {
  if (!alive_ || paused_) return false;
  bool ran = run_posts();
  ran |= run_timers();
  ran |= run_arrivals();
  ran |= run_attempts();
  ran |= run_streams();
  if (work_left()) need_tick();
  return ran;
}

// Each takes what is there now; what its callbacks add waits for the next run.
bool SimLoop::run_posts() {
  std::vector<std::function<void()>> posts;
  posts.swap(posts_);
  for (auto& post : posts) {
    if (alive_) post();
  }
  return !posts.empty();
}

bool SimLoop::run_timers() {
  std::vector<std::shared_ptr<Timer>> timers;
  timers.swap(timers_);
  bool ran = false;
  for (auto& timer : timers) ran |= alive_ && timer->call();
  return ran;
}

bool SimLoop::run_arrivals() {
  std::vector<Arrival> arrivals;
  arrivals.swap(arrivals_);
  bool ran = false;
  for (auto& [binding, stream] : arrivals) {
    if (!alive_ || !binding->open) continue;
    binding->on_accept(std::move(stream));
    ran = true;
  }
  return ran;
}

bool SimLoop::run_attempts() {
  std::vector<std::shared_ptr<Attempt>> attempts;
  attempts.swap(attempts_);
  bool ran = false;
  for (auto& attempt : attempts) ran |= alive_ && attempt->call();
  return ran;
}

bool SimLoop::run_streams() {
  std::vector<Stirred> stirred;
  stirred.swap(stirred_);
  // The kernel promises no order among descriptors.
  for (std::size_t i = stirred.size(); i > 1; --i) std::swap(stirred[i - 1], stirred[fabric_.dice.below(i)]);
  bool ran = false;
  for (auto& [wire, end] : stirred) {
    wire->set_listed(end, false);
    if (!alive_) continue;
    ran |= wire->dispatch(end);
    if (wire->due(end) && !wire->listed(end)) {
      wire->set_listed(end, true);
      stirred_.push_back({wire, end});
    }
  }
  return ran;
}

std::shared_ptr<void> SimLoop::at(TimePoint when, std::function<void()> callback) {
  auto timer = std::make_shared<Timer>(fabric_.events, *this, when, std::move(callback));
  fabric_.events.schedule(when, timer, 0);
  return {timer.get(), [timer](void*) { timer->cancel(); }};
}

Nanoseconds SimLoop::until_next_deadline() {
  if (deadlines_.empty()) return Nanoseconds{-1};
  return std::max(deadlines_.begin()->first - now(), Nanoseconds{0});
}

void SimLoop::post(std::function<void()> callback) {
  posts_.push_back(std::move(callback));
  need_tick();
}

void SimLoop::on_tick(std::function<void()> tick) {
  tick_ = tick ? std::make_shared<const std::function<void()>>(std::move(tick)) : nullptr;
  need_tick();
}

void SimLoop::need_tick() {
  if (!alive_ || tick_scheduled_) return;
  tick_scheduled_ = true;
  const Nanoseconds delay = fabric_.dice.up_to(fabric_.options.wake_delay) + fabric_.dice.up_to(slow_);
  fabric_.events.schedule(now() + std::max(delay, in_tick_ ? kAgain : Nanoseconds{0}), shared_from_this(), 0);
}

bool SimLoop::work_left() const {
  return !posts_.empty() || !timers_.empty() || !arrivals_.empty() || !attempts_.empty() || !stirred_.empty();
}

void SimLoop::fire(std::uint32_t) {
  tick_scheduled_ = false;
  if (!alive_) return;
  if (paused_) {
    tick_missed_ = true;
    return;
  }
  in_tick_ = true;
  if (const auto tick = tick_) {
    (*tick)();
  } else {
    run(Nanoseconds{0});
  }
  if (work_left()) need_tick();
  in_tick_ = false;
}

void SimLoop::resume() {
  paused_ = false;
  if (std::exchange(tick_missed_, false) || work_left()) need_tick();
}

void SimLoop::kill() {
  if (!alive_) return;
  alive_ = false;
  std::erase_if(host_.bindings, [this](const auto& binding) {
    if (binding->loop == this) binding->open = false;
    return binding->loop == this;
  });
  for (const auto& wire : fabric_.wires()) {
    for (int end = 0; end < 2; ++end) {
      if (wire->loop(end) == this) wire->kill(end, fabric_.dice.chance(0.25));
    }
  }
}

void SimLoop::stir(Wire& wire, int end) {
  if (!alive_) return;
  if (!wire.listed(end) && wire.due(end)) {
    wire.set_listed(end, true);
    stirred_.push_back({wire.shared_from_this(), end});
  }
  need_tick();
}

void SimLoop::accepted(std::shared_ptr<Binding> binding, std::unique_ptr<Stream> stream) {
  arrivals_.push_back({std::move(binding), std::move(stream)});
  need_tick();
}

void SimLoop::connected(std::shared_ptr<Attempt> attempt) {
  attempts_.push_back(std::move(attempt));
  need_tick();
}

std::string SimLoop::describe(std::uint32_t) const { return fmt::format("process {} ticks", process_); }

}  // namespace tutti::sim
