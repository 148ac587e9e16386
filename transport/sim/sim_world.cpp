#include "transport/sim/sim_world.h"

#include <fmt/core.h>

#include <utility>

#include "core/check.h"
#include "transport/sim/wire.h"

namespace tutti::sim {

namespace {

class Script final : public EventTarget {
 public:
  Script(EventQueue& queue, std::function<void()> act) : EventTarget(queue), act_(std::move(act)) {}
  void fire(std::uint32_t) override { act_(); }
  std::string describe(std::uint32_t) const override { return "script"; }

 private:
  std::function<void()> act_;
};

}  // namespace

SimWorld::SimWorld(std::uint64_t seed, const SimOptions& options)
    : seed_(seed), fabric_(seed, options), script_dice_(~seed) {}

SimWorld::~SimWorld() {
  // Ticks and events may own streams: they go while the fabric still stands.
  for (const auto& process : processes_) process->on_tick(nullptr);
  fabric_.events.clear();
  processes_.clear();
  fabric_.events.clear();
}

int SimWorld::add_host(const HostOptions& options) { return fabric_.add_host(options).number; }

SimLoop& SimWorld::add_process(int host) {
  processes_.push_back(std::make_shared<SimLoop>(fabric_, fabric_.host(host), process_count()));
  return *processes_.back();
}

bool SimWorld::run_until(const std::function<bool()>& predicate, Nanoseconds limit) {
  const TimePoint end = now() + limit;
  while (!predicate()) {
    if (fabric_.events.empty()) return false;
    if (fabric_.events.next_time() > end) {
      fabric_.events.advance(end);
      return predicate();
    }
    step();
  }
  return true;
}

void SimWorld::run_for(Nanoseconds duration) {
  const TimePoint end = now() + duration;
  run_until([] { return false; }, duration);
  if (now() < end) fabric_.events.advance(end);
}

void SimWorld::after(Nanoseconds delay, std::function<void()> script) {
  fabric_.events.schedule(now() + delay, std::make_shared<Script>(fabric_.events, std::move(script)), 0);
}

void SimWorld::set_link(int host_a, int host_b, const LinkOptions& options) {
  fabric_.each_link(host_a, host_b, [&](Link& link) { link.options = options; });
}

void SimWorld::set_rail(int host_a, int host_b, int rail, const LinkOptions& options) {
  const auto [one, other] = fabric_.rail(host_a, host_b, rail);
  TUTTI_CHECK(one && other);
  fabric_.link(*one, *other).options = options;
  fabric_.link(*other, *one).options = options;
}

void SimWorld::blackhole(int host_a, int host_b) {
  TUTTI_CHECK(host_a != host_b);
  fabric_.each_link(host_a, host_b, [](Link& link) { link.blackholed = true; });
}

void SimWorld::blackhole_one_way(int from_host, int to_host) {
  TUTTI_CHECK(from_host != to_host);
  fabric_.each_link(from_host, to_host, [&](Link& link) {
    if (link.from->host == from_host) link.blackholed = true;
  });
}

void SimWorld::blackhole_rail(int host_a, int host_b, int rail) {
  const auto [one, other] = fabric_.rail(host_a, host_b, rail);
  TUTTI_CHECK(one && other && one != other);
  fabric_.link(*one, *other).blackholed = true;
  fabric_.link(*other, *one).blackholed = true;
}

void SimWorld::partition(const std::vector<std::vector<int>>& sides) {
  for (std::size_t i = 0; i < sides.size(); ++i) {
    for (std::size_t j = i + 1; j < sides.size(); ++j) {
      for (const int a : sides[i]) {
        for (const int b : sides[j]) blackhole(a, b);
      }
    }
  }
}

void SimWorld::heal() {
  for (int a = 0; a < fabric_.host_count(); ++a) {
    for (int b = a + 1; b < fabric_.host_count(); ++b) {
      fabric_.each_link(a, b, [](Link& link) { link.blackholed = false; });
    }
  }
  heal_wires();
}

void SimWorld::heal(int host_a, int host_b) {
  fabric_.each_link(host_a, host_b, [](Link& link) { link.blackholed = false; });
  heal_wires();
}

void SimWorld::heal_wires() {
  for (const auto& wire : fabric_.wires()) wire->heal();
}

void SimWorld::power_off(int host) {
  fabric_.host(host).dark = true;
  for (const auto& process : processes_) {
    if (process->host() == host) process->kill();
  }
}

std::function<void()> SimWorld::doorbell_of(int process) {
  return [loop = std::weak_ptr<SimLoop>(processes_.at(static_cast<std::size_t>(process)))] {
    if (const auto alive = loop.lock()) alive->wake();
  };
}

std::vector<WireInfo> SimWorld::wires() const {
  std::vector<WireInfo> all;
  for (const auto& wire : fabric_.wires()) {
    WireInfo& info = all.emplace_back();
    info.number = wire->number();
    for (int end = 0; end < 2; ++end) {
      info.process[end] = wire->loop(end)->process();
      info.address[end] = wire->address(end);
      info.written[end] = wire->written(end);
      info.arrived[end] = wire->arrived(end);
    }
  }
  return all;
}

void SimWorld::with_wire(std::uint64_t number, const std::function<void(Wire&)>& act) {
  if (const auto wire = fabric_.wire(number)) act(*wire);
}

void SimWorld::reset(std::uint64_t wire) {
  const int first = static_cast<int>(fabric_.dice.below(2));
  with_wire(wire, [first](Wire& it) { it.break_off(first); });
}

void SimWorld::reset_after(std::uint64_t wire, int end, std::uint64_t bytes) {
  with_wire(wire, [&](Wire& it) { it.break_after(end, bytes); });
}

void SimWorld::flip_after(std::uint64_t wire, int end, std::uint64_t bytes, std::byte bits) {
  with_wire(wire, [=](Wire& w) { w.flip_after(end, bytes, bits); });
}

void SimWorld::half_close(std::uint64_t wire, int end) {
  with_wire(wire, [end](Wire& it) { it.half_close(end); });
}

void SimWorld::stall(std::uint64_t wire, bool stalled) {
  with_wire(wire, [stalled](Wire& it) { it.set_stalled(stalled); });
}

std::string SimWorld::replay_line() const { return fmt::format("--seed {}", seed_); }

}  // namespace tutti::sim
