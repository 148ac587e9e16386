#pragma once
// What lies in shared memory, byte for byte. All ranks of a job run the same wire version, so that plain structs serve.
//
// What lies in a region (regions.h), or is lent (SegmentHeader::lend), stays there: the cell tells where, and a ticket, a
// counter like that of a slot, tells when the receiver has read it.
//
// Outbox: one a rank, mapped by all its local peers. Slots hold segments that the owner sends; receivers read them in
// place and count `readers` down. Lane pair: one a connection; each lane is a ring of cells that its sender fills and
// its receiver empties. A cell carries the header, and the payload itself where that is small: 16 bytes share the
// header's cache line.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::transport::shm {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::uint32_t kCells = 16;             // of a lane: as many messages may be under way
inline constexpr std::uint32_t kInlineBytes = 208;      // payload of a cell
inline constexpr std::uint32_t kSumBytes = 4;  // of a checksum, where there is one: the last of a cell's payload
inline constexpr std::uint32_t kNoSlot = ~0u;

struct SlotClass {
  std::uint32_t bytes, count;
};
// Small ones for latency, large ones for bandwidth: two large slots in flight fit a
// second-level cache. Untouched slots cost nothing.
inline constexpr std::array<SlotClass, 2> kSlotClasses{{{4096, 16}, {65536, 32}}};
inline constexpr std::uint32_t kGroup = 8;              // slots that get their pages together, when first needed
static_assert(kSlotClasses[0].count % kGroup == 0 && kSlotClasses[1].count % kGroup == 0);
inline constexpr std::uint32_t kShared = kSlotClasses[0].count + kSlotClasses[1].count;
// One large slot, and one ticket, for each (peer, communicator), made when the shared ones are taken: room for SegmentHeader::first.
inline constexpr std::uint32_t kReserve = 448;
inline constexpr std::uint32_t kSlots = kShared + kReserve;
// Numbered behind the slots. Behind them, as many as there are slots in reserve, for the same.
inline constexpr std::uint32_t kTickets = 64;
inline constexpr std::uint32_t kAllTickets = kTickets + kReserve;
// Bits of the counter of a lent segment's ticket, the lowest of which says that it is to be read. The owner: it is not there any
// more. The reader: it cannot read it, and wants it to be sent.
inline constexpr std::uint32_t kTakenBack = 1u << 31, kRefused = 1u << 30;
inline constexpr std::uint32_t kLargestLent = 256 << 10;
inline constexpr std::uint32_t kLeastInPlace = 4096;    // bytes of a segment that is worth a ticket
inline constexpr std::uint32_t kMostGlanced = 16384;    // bytes of a message that is copied whatever it is, so that it may be looked at

// Bits of Outbox::sleeping: what the owner wants to be woken for.
inline constexpr std::uint32_t kWantsData = 1, kWantsRoom = 2;

struct Outbox {
  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;
  struct alignas(kCacheLine) Slot {
    std::atomic<std::uint32_t> readers;
  };
  std::array<Slot, kSlots + kAllTickets> slots;
  std::atomic<std::int32_t> process, descriptor;  // by which others may find this memory, to see whether they find any
  std::atomic<std::uint64_t> address;             // of this in that process
};
inline constexpr std::size_t kOutboxHeader = (sizeof(Outbox) + 4095) / 4096 * 4096;

// Offset of a slot's bytes in the outbox.
constexpr std::size_t slot_offset(std::uint32_t slot) {
  const SlotClass small = kSlotClasses[0], large = kSlotClasses[1];
  if (slot < small.count) return kOutboxHeader + std::size_t(slot) * small.bytes;
  return kOutboxHeader + std::size_t(small.count) * small.bytes + std::size_t(slot - small.count) * large.bytes;
}
constexpr std::uint32_t slot_bytes(std::uint32_t slot) {
  return slot < kSlotClasses[0].count ? kSlotClasses[0].bytes : kSlotClasses[1].bytes;
}
inline constexpr std::size_t kOutboxBytes = slot_offset(kSlots);

struct alignas(kCacheLine) Cell {
  std::atomic<std::uint32_t> sequence;   // position + 1 when filled
  std::uint32_t bytes;
  std::uint32_t communicator;
  std::uint32_t operation;
  std::uint16_t message;
  std::uint16_t plan;
  std::uint32_t slot;                    // kNoSlot: payload inline
  std::uint64_t call;
  std::uint64_t offset;
  std::uint64_t message_bytes;
  std::array<std::byte, kInlineBytes> payload;
};
static_assert(sizeof(Cell) == 256 && offsetof(Cell, payload) == 48);

struct Lane {
  alignas(kCacheLine) std::atomic<std::uint32_t> consumed;   // cells emptied, written by the receiver
  std::array<Cell, kCells> cells;
};

struct LanePair {
  alignas(kCacheLine) std::atomic<std::uint64_t> greeting[2];   // each side writes its own, and checks the other's
  Lane lanes[2];                                                // [0] from the side that opened the connection
  alignas(kCacheLine) std::atomic<std::uint32_t> reads[2];      // each side its own: what it can do with the other's memory
};
inline constexpr std::uint32_t kMapsRegions = 1, kReadsByKernel = 2;
inline constexpr std::uint64_t kGreeting[2] = {0x7475747469206869ull, 0x7475747469206f6bull};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace tutti::transport::shm
