#include "transport/rdma/grants.h"

#include <algorithm>

#include "core/check.h"
#include "transport/ranges.h"
#include "transport/rdma/connection.h"

namespace tutti::transport::rdma {

Expected::~Expected() {
  if (window) pool->give_back(window);
}

std::uint32_t Expected::cell_bytes(std::uint32_t index) const {
  return std::uint32_t(std::min<std::uint64_t>(grid, header.message_bytes - std::uint64_t(index) * grid));
}

std::uint32_t Expected::begun_bytes(std::uint32_t index) const {
  const auto part = begun.find(index);
  return part == begun.end() ? 0 : part->second;
}

Grants::~Grants() {
  std::erase_if(shared_.waiting, [this](const auto& w) { return w.grants == this; });
}

std::uint32_t Grants::free_id() {
  if (!free_.empty()) {
    const std::uint32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  messages_.emplace_back();
  return std::uint32_t(messages_.size() - 1);
}

void Grants::expect(const SegmentHeader& header, std::byte* place) {
  if (free_.empty() && messages_.size() == kMostGrants) return queued_.push_back({header, place});
  const std::uint32_t id = free_id();
  auto message = std::make_shared<Expected>();
  message->pool = shared_.landings.get();
  message->header = header;
  message->header.key.message &= 0xffff;
  message->grid = shared_.grid_bytes(header.message_bytes);
  message->whole.resize(std::size_t((header.message_bytes + message->grid - 1) / message->grid));
  if (place) message->memory = connection_.registered(place, header.message_bytes);
  messages_[id] = message;
  if (message->memory) {
    message->place = place;
    message->told = header.message_bytes;
    return tell(id);
  }
  if (place && shared_.gpu && of_gpu(place, header.message_bytes)) message->behind = place;
  if (!admit(id)) shared_.waiting.push_back({this, id});
}

bool Grants::is_first(const MessageKey& key) const {
  return std::none_of(messages_.begin(), messages_.end(), [&key](const auto& other) {
    if (!other || !other->windowed() || other->abandoned || other->header.key.communicator != key.communicator) return false;
    const auto distance = static_cast<std::int32_t>(other->header.key.operation - key.operation);
    return distance < 0 || (distance == 0 && other->header.key.message < key.message);
  });
}

// Whether the message has its window, or needs none any more.
bool Grants::admit(std::uint32_t id) {
  Expected& message = *messages_[id];
  const std::uint64_t bytes = message.header.message_bytes, grid = message.grid;
  TUTTI_CHECK(!message.window);
  const std::uint64_t half = shared_.landings->free_bytes() / 2 / grid * grid;
  const std::uint64_t whole = (bytes + grid - 1) / grid * grid;
  const std::uint64_t least = std::min(whole, 2 * grid);      // a segment cut for other wires may lie in two cells
  message.window = shared_.landings->take(std::size_t(std::min(whole, std::max(least, half))));
  if (!message.window) message.window = shared_.landings->take(std::size_t(least), is_first(message.header.key));
  if (!message.window) return false;
  message.window_bytes = message.window.bytes / grid * grid;
  message.told = std::min(bytes, message.window_bytes);
  tell(id);
  return true;
}

void Grants::tell(std::uint32_t id) {
  const Expected& message = *messages_[id];
  GrantBody body;
  body.address = reinterpret_cast<std::uintptr_t>(message.place ? message.place : message.window.data);
  body.window = message.place ? message.header.message_bytes : message.window_bytes;
  body.id = id;
  connection_.fill_keys(message.memory ? *message.memory : message.window.block->registration(), body.keys);
  ++shared_.counters.grants_out;
  connection_.send_grant(message.header, message.told, body);
}

const char* Grants::wrong_with(std::uint32_t id, std::uint32_t index, std::uint32_t bytes) const {
  if (id >= messages_.size() || !messages_[id]) return "a write for a message that is not granted";
  const Expected& message = *messages_[id];
  if (index >= message.whole.size() || message.whole[index]) return "a write of what has arrived";
  const std::uint32_t before = message.begun_bytes(index);
  if (bytes == 0 || bytes > message.cell_bytes(index) - before) return "a write that is longer than its segment";
  return std::uint64_t(index) * message.grid + before + bytes > message.told ? "a write beyond what is granted" : nullptr;
}

std::byte* Grants::place_of(std::uint32_t id, std::uint32_t index, std::uint32_t bytes) const {
  if (wrong_with(id, index, bytes)) return nullptr;
  const Expected& message = *messages_[id];
  return message.at(std::uint64_t(index) * message.grid + message.begun_bytes(index));
}

const char* Grants::arrived(std::uint32_t id, std::uint32_t index, std::uint32_t bytes) {
  if (const char* wrong = wrong_with(id, index, bytes)) return wrong;
  const std::shared_ptr<Expected> message = messages_[id];
  const std::uint32_t before = message->begun_bytes(index);
  const std::uint64_t offset = std::uint64_t(index) * message->grid + before;
  if (message->behind && !message->abandoned)      // first: what is not in its place has not arrived
    if (const Status copied = shared_.gpu->copy(message->behind + offset, message->at(offset), bytes); !copied) return connection_.cannot_copy(copied), nullptr;
  if (before + bytes == message->cell_bytes(index)) {
    message->whole[index] = true;
    message->begun.erase(index);
  } else {
    message->begun[index] = before + bytes;
  }
  message->arrived += bytes;
  if (message->abandoned) return nullptr;
  SegmentHeader header = message->header;
  header.bytes = bytes;
  header.offset = offset;
  if (message->behind) return pass_on(id, header), nullptr;
  Lease lease;
  if (message->windowed()) {
    Landed* landed = shared_.landed.take();
    landed->owner = &connection_;
    landed->message = message;
    landed->offset = offset;
    landed->bytes = bytes;
    ++message->leased;
    lease = shared_.landed.lease(landed);
  }
  const std::byte* data = message->at(offset);
  finish_if_done(id);
  shared_.listener.on_segment(connection_.peer(), header, data, lease);
  return nullptr;
}

void Grants::finish_if_done(std::uint32_t id) {
  const Expected& message = *messages_[id];
  if (message.arrived < message.header.message_bytes) return;
  messages_[id].reset();              // leases keep it
  free_.push_back(id);
  if (queued_.empty()) return;
  const Queued next = queued_.front();
  queued_.erase(queued_.begin());
  expect(next.header, next.place);
}

// What has been copied from the window into the GPU's memory.
void Grants::pass_on(std::uint32_t id, const SegmentHeader& header) {
  const std::shared_ptr<Expected> message = messages_[id];
  std::byte* const to = message->behind + header.offset;
  shared_.counters.copied_in += header.bytes;
  ++message->leased;
  finish_if_done(id);
  freed(*message, header.offset, header.bytes);
  shared_.listener.on_segment(connection_.peer(), header, to, {});
}

bool Grants::has(std::uint32_t id, const MessageKey& key, std::uint64_t offset) const {
  if (id >= messages_.size() || !messages_[id] || messages_[id]->header.key != key) return true;      // it was whole, or nobody wants it
  const Expected& message = *messages_[id];
  if (message.abandoned) return true;
  const auto index = std::uint32_t(offset / message.grid);
  return message.whole[index] || offset % message.grid < message.begun_bytes(index);
}

// The window moves on over what is free without a gap.
void Grants::freed(Expected& message, std::uint64_t offset, std::uint64_t bytes) {
  --message.leased;
  message.freed_later[offset] = bytes;
  for (auto next = message.freed_later.begin(); next != message.freed_later.end() && next->first == message.freed; next = message.freed_later.begin()) {
    message.freed += next->second;
    message.freed_later.erase(next);
  }
  const std::uint64_t all = message.header.message_bytes;
  if (message.freed == all || message.abandoned || message.told == all) return;
  const std::uint64_t until = std::min(all, message.freed / message.grid * message.grid + message.window_bytes);
  if (until < all && until - message.told < std::max<std::uint64_t>(message.grid, message.window_bytes / 2)) return;
  if (until <= message.told) return;
  message.told = until;
  for (std::uint32_t id = 0; id < messages_.size(); ++id)
    if (messages_[id].get() == &message) return tell(id);
}

bool Grants::abandon(std::uint32_t communicator) {
  bool users = false, any = false;
  std::erase_if(queued_, [&](const auto& queued) { return queued.header.key.communicator == communicator; });
  for (std::uint32_t id = 0; id < messages_.size(); ++id) {
    if (!messages_[id] || messages_[id]->header.key.communicator != communicator) continue;
    Expected& message = *messages_[id];
    message.abandoned = any = true;
    users |= message.place != nullptr;
    if (message.told > 0) continue;
    std::erase_if(shared_.waiting, [&](const auto& w) { return w.grants == this && w.id == id; });
    messages_[id].reset();
    free_.push_back(id);
  }
  if (any) connection_.send_control(CellType::revoke, communicator);
  return users;
}

std::vector<std::uint32_t> Grants::abandoned() const {
  std::vector<std::uint32_t> out;
  for (const auto& message : messages_) {
    if (!message || !message->abandoned) continue;
    const std::uint32_t communicator = message->header.key.communicator;
    if (std::find(out.begin(), out.end(), communicator) == out.end()) out.push_back(communicator);
  }
  return out;
}

void Grants::revoked(std::uint32_t communicator) {
  for (std::uint32_t id = 0; id < messages_.size(); ++id) {
    if (!messages_[id] || !messages_[id]->abandoned || messages_[id]->header.key.communicator != communicator) continue;
    messages_[id].reset();
    free_.push_back(id);
  }
}

}  // namespace tutti::transport::rdma
