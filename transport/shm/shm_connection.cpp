#include "transport/shm/shm_connection.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "core/copy.h"
#include "core/fork.h"
#include "core/log.h"
#include "transport/shm/kernel_read.h"

namespace tutti::transport::shm {

ShmConnection::ShmConnection(ShmTransport& transport, int peer, std::unique_ptr<Stream> stream, SharedMemory lanes, bool opener)
    : transport_(transport), peer_(peer), stream_(std::move(stream)), lanes_(std::move(lanes)), opener_(opener) {
  auto* pair = reinterpret_cast<LanePair*>(lanes_.data());
  out_ = &pair->lanes[opener ? 0 : 1];
  in_ = &pair->lanes[opener ? 1 : 0];
}

ShmConnection::~ShmConnection() {
  if (doorbell_ >= 0) close_kept(doorbell_);
}

void ShmConnection::join(SharedMemory outbox, int doorbell) {
  outbox_ = std::move(outbox);
  find_out_what_can_be_read();
  outbox_.close_descriptor();
  lanes_.close_descriptor();
  doorbell_ = doorbell;
  keep_from_children(doorbell_);
  for (const SharedMemory* memory : {&outbox_, &lanes_}) keep_mapping_from_children(memory->data(), memory->bytes());
}

// What the peer passed is also found by way of /proc, or nothing of its is: then the same goes for its regions. Only of a process that is known to
// be the peer's is memory read: in another PID namespace the number is somebody else's.
void ShmConnection::find_out_what_can_be_read() {
  const int process = theirs().process.load(std::memory_order_relaxed), descriptor = theirs().descriptor.load(std::memory_order_relaxed);
  const int found = foreign_descriptor(process, descriptor);
  if (found < 0) return;
  struct stat passed {}, opened {};
  const bool same = fstat(outbox_.descriptor(), &passed) == 0 && fstat(found, &opened) == 0 && passed.st_ino == opened.st_ino && passed.st_dev == opened.st_dev;
  close(found);
  if (!same) return;
  std::array<std::byte, sizeof(std::int32_t)> seen{};
  const bool by_kernel = transport_.options_.lend &&
                         read_by_kernel(process, theirs().address.load(std::memory_order_relaxed) + offsetof(Outbox, descriptor), seen) &&
                         std::memcmp(seen.data(), &descriptor, sizeof descriptor) == 0;
  if (transport_.options_.lend && !by_kernel)
    log::write_once(log::Level::info, fmt::format("the kernel does not let this process read the memory of process {} ({}): large messages are copied twice; TUTTI_CMA=1 on all ranks "
                                                  "lifts Yama's ptrace_scope", process, std::strerror(errno)));
  reinterpret_cast<LanePair*>(lanes_.data())->reads[opener_ ? 0 : 1].store(kMapsRegions | (by_kernel ? kReadsByKernel : 0), std::memory_order_release);
}

bool ShmConnection::peer_can(std::uint32_t what) const {
  const auto* pair = reinterpret_cast<const LanePair*>(lanes_.data());
  return pair->reads[opener_ ? 1 : 0].load(std::memory_order_acquire) & what;
}

// Checksums are made where the bytes are copied.
std::size_t ShmConnection::lent_bytes() const {
  return transport_.options_.lend && !transport_.options_.check && !refuses_ && peer_can(kReadsByKernel) ? kLargestLent : 0;
}

// The next free cell, or nullptr while the receiver has not emptied it.
Cell* ShmConnection::reserve() {
  if (lost_) return nullptr;
  if (sent_ == room_until_) {
    room_until_ = out_->consumed.load(std::memory_order_acquire) + kCells;
    if (sent_ == room_until_) {
      transport_.starved_ = true;
      return nullptr;
    }
  }
  return &out_->cells[sent_ % kCells];
}

// Of the header, and of where a lent payload lies, with the payload's.
std::uint32_t ShmConnection::sum_of(const Cell& cell, std::uint32_t payload_sum) {
  constexpr std::size_t kFrom = sizeof cell.sequence;
  const std::size_t part = lends(cell) ? sizeof(RegionPart) : 0;
  return crc32c(reinterpret_cast<const std::byte*>(&cell) + kFrom, offsetof(Cell, payload) - kFrom + part, payload_sum);
}

bool ShmConnection::intact(const Cell& cell, const std::byte* payload) const {
  std::uint32_t sum;
  std::memcpy(&sum, cell.payload.data() + transport_.inline_bytes(), sizeof sum);
  return sum == sum_of(cell, transport_.sum_of(payload, cell.bytes));
}

void ShmConnection::publish(Cell& cell, const SegmentHeader& header, std::uint32_t slot, std::uint32_t sum) {
  cell.bytes = header.bytes;
  cell.communicator = header.key.communicator;
  cell.operation = header.key.operation;
  cell.message = std::uint16_t(header.key.message);
  cell.plan = std::uint16_t(header.plan);
  cell.slot = slot;
  cell.call = header.call;
  cell.offset = header.offset;
  cell.message_bytes = header.message_bytes;
  if (transport_.options_.check) {
    const std::uint32_t whole = sum_of(cell, sum);
    std::memcpy(cell.payload.data() + transport_.inline_bytes(), &whole, sizeof whole);
  }
  cell.sequence.store(++sent_, std::memory_order_release);
  news_ |= kWantsData;
  transport_.unsettled_ = true;
}

// `data`: where there is no region.
Sent ShmConnection::lend(Cell& cell, const SegmentHeader& header, const RegionPart& part, const std::byte* data, std::uint32_t sum, std::uint64_t token) {
  const std::uint32_t ticket = transport_.take_ticket(*this, header, data, token);
  if (ticket == kNoSlot) return Sent::again;
  std::memcpy(cell.payload.data(), &part, sizeof part);
  publish(cell, header, ticket, sum);
  return Sent::pending;
}

Sent ShmConnection::send(const SegmentHeader& header, const std::byte* data, std::uint64_t token) {
  Cell* cell = reserve();
  if (!cell) return Sent::again;
  const std::uint32_t sum = transport_.sum_of(data, header.bytes);
  if (header.message_bytes > kMostGlanced && header.bytes >= kLeastInPlace && peer_can(kMapsRegions))
    if (const auto part = region_part(data, header.bytes)) {
      // Without a ticket a first segment is copied like any other, so that it finds room whatever the other lanes hold.
      const Sent lent = lend(*cell, header, *part, nullptr, sum, token);
      if (lent != Sent::again || !header.first || header.lend) return lent;
    }
  if (header.lend) {
    if (lent_bytes() >= header.bytes) return lend(*cell, header, {0, reinterpret_cast<std::uint64_t>(data), 0, -1}, data, sum, token);
    transport_.pushes_.push_back({this, header, data, token});
    return Sent::pending;
  }
  std::uint32_t slot = kNoSlot;
  if (header.bytes <= transport_.inline_bytes()) {
    if (header.bytes > 0) std::memcpy(cell->payload.data(), data, header.bytes);      // of nothing there may be no address
  } else {
    slot = transport_.take_slot(header.bytes, this);
    if (slot == kNoSlot && header.first)
      slot = transport_.take_reserve(transport_.reserved_slots_, peer_, header.key.communicator);
    if (slot == kNoSlot) return Sent::again;
    copy_bytes(transport_.outbox_memory_.data() + slot_offset(slot), data, header.bytes);
    transport_.outbox().slots[slot].readers.store(1, std::memory_order_relaxed);
  }
  publish(*cell, header, slot, sum);
  return Sent::done;
}

Sent ShmConnection::send_staged(const SegmentHeader& header, std::uint64_t staged) {
  Cell* cell = reserve();
  if (!cell) return Sent::again;
  const std::uint32_t slot = std::uint32_t(staged - 1);
  publish(*cell, header, slot, transport_.options_.check ? transport_.stage_sums_[slot] : 0);
  return Sent::done;
}

bool ShmConnection::has_arrivals() const {
  return in_->cells[received_ % kCells].sequence.load(std::memory_order_acquire) == received_ + 1;
}

const std::byte* ShmConnection::in_slot(std::uint32_t slot) {
  const std::uint32_t group = slot / kGroup;
  if (slot < kShared && !(seen_groups_ >> group & 1)) {
    const std::uint32_t first = group * kGroup;
    outbox_.populate(slot_offset(first), std::size_t(kGroup) * slot_bytes(first));
    seen_groups_ |= 1u << group;
  }
  return outbox_.data() + slot_offset(slot);
}

bool ShmConnection::lends(const Cell& cell) { return cell.slot >= kSlots && cell.slot < kSlots + kAllTickets; }

// The owner may have taken it back while it was being read: then its bytes may be any.
bool ShmConnection::fetch(std::uint32_t ticket, std::byte* into, std::uint32_t bytes) {
  auto& state = theirs().slots[ticket].readers;
  if (lost_ || state.load(std::memory_order_acquire) & kTakenBack) return false;
  const bool read = read_by_kernel(theirs().process.load(std::memory_order_relaxed), lent_at_[ticket - kSlots], {into, bytes});
  return !(state.fetch_or(read ? 0 : kRefused, std::memory_order_acq_rel) & kTakenBack) && read;
}

const std::byte* ShmConnection::in_region(const RegionPart& part, std::uint32_t bytes) {
  auto found = regions_.find(part.token);
  if (found == regions_.end()) {
    std::erase_if(regions_, [](const auto& r) { return is_dropped(r.second); });
    auto region = open_region(part);
    if (!region) return nullptr;
    found = regions_.emplace(part.token, std::move(*region)).first;
  }
  const SharedMemory& region = found->second;
  return part.offset <= region.bytes() && bytes <= region.bytes() - part.offset ? region.data() + part.offset : nullptr;
}

// Delivers the next arrival. One at a time: it may complete what the caller waits for, and the next may belong to what this
// rank has yet to start.
bool ShmConnection::receive() {
  if (!has_arrivals()) return false;
  const Cell& cell = in_->cells[received_ % kCells];
  SegmentHeader header;
  header.key = {cell.communicator, cell.operation, cell.message};
  header.bytes = cell.bytes;
  header.plan = cell.plan;
  header.call = cell.call;
  header.offset = cell.offset;
  header.message_bytes = cell.message_bytes;
  const std::uint32_t slot = cell.slot;
  RegionPart part;
  if (lends(cell)) std::memcpy(&part, cell.payload.data(), sizeof part);
  const bool elsewhere = lends(cell) && part.token == 0;
  const std::byte* const lent = lends(cell) && !elsewhere ? in_region(part, cell.bytes) : nullptr;
  if (lends(cell) && !lent && !elsewhere) {
    transport_.lost(*this, Status(Code::network, "shared memory: memory that the peer allocated cannot be mapped here", peer_));
    return false;
  }
  if (!lends(cell) && (slot == kNoSlot ? cell.bytes > transport_.inline_bytes() : slot >= kSlots || cell.bytes > slot_bytes(slot))) {
    transport_.lost(*this, Status(Code::network, "shared memory: a cell that makes no sense", peer_));
    return false;
  }
  ++received_;
  if (elsewhere) lent_at_[slot - kSlots] = part.offset;
  const std::byte* const payload = lends(cell) ? lent : slot == kNoSlot ? cell.payload.data() : in_slot(slot);
  if (transport_.options_.check && !intact(cell, payload)) {
    transport_.listener_.on_damaged(peer_, header);
  } else if (slot == kNoSlot) {
    transport_.listener_.on_segment(peer_, header, payload, {});
  } else {
    const Lease lease{&transport_, std::uint64_t(peer_) << 32 | slot};
    transport_.listener_.on_segment(peer_, header, payload, lease);
  }
  in_->consumed.store(received_, std::memory_order_release);
  news_ |= kWantsRoom;
  transport_.unsettled_ = true;
  return true;
}

// Checksums are receive()'s affair.
std::size_t ShmConnection::glance_bytes() const { return transport_.options_.check ? 0 : kMostGlanced; }

const std::byte* ShmConnection::glance(const SegmentHeader& message) {
  if (lost_ || !has_arrivals()) return nullptr;
  const Cell& cell = in_->cells[received_ % kCells];
  const bool same = cell.operation == message.key.operation && cell.communicator == message.key.communicator &&
                    cell.message == std::uint16_t(message.key.message) && cell.call == message.call && cell.plan == std::uint16_t(message.plan) &&
                    cell.bytes == message.bytes && cell.message_bytes == message.message_bytes && cell.offset == 0;
  if (!same || cell.bytes > glance_bytes()) return nullptr;
  if (cell.slot == kNoSlot) return cell.bytes <= transport_.inline_bytes() ? cell.payload.data() : nullptr;
  return cell.slot < kSlots && cell.bytes <= slot_bytes(cell.slot) ? in_slot(cell.slot) : nullptr;
}

void ShmConnection::take_glanced() {
  const std::uint32_t slot = in_->cells[received_ % kCells].slot;
  if (slot != kNoSlot) transport_.release(std::uint64_t(peer_) << 32 | slot);
  in_->consumed.store(++received_, std::memory_order_release);
  news_ |= kWantsRoom;
  transport_.unsettled_ = true;
}

void ShmConnection::ring_if_sleeping() {
  auto& sleeping = theirs().sleeping;
  const std::uint32_t wants = sleeping.load(std::memory_order_relaxed);
  if ((wants & std::exchange(news_, 0)) == 0) return;
  if (sleeping.exchange(0, std::memory_order_acq_rel) == 0 || doorbell_ < 0) return;
  const std::uint64_t one = 1;
  if (write(doorbell_, &one, sizeof one) < 0) return;   // full counter: it is rung already
}

}  // namespace tutti::transport::shm
