#pragma once
// The layout of a recorder's file: a page of facts, then three tables of entries of whole cache lines. Written through a map
// by one rank, read by anyone, also when that rank was killed in the middle of a store. Plain data; it reads and writes nothing.
//
// An entry of a ring carries its running number as `stamp`, stored last and cleared first: zero, or a number that does not
// belong to the place, is an entry that was torn or never written.
#include <cstddef>
#include <cstdint>

namespace tutti::record {

inline constexpr char kMagic[8] = {'t', 'u', 't', 't', 'i', 'r', 'e', 'c'};
inline constexpr std::uint32_t kVersion = 4;
inline constexpr std::uint32_t kOperations = 1024;   // a power of two; 64 KB
inline constexpr std::uint32_t kEvents = 256;        // a power of two
inline constexpr std::uint32_t kMostPeers = 1024;    // ranks beyond have no entry of their own
inline constexpr std::uint16_t kNobody = 0xffff;
inline constexpr int kAfterShift = 6;                // unit of first_after and last_after: 64 ticks

// One moment on three clocks.
struct Moment {
  std::uint64_t ticks;
  std::int64_t monotonic;      // ns, CLOCK_MONOTONIC
  std::int64_t wall;           // ns since 1970
};

enum class End : std::uint32_t { running, clean, failed };

struct Header {
  char magic[8];
  std::uint32_t version, header_bytes;
  std::uint32_t operations, events, peers;          // entries of the tables behind
  std::int32_t rank, rank_count, pid;
  std::uint64_t job, host_identity, process_start;  // of /proc/PID/stat: tells a later process with this pid
  char host[64], library[32];
  Moment first;
  std::uint32_t last_stamp, end;                    // last_stamp is odd while `last` is written
  Moment last;                                      // when somebody last looked after the rank: at most 0.5 s ago while it lives
  std::uint32_t verdict_stamp, verdict_code;        // 0: none; stored last
  std::int32_t verdict_culprit;
  std::uint32_t verdict_communicator;
  std::uint64_t verdict_ticks;
  char verdict[1024];                               // cut, ends with a zero
};
inline constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(Header) <= kHeaderBytes);

// One operation, written when it starts, completed in place when it ends. Or a run of them: equal calls one after the other, each over
// within its call, or about to be: then `operation` and `started` are the first one's, `ended` is a moment at which no more were over than
// are now, `moved` is of each, and first_after and last_after count those that began and those that are over.
struct alignas(64) OperationEntry {
  std::uint32_t stamp, communicator, operation;
  std::uint16_t last_peer;                          // the world rank whose first data came last; a send or recv: the other rank
  std::uint8_t code, run;                           // tutti::Code; 1: a run
  std::uint64_t call;                               // packed as comm/call.h does: the low five bits are the Collective
  std::uint64_t started, ended;                     // ticks; ended 0: pending. Stored last
  std::uint64_t total;                              // payload bytes of all operations so far, this one included
  std::uint64_t moved;                              // bytes sent, received and added by its steps
  std::uint32_t first_after, last_after;            // from the start until the first, and the last, peer's first data
};
static_assert(sizeof(OperationEntry) == 64);

enum class EventKind : std::uint16_t { none, joined, connected, lost, waits, hang, verdict, broken, mended };

struct alignas(64) EventEntry {
  std::uint32_t stamp;
  std::uint16_t kind, peer;                         // peer: a world rank or kNobody
  std::uint64_t ticks;
  std::uint32_t communicator, operation;
  // joined: rank_count, own rank. waits: step, steps, bytes done, bytes, 1 where it sends to the peer. verdict, broken: code.
  // mended: ns without a link, frames sent again so far, 1 where it had fallen silent and 0 where it was broken.
  std::uint64_t a, b, c, d, e;
};
static_assert(sizeof(EventEntry) == 64);

// What this rank knows of another one: by world rank.
struct alignas(64) PeerEntry {
  std::uint64_t waited;                             // ticks from calls until its data came, where it came last
  std::uint64_t service_bytes, service_nanoseconds; // come from it while its wire was what one waited for
  std::uint32_t waits;                              // so many times
  std::uint32_t state;                              // 0 none, 1 connected, 2 lost
  std::uint64_t resent, retransmitted;              // to it: frames, by us; segments, by the kernel
  std::uint32_t mended;                             // so many times a broken link was made again
  char wire[12];                                    // "shm", "tcp", "rdma"
  char way[128];                                    // by which addresses or devices, as it is now; cut, ends with a zero
};
static_assert(sizeof(PeerEntry) == 192);

constexpr std::size_t file_bytes(std::uint32_t peers) {
  return kHeaderBytes + kOperations * sizeof(OperationEntry) + kEvents * sizeof(EventEntry) + peers * sizeof(PeerEntry);
}

}  // namespace tutti::record
