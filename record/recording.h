#pragma once
// Recording: what a recorder's file holds, as a value with times in nanoseconds of the wall clock. Reading believes nothing:
// sizes, stamps, texts and clocks are checked, and what makes no sense is left out. It draws no conclusions.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tutti/status.h>
#include <vector>

#include "record/format.h"

namespace tutti::record {

struct Operation {
  std::uint32_t number = 0;                        // of its entry, as started on this rank, from 1
  std::uint32_t communicator = 0, sequence = 0;    // communicator: with comm's mark for send and recv
  std::uint64_t call = 0;                          // packed
  std::int64_t started = 0, ended = 0;             // ended 0: pending
  bool in_run = false;                             // over within its call: its times are guesses, between those of a run of equal ones
  std::int64_t first_after = 0, last_after = 0;    // ns from the start to peers' first data; 0: had been there, or none came
  int last_peer = -1;
  int code = 0;
  std::uint64_t moved = 0, total = 0;              // total: payload of all so far, also of those of its run that follow
};

inline constexpr std::size_t kMostOperations = 8192;

struct Event {
  EventKind kind = EventKind::none;
  int peer = -1;
  std::int64_t at = 0;
  std::uint32_t communicator = 0, operation = 0;
  std::uint64_t a = 0, b = 0, c = 0, d = 0, e = 0;
};

struct Peer {
  int rank = 0;
  std::int64_t waited = 0;                         // ns
  std::uint32_t waits = 0;
  std::uint64_t service_bytes = 0, service_nanoseconds = 0;
  int state = 0;
  std::uint64_t resent = 0, retransmitted = 0;     // to it: frames, by us; segments, by the kernel
  std::uint32_t mended = 0;                        // its link, so many times
  std::string wire, way;                           // "rdma", "mlx5_0:1 10.0.0.1 -> 10.0.0.2 (1 queue pair)"
};

struct Recording {
  std::string path;
  std::uint64_t job = 0, host_identity = 0, process_start = 0;
  int rank = 0, rank_count = 1, pid = 0;
  std::string host, library;
  End end = End::running;
  std::int64_t begun = 0, last_beat = 0;
  struct Verdict {
    std::uint32_t communicator = 0;
    Status status;
    std::int64_t at = 0;
  };
  std::vector<Verdict> verdict;                    // none or one
  std::vector<Operation> operations;               // as started; the newest kMostOperations
  std::vector<Event> events;
  std::vector<Peer> peers;                         // those that something is known of
  std::size_t torn = 0;                            // entries that could not be read
  // As the process is now; only of files of this host.
  enum class Life { unknown, running, stopped, dead } life = Life::unknown;
};

// invalid_argument: why it is none.
Result<Recording> parse(std::span<const std::byte> bytes);
// The file, and how its process does. invalid_argument.
Result<Recording> read_recording(const std::string& path);
// Control characters and what is no UTF-8 become '?'.
std::string printable(std::string_view text);

}  // namespace tutti::record
