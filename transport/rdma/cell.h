#pragma once
// What goes through an inbox: cells of 64 bytes of header and a payload, written by the peer in the order of the ring. And what the 32
// bits say that arrive with every write. Both ends have the same byte order (checked at start-up).
#include <cstddef>
#include <cstdint>

#include "transport/rdma/fabric.h"
#include "transport/transport.h"

namespace tutti::transport::rdma {

inline constexpr std::size_t kUnit = 64;                  // what the ring counts in
inline constexpr std::size_t kRingBytes = 64 << 10;
inline constexpr std::uint32_t kRingUnits = kRingBytes / kUnit;
inline constexpr std::size_t kEagerBytes = 8 << 10;       // messages up to this travel in cells
inline constexpr std::size_t kFreeBytes = 256;            // segments up to this cost no credit
inline constexpr std::uint32_t kCreditUnits = kRingUnits; // of cells that wait at the receiver for their use

enum class CellType : std::uint8_t {
  data = 1,   // a segment
  grant,      // the message may be written up to `offset`; GrantBody
  credit,     // nothing but what each header says
  revoke,     // nothing of that communicator is granted any more; to be answered
  revoked,    // the answer, once nothing of it is under way
  reserve,    // the reserve of that communicator is free again
};

enum CellFlag : std::uint8_t {
  kCredited = 1,   // takes credit until used
  kReserve = 2,    // takes the reserve of its communicator instead
};

struct Cell {
  CellType type = CellType::credit;
  std::uint8_t flags = 0;
  std::uint16_t message = 0;
  std::uint32_t bytes = 0;           // of the payload behind it
  std::uint32_t communicator = 0, operation = 0;
  std::uint32_t plan = 0;
  std::uint32_t end = 0;             // of this cell in the ring, in units since the beginning
  std::uint32_t freed = 0;           // of the ring that goes the other way
  std::uint32_t used = 0;            // credit units, the other way, since the beginning
  std::uint32_t receives = 0;        // posted on queue pair `queue`, since the beginning
  std::uint32_t queue = 0;
  std::uint64_t offset = 0, message_bytes = 0, call = 0;
};
static_assert(sizeof(Cell) == kUnit);

struct GrantBody {
  std::uint64_t address = 0;
  std::uint64_t window = 0;          // bytes there, used in turn; a multiple of the grid, or the whole message
  std::uint32_t id = 0;
  std::uint32_t keys[kMostPorts] = {};   // by the receiver's ports, as it offers them
};

constexpr std::uint32_t units_of(std::size_t payload) { return 1 + std::uint32_t((payload + kUnit - 1) / kUnit); }

// Writes of granted messages are cut at multiples of the grid, which both ends compute alike; a write tells its grant and the number of
// its grid cell. Those of one grid cell go by one queue pair, in order.
inline constexpr std::uint32_t kGrantBits = 11, kIndexBits = 20;
inline constexpr std::uint32_t kMostGrants = 1u << kGrantBits;
inline constexpr std::uint32_t kIsCell = 1u << 31;
inline constexpr std::uint32_t kGreeting = kIsCell | 1u << 30;       // with the number of the queue pair

inline SegmentHeader header_of(const Cell& cell) {
  return {.key = {cell.communicator, cell.operation, cell.message}, .bytes = cell.bytes, .offset = cell.offset, .message_bytes = cell.message_bytes, .call = cell.call, .plan = cell.plan};
}

}  // namespace tutti::transport::rdma
