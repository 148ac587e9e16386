#pragma once
// A simulated process: its loop and network on the virtual clock of a SimWorld.
//
// The contract that differs from a real loop: virtual time moves in SimWorld::step() only. So run(limit) dispatches
// what is due for this process and returns at once, whatever the limit, and so does wait(): code that blocks in run()
// until something has come would spin for ever. Whenever the process has something (a callback to run, but also bytes,
// room or an end of file at a stream that nobody asked to be told of), the world calls its tick, 0..wake_delay later. A
// tick is what a thread of the real process does when it wakes: drive the engine until nothing happens any more. It
// must call run(), directly or not; by default it is run(0). After a tick that leaves a callback undone another one
// follows.
//
// One thread runs the whole world; wake() and doorbells too may be called from that thread only.
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/net.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/fabric.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/wire.h"

namespace tutti::sim {

class SimLoop final : public Loop, public EventTarget, public std::enable_shared_from_this<SimLoop> {
 public:
  SimLoop(Fabric& fabric, Host& host, int process);
  ~SimLoop() override;

  TimePoint now() override { return fabric_.events.now(); }
  Network& network() override { return network_; }
  bool run(Nanoseconds limit) override;
  void wait(Nanoseconds) override {}
  Nanoseconds until_next_deadline() override;
  void wake() override { need_tick(); }
  std::shared_ptr<void> at(TimePoint when, std::function<void()> callback) override;
  void post(std::function<void()> callback) override;
  int doorbell_descriptor() override { return -1; }
  std::uint64_t random() override { return dice_.next(); }

  // What the process does when it wakes. May be changed at any time, by itself too.
  void on_tick(std::function<void()> tick);
  int process() const { return process_; }
  int host() const { return host_.number; }
  bool alive() const { return alive_; }
  bool paused() const { return paused_; }

  // For SimWorld.
  void kill();
  void pause() { paused_ = true; }
  void resume();
  void slow(Nanoseconds delay) { slow_ = delay; }      // each tick comes 0..delay later

  // For the wires and connects of this process.
  void stir(Wire& wire, int end);                       // something has happened at this end
  void accepted(std::shared_ptr<Binding> binding, std::unique_ptr<Stream> stream);
  void connected(std::shared_ptr<Attempt> attempt);

  void fire(std::uint32_t what) override;
  std::string describe(std::uint32_t what) const override;

 private:
  class Timer;
  struct Arrival {
    std::shared_ptr<Binding> binding;
    std::unique_ptr<Stream> stream;
  };
  struct Stirred {
    std::shared_ptr<Wire> wire;
    int end;
  };

  void need_tick();
  bool work_left() const;
  bool run_posts();
  bool run_timers();
  bool run_arrivals();
  bool run_attempts();
  bool run_streams();

  Fabric& fabric_;
  Host& host_;
  const int process_;
  Dice dice_;
  SimNetwork network_;
  bool alive_ = true;
  bool paused_ = false;
  bool tick_scheduled_ = false;
  bool tick_missed_ = false;                            // came while paused
  bool in_tick_ = false;
  Nanoseconds slow_{0};
  std::shared_ptr<const std::function<void()>> tick_;

  std::vector<std::function<void()>> posts_;
  std::vector<std::shared_ptr<Timer>> timers_;          // due, in order
  std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;   // of all timers that will call back, with their ids
  std::vector<Arrival> arrivals_;
  std::vector<std::shared_ptr<Attempt>> attempts_;      // ended
  std::vector<Stirred> stirred_;                        // ends with a callback to call, perhaps
};

}  // namespace tutti::sim
