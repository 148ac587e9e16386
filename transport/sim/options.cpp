#include "transport/sim/options.h"

#include "transport/sim/dice.h"

namespace tutti::sim {

SimOptions rough_options(std::uint64_t seed) {
  Dice dice{seed ^ 0x726f756768ULL};
  const auto sometimes = [&](double strongest) {
    return dice.chance(0.5) ? strongest * static_cast<double>(dice.below(1000) + 1) / 1000.0 : 0.0;
  };
  SimOptions options;
  for (LinkOptions* link : {&options.network, &options.loopback, &options.unix_socket}) {
    link->latency = microseconds{1} + dice.up_to(microseconds{dice.chance(0.3) ? 5000 : 50});
    link->jitter = dice.up_to(dice.chance(0.5) ? link->latency * 4 : link->latency / 4);
    if (dice.chance(0.5)) link->window = 512 + dice.below(dice.chance(0.5) ? 4096 : 256 * 1024);
    if (dice.chance(0.5)) link->segment = 1 + dice.below(dice.chance(0.5) ? 2048 : 64 * 1024);
  }
  // Not with tiny segments: loss is counted by segment, and nothing would ever come through.
  if (options.network.segment >= 1024) options.network.loss = sometimes(0.02);
  if (dice.chance(0.5)) options.network.bytes_per_second = 1e7 + static_cast<double>(dice.below(10'000'000'000ULL));
  options.short_read = sometimes(0.5);
  options.short_write = sometimes(0.5);
  options.would_block = sometimes(0.2);
  options.wake_delay = dice.up_to(microseconds{dice.chance(0.3) ? 500 : 5});
  return options;
}

}  // namespace tutti::sim
