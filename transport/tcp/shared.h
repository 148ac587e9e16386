#pragma once
// What the connections of one tcp transport have in common: options, counters, pools. Owns no connection.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/net.h"
#include "transport/tcp/grants.h"
#include "transport/tcp/landing_pool.h"
#include "transport/tcp/out_frame.h"
#include "transport/transport.h"

namespace tutti::transport::tcp {

class TcpConnection;

struct TcpOptions {
  bool resumable = false;  // Listener::on_broken, rather than on_lost, where the last socket is gone
  bool crc = true;                              // checksum of payloads; headers always have one
  std::size_t segment_bytes = 0;                // of large messages; 0: kSegmentBytes
  std::size_t eager_bytes = 64 << 10;           // messages up to this need no grant, and are copied: Sent::done
  std::size_t landing_limit = 3 << 20;          // landing memory for granted segments
  std::size_t eager_limit = 1 << 20;            // and for eager ones, shared by the peers; each may send a few at least
  std::size_t ack_bytes = 512 << 10;            // received and not acknowledged before an ack is sent on its own
};

struct TcpCounters {
  std::uint64_t frames_out = 0, frames_in = 0;  // with payload or without, as written and read whole
  std::uint64_t bytes_out = 0, bytes_in = 0;    // on the wire, headers included
  std::uint64_t writes = 0, reads = 0;          // calls that moved something
  std::uint64_t empty_reads = 0;
  std::uint64_t acks_out = 0;                   // that travelled on their own
  std::uint64_t grants_out = 0, requests_out = 0;
  std::uint64_t resends = 0, damaged = 0, duplicates = 0;
  std::uint64_t sockets_lost = 0;
};

// How fast the wire brought bytes while it was what one waited for: in the middle of a segment, from one look that
// emptied the socket to the next that did. So neither a late receiver nor a sender
// that has nothing, nor one without a grant, counts.
struct Service {
  std::uint64_t bytes = 0, nanoseconds = 0;
};

// What had to be sent again: frames, by us; segments, by the kernel of this host.
struct Repairs {
  std::uint64_t frames = 0, segments = 0;
};

// The oldest frame that was written and not acknowledged, and what its socket's kernel has not delivered.
struct Unacknowledged {
  std::uint64_t sequence = 0;
  std::size_t unsent = 0;
};

struct Shared {
  Shared(Listener& to, const TcpOptions& with)
      : listener(to), options(with), frames(with.eager_bytes), landings(with.landing_limit), scratch(kScratchBytes) {
    grants.limit_ahead = with.landing_limit / 2;
    grants.limit = with.landing_limit - grants.limit_ahead;
  }

  static constexpr std::size_t kScratchBytes = 64 << 10;

  Listener& listener;
  Loop* clock = nullptr;                        // of Service; null: none is kept
  const TcpOptions options;
  TcpCounters counters;
  FramePool frames;
  LandingPool landings;
  GrantBudget grants;
  std::vector<std::byte> scratch;               // what reads of small frames go into; empty between reads
  std::vector<TcpConnection*> busy;             // have something to do at the next poll
  std::size_t connections = 0;

  // Eager bytes that one peer may have sent and this side not consumed, in credit units.
  std::uint32_t credit_window() const;
  // Segment bytes that suit a message; both ends compute the same.
  std::size_t segment_bytes(std::uint64_t message_bytes) const;
  std::uint32_t initial_credit() const { return 4 * credit_cost(options.eager_bytes); }
};

}  // namespace tutti::transport::tcp
