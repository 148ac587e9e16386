#pragma once
// Word: what ranks say to all others over the control plane while they work: causes and verdicts, requests to be
// dialled, and the questions and answers of those who wait too long. A value and its encoding.
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tutti/status.h>
#include <vector>

#include "comm/stand.h"
#include "comm/wire_bytes.h"

namespace tutti::comm {

// Where a rank stands in one communicator, by its own word.
struct Report {
  std::uint32_t started = 0;        // operations called so far (collectives; send and recv do not count)
  bool pending = false;             // some are not complete
  std::vector<int> waits_for;       // communicator ranks that its pending operations need something from
  std::vector<Stand> stands;        // the first waits of its oldest pending operations
  bool operator==(const Report&) const = default;
};

// Who of a broken communicator goes on, as one rank believes (see Agreement). Communicator ranks.
struct Belief {
  std::set<int> lost;               // shall not be in the next one
  std::set<int> ended;              // those of them whose process has certainly ended
  bool agreed = false;              // this is how it is
  std::uint32_t id = 0;             // of the next communicator: what the speaker proposes, or what was agreed
  bool operator==(const Belief&) const = default;
};

struct Word {
  enum class Kind : std::uint8_t { cause, verdict, dial_me, ask, report, hang_draft, hang, belief } kind = Kind::cause;
  std::uint32_t communicator = 0;   // not of dial_me
  int about = -1;                   // dial_me, ask: the world rank that is meant; ask, -1: all of the communicator
  Status status;                    // cause, verdict; the text is cut at kMaxText
  Report report;
  Belief belief;
  std::string hang;                 // hang_draft, hang: a HangReport, encoded

  static constexpr std::size_t kMaxText = 4096, kMaxWaits = 16, kMaxHang = 32 << 10;
  std::vector<std::byte> encode() const;
  static std::optional<Word> decode(std::span<const std::byte> bytes);
};

inline constexpr std::size_t kMaxStands = 4;
void encode(const std::vector<Stand>& stands, ByteWriter& to);       // the first kMaxStands
std::vector<Stand> decode_stands(ByteReader& from);

}  // namespace tutti::comm
