#pragma once
// Runs a set of processes as one: passes signals to all, shows their output, stops the others when one fails, and
// returns when no process below this one is left. It knows neither ranks nor hosts, only Commands.
//
// One thread, one poll loop. The calling process should have no other thread (forked processes die with this one) and
// end soon afterwards: the signals handled here stay blocked, and it stays a subreaper.
#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tutti/status.h>
#include <vector>
#include "tools/child.h"
#include "tools/memory_events.h"

namespace tutti::tools {

// Passed on to all processes. A second one that asks to end (all but SIGUSR1) kills instead.
inline constexpr std::array kPassedSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

// What a process's failure means for the others.
enum class After { stop, restart, leave };        // leave: they go on without it

struct SupervisorOptions {
  std::chrono::milliseconds kill_after{5000};      // from SIGTERM to SIGKILL
  int lifeline = -1;                               // end of file there: stop everything, our guard is dead
  int control = -1;  // orders from another supervisor, see supervisor.cpp; end of file: stop
  int ended = -1;                                  // a text comes there: stop everything, that is the reason
  std::function<After(const Child&, std::size_t index)>
      after_failure;  // not asked while all are being stopped; unset: stop
};

struct Outcome {
  std::vector<Child> children;                     // none alive
  std::vector<LastLines> last_lines;               // of each
  std::vector<std::size_t> left_out;               // failed, and the others went on without them; in this order
  std::size_t restarts = 0;
  std::optional<std::size_t>
      first_failure;  // index into children; none where somebody has come through without those left out
  int passed_signal = 0;                           // the first that asked to end and came before the first failure
  std::string stop_reason;                         // why all were stopped, when not for a failure nor a signal
  std::size_t terminated = 0, killed = 0;          // of the others: how many ended after our SIGTERM or our SIGKILL
  std::optional<MemoryEvents> memory_before, memory_after;   // after: when the first failure was seen
  // 0; 128 + signal or the exit status of the first failure; 143 when stopped for stop_reason.
  int exit_status() const;
};

// A Status only when a process could not be started; those started before are gone
// again. `started` is called when all have been.
Result<Outcome> supervise(std::span<const Command> commands, const SupervisorOptions& options,
                          const std::function<void(std::span<const Child>)>& started = {});

// "SIGKILL"; "signal 40" for those without a name.
std::string signal_name(int number);

}  // namespace tutti::tools
