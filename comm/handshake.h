#pragma once
// What every connection between ranks begins with: both sides prove that they know the job's key (HMAC-SHA256 over both
// sides' random numbers), and say who they are. It carries no payload and encrypts nothing, but agrees on whether what
// follows is to be encrypted (where either end wants it) and on a secret for that.
//
//   caller -> listener   magic 8, wire version 4, then: purpose and whether to encrypt, job, rank, epoch, index, count,
//   16 random bytes listener -> caller   magic 8, wire version 4, then: rank and whether to encrypt, 16 random bytes,
//   HMAC("listener", both messages so far) caller -> listener   HMAC("caller", both messages so far) listener -> caller
//   1 byte: welcome
//
// Without the welcome a caller could hold a connection that its listener has given up.
//
// Magic and wire version lead in all versions, so that two versions can name each other. A listener drops a connection
// on the first byte that is wrong, and holds less than 256 bytes of it at any time. Replays fail on the listener's
// random bytes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/task.h"

namespace tutti::comm {

// What a connection is for. knock: for nothing but to have a control link dialled from there.
enum class Purpose : std::uint8_t { meeting, control, shm, tcp, rdma, knock };
inline constexpr int kPurposeCount = 6;
const char* name_of(Purpose purpose);

struct PeerHello {
  int rank = -1;  // -1: none (the maker of a UniqueId)
  Purpose purpose = Purpose::meeting;
  std::uint32_t epoch = 0;
  std::uint16_t index = 0;  // of `count` connections that belong together
  std::uint16_t count = 1;
  std::uint32_t call = 0;  // the same on connections that belong together
  bool operator==(const PeerHello&) const = default;
};

struct JobKey {
  std::array<std::byte, 32> secret{};
  std::uint64_t job = 0;  // from the secret; says nothing about it
  bool encrypt = false;   // what follows handshakes over TCP
  bool operator==(const JobKey&) const = default;
};
// Any text or bytes; the same in, the same out.
JobKey make_job_key(std::string_view secret);

// What follows a handshake.
struct ChannelTerms {
  bool encrypt = false;
  std::array<std::byte, 32> secret{};   // of this connection alone; both ends have the same
};

inline constexpr std::chrono::seconds kHandshakeLimit{5};

// Ends by the deadline. Errors: mismatch (another wire version: names both; another job or key), network (not a
// handshake, closed, failed), timeout. On an error the stream is of no use any more.
Task<Result<PeerHello>> handshake_accept(Loop& loop, Stream& stream, const JobKey& key, int own_rank,
                                         TimePoint deadline, ChannelTerms* terms = nullptr);
// The listener's rank is in the answer, nothing else of it. With `taken`, one of several attempts side by side: the
// first to come so far sets it and goes on, the others end (aborted) before the listener takes them for a connection.
Task<Result<PeerHello>> handshake_connect(Loop& loop, Stream& stream, const JobKey& key, PeerHello own,
                                          TimePoint deadline, bool* taken = nullptr, ChannelTerms* terms = nullptr);

}  // namespace tutti::comm
