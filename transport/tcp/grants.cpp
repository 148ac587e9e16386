#include "transport/tcp/grants.h"

#include <algorithm>

#include "core/check.h"
#include "transport/tcp/outgoing.h"
#include "transport/tcp/shared.h"

namespace tutti::transport::tcp {

void GrantBudget::retry() {
  std::erase_if(waiting, [](const Waiting& w) {
    const auto at = w.grants->messages_.find(w.key);
    return at == w.grants->messages_.end() || w.grants->admit(w.key, at->second);
  });
}

Grants::Grants(Shared& shared, Outgoing& out) : shared_(shared), out_(out) {}

Grants::~Grants() {
  for (const auto& [key, message] : messages_) shared_.grants.reserved -= message.window;
  std::erase_if(shared_.grants.waiting, [this](const auto& w) { return w.grants == this; });
}

void Grants::expect(const MessageKey& key, std::uint64_t message_bytes, bool lands) {
  Message& message = messages_[key];
  TUTTI_CHECK(message.bytes == 0);           // said once
  message.bytes = message_bytes;
  if (!lands) {
    if (!admit(key, message)) shared_.grants.waiting.push_back({this, key});
    return;
  }
  message.told = message_bytes;
  tell(key, message);
}

bool Grants::is_first(const MessageKey& key) const {
  return std::none_of(messages_.begin(), messages_.end(), [&key](const auto& entry) {
    const auto& [other, message] = entry;
    if (message.window == 0 || other.communicator != key.communicator) return false;
    const auto distance = static_cast<std::int32_t>(other.operation - key.operation);
    return distance < 0 || (distance == 0 && other.message < key.message);
  });
}

bool Grants::admit(const MessageKey& key, Message& message) {
  GrantBudget& budget = shared_.grants;
  const std::uint64_t segment = shared_.segment_bytes(message.bytes);
  const std::uint64_t room = budget.limit > budget.reserved ? budget.limit - budget.reserved : 0;
  if (room < segment && !is_first(key)) return false;
  message.window = std::min(message.bytes, std::max(segment, room / 2 / segment * segment));
  budget.reserved += message.window;
  message.told = std::min(message.bytes, message.consumed + message.window);
  tell(key, message);
  return true;
}

void Grants::tell(const MessageKey& key, Message& message) {
  ++shared_.counters.grants_out;
  out_.send_control(FrameType::grant, {.key = key, .offset = message.told, .message_bytes = message.bytes});
}

bool Grants::covers(const MessageKey& key, std::uint64_t end) const {
  if (std::find(abandoned_.begin(), abandoned_.end(), key.communicator) != abandoned_.end()) return true;
  const auto at = messages_.find(key);
  return at != messages_.end() && end <= at->second.told;
}

void Grants::consumed(const MessageKey& key, std::uint64_t message_bytes, std::uint64_t bytes) {
  if (std::find(abandoned_.begin(), abandoned_.end(), key.communicator) != abandoned_.end()) return;
  Message& message = messages_[key];          // an eager beginning may come before the message is expected
  message.consumed += bytes;
  if (message.consumed >= message_bytes) {
    const std::uint64_t window = message.window;
    messages_.erase(key);
    shared_.grants.reserved -= window;
    if (window) shared_.grants.retry();
    return;
  }
  if (message.window == 0 || message.told == message.bytes) return;
  const std::uint64_t segment = shared_.segment_bytes(message.bytes), next = std::min(message.bytes, message.consumed + message.window);
  if (next < message.bytes && next - message.told < std::max(segment, message.window / 2)) return;
  if (next == message.told) return;
  message.told = next;
  tell(key, message);
}

void Grants::abandon(std::uint32_t communicator) {
  abandoned_.push_back(communicator);
  std::erase_if(messages_, [&](const auto& entry) {
    if (entry.first.communicator != communicator) return false;
    shared_.grants.reserved -= entry.second.window;
    return true;
  });
  shared_.grants.retry();
}

}  // namespace tutti::transport::tcp
