#pragma once
// Lending: which messages stay with their sender for the receiver to fetch (SegmentHeader::lend), rather than to be copied into what
// both share: one copy instead of two, but the sender waits for its receiver, and one core alone does the work.
#include <cstdint>
#include <optional>

#include "comm/planner.h"
#include "comm/program.h"
#include "core/config.h"

namespace tutti::comm {

// Bytes of messages, both included.
struct Lending {
  std::uint64_t from = ~std::uint64_t(0), to = ~std::uint64_t(0);
  bool includes(std::uint64_t bytes) const { return bytes >= from && bytes <= to; }
};

// Whether the settings let this rank lend anything.
bool may_lend(const Settings& settings);
// From how many bytes on lending pays; nullopt: never.
std::optional<std::uint64_t> lending_pays_from(const Settings& settings, const Prices& prices);
// Of this rank's messages in a collective; of one that it sends by itself.
Lending lending_of(const Program& program, const Settings& settings, const Prices& prices);
Lending lending_of_pairs(const Settings& settings, const Prices& prices);

}  // namespace tutti::comm
