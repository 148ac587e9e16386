#pragma once
// What a simulated world is like: delays, sizes and how often things go wrong. Plain values; no behaviour.
#include <cstddef>
#include <cstdint>

#include "core/net.h"

namespace tutti::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// One direction between two network cards. Chances are 0..1.
struct LinkOptions {
  Nanoseconds latency = microseconds{20};
  Nanoseconds jitter = microseconds{10};       // 0..jitter more, drawn for each segment; bytes stay in order
  double bytes_per_second = 0;                 // of the sending card, shared by its connections; 0: no limit
  double loss = 0;                             // a segment is lost once and sent again: it comes loss_stall later
  Nanoseconds loss_stall = milliseconds{200};  // the smallest retransmission timeout of Linux
  double reset = 0;                            // a segment arrives in part and then the connection is reset
  std::size_t window = 256 * 1024;             // bytes written and not yet known to be read; then writes block
  std::size_t segment = 64 * 1024;             // longest piece that arrives at once
};

struct SimOptions {
  LinkOptions network;
  LinkOptions loopback{.latency = microseconds{5}, .jitter = microseconds{5}};
  LinkOptions unix_socket{.latency = microseconds{3}, .jitter = microseconds{3}};
  double short_read = 0;                       // a read returns only a part of what is there
  double short_write = 0;                      // a write takes only a part of what fits
  double would_block = 0;                      // a write takes nothing although there is room
  Nanoseconds wake_delay = microseconds{5};    // a process ticks 0..wake_delay after the cause
  Nanoseconds connect_timeout = seconds{127};  // Linux, tcp_syn_retries = 6
  Nanoseconds give_up = seconds{924};          // unacknowledged bytes for so long: ETIMEDOUT; Linux, tcp_retries2 = 15
};

// A world drawn from the seed: each kind of trouble is on in about half of the seeds, with its own strength, so that
// faults meet in changing sets (swarm testing; Groce et al. 2012). No resets: those are for tests that expect them.
SimOptions rough_options(std::uint64_t seed);

struct HostOptions {
  int cards = 1;                               // rails: card r has 10.(16r + h/256).(h%256).1 and fd00:r::h
  bool ipv4 = true;
  bool ipv6 = true;
};

}  // namespace tutti::sim
