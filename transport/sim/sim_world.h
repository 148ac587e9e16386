#pragma once
// A whole world of hosts and processes on one virtual clock, made from a seed: the real bootstrap, framing and
// transports run in it through core/net.h, and what is hard to provoke (delays, short reads, resets in mid-frame,
// partitions, kills) is a call here. Not a model of performance: no queueing in switches, no congestion control, no
// cost of computing.
//
// The same seed and the same calls give the same events in the same order, hence the same trace_hash(): print
// replay_line() when a test fails. Destroy what was made from a loop (streams, acceptors, handles, engines) before the
// world. Use from one thread. See sim_loop.h for what a process may count on.
//
//   SimWorld world(seed);
//   SimLoop& server = world.add_process(world.add_host());
//   SimLoop& client = world.add_process(world.add_host());
//   server.on_tick([&] { server.run({}); engine.progress(); });
//   ...
//   ASSERT_TRUE(world.run_until([&] { return engine.done(); }, seconds{10})) << world.replay_line();
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/net.h"
#include "transport/sim/fabric.h"
#include "transport/sim/options.h"
#include "transport/sim/sim_loop.h"

namespace tutti::sim {

// A connection that exists. End 0 has connected, end 1 has accepted.
struct WireInfo {
  std::uint64_t number = 0;
  int process[2] = {-1, -1};
  std::string address[2];
  std::uint64_t written[2] = {0, 0};      // bytes, by the end that wrote them
  std::uint64_t arrived[2] = {0, 0};
};

class SimWorld {
 public:
  explicit SimWorld(std::uint64_t seed, const SimOptions& options = {});
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  // Numbers from 0. Host h: name "host<h>", addresses as in HostOptions.
  int add_host(const HostOptions& options = {});
  SimLoop& add_process(int host);
  SimLoop& process(int number) { return *processes_.at(static_cast<std::size_t>(number)); }
  int process_count() const { return static_cast<int>(processes_.size()); }

  // Driving. step() runs the next event; false: nothing will ever happen any more.
  bool step() { return fabric_.events.step(); }
  // Steps until the predicate holds (asked after each event), nothing is left to happen, or `limit` of virtual time has
  // gone by. Returns what the predicate says at the end.
  bool run_until(const std::function<bool()>& predicate, Nanoseconds limit);
  void run_for(Nanoseconds duration);
  // A step of the script, e.g. a fault.
  void after(Nanoseconds delay, std::function<void()> script);
  TimePoint now() const { return fabric_.events.now(); }

  // Links: all cards of two hosts, or of one rail, in both directions. Changes hold for what is sent from now on.
  void set_link(int host_a, int host_b, const LinkOptions& options);
  void set_rail(int host_a, int host_b, int rail, const LinkOptions& options);
  // Bytes vanish and are sent again after the healing; connects and, after give_up, writes time out.
  void blackhole(int host_a, int host_b);
  void blackhole_one_way(int from_host, int to_host);
  void blackhole_rail(int host_a, int host_b, int rail);
  // Hosts of different sides do not reach each other. Hosts in no side reach all.
  void partition(const std::vector<std::vector<int>>& sides);
  void heal();                                     // all black holes
  void heal(int host_a, int host_b);
  void power_off(int host);                        // its processes are gone without a word, its links are black holes

  // Processes. A killed one never runs again; its kernel closes its streams (end of file, or reset) and refuses
  // connects.
  void kill(int process) { this->process(process).kill(); }
  void pause(int process) { this->process(process).pause(); }       // SIGSTOP; its kernel goes on
  void resume(int process) { this->process(process).resume(); }
  void slow(int process, Nanoseconds delay) { this->process(process).slow(delay); }   // wakes 0..delay later
  // Wakes the process, as a write to its eventfd by a peer in shared memory would.
  std::function<void()> doorbell_of(int process);

  // Connections, by number (SimStream::wire). Those that are gone are ignored; `end` as in WireInfo.
  std::vector<WireInfo> wires() const;
  void reset(std::uint64_t wire);                                       // both ends, one latency after the other
  void reset_after(std::uint64_t wire, int end, std::uint64_t bytes);   // once so many more bytes of `end` have arrived
  void flip_after(std::uint64_t wire, int end, std::uint64_t bytes, std::byte bits);    // of the byte that arrives then
  void half_close(std::uint64_t wire, int end);                         // as shutdown(SHUT_WR) at `end`
  void stall(std::uint64_t wire, bool stalled);                         // black hole for this connection only

  std::uint64_t seed() const { return seed_; }
  std::string replay_line() const;                 // "--seed 123"
  std::uint64_t trace_hash() const { return fabric_.events.trace_hash(); }
  std::uint64_t event_count() const { return fabric_.events.event_count(); }
  // Told of each event in words: to see what a seed does.
  void observe(EventQueue::Observer observer) { fabric_.events.observe(std::move(observer)); }
  // For choices of the script that shall follow from the seed too.
  Dice& dice() { return script_dice_; }

 private:
  void heal_wires();
  void with_wire(std::uint64_t number, const std::function<void(Wire&)>& act);

  const std::uint64_t seed_;
  Fabric fabric_;
  Dice script_dice_;
  std::vector<std::shared_ptr<SimLoop>> processes_;
};

}  // namespace tutti::sim
