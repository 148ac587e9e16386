#include "transport/tcp/grants.h"

#include <algorithm>
#include <iterator>

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
  for (auto& [key, message] : messages_) give_back(message);
  std::erase_if(shared_.grants.waiting, [this](const auto& w) { return w.grants == this; });
}

void Grants::expect(const MessageKey& key, std::uint64_t message_bytes, Readiness readiness) {
  Message& message = messages_[key];
  TUTTI_CHECK(message.bytes == 0 || readiness > Readiness::ahead);
  message.bytes = message_bytes;
  switch (readiness) {
    case Readiness::none: return;
    case Readiness::ahead: return admit_ahead(key, message);
    case Readiness::partly:
      if (message.window == 0 && !admit(key, message)) shared_.grants.waiting.push_back({this, key});
      return;
    case Readiness::lands:
      give_back(message);
      if (message.told == message_bytes) return;       // ahead of its turn already
      message.told = message_bytes;
      return tell(key, message);
  }
}

void Grants::give_back(Message& message) {
  (message.ahead ? shared_.grants.reserved_ahead : shared_.grants.reserved) -= message.window;
  message.window = 0;
}

// All of it, or half of what is left, in whole segments; or nothing: its turn comes.
void Grants::admit_ahead(const MessageKey& key, Message& message) {
  GrantBudget& budget = shared_.grants;
  const std::uint64_t segment = shared_.segment_bytes(message.bytes), room = budget.limit_ahead - budget.reserved_ahead;
  if (room < segment) return;
  message.ahead = true;
  message.window = message.bytes <= room ? message.bytes : std::max(segment, room / 2 / segment * segment);
  budget.reserved_ahead += message.window;
  message.told = std::min(message.bytes, message.consumed + message.window);
  tell(key, message);
}

bool Grants::is_first(const MessageKey& key) const {
  return std::none_of(messages_.begin(), messages_.end(), [&key](const auto& entry) {
    const auto& [other, message] = entry;
    if (message.window == 0 || message.ahead || other.communicator != key.communicator) return false;
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
    const bool held = message.window > 0 && !message.ahead;
    give_back(message);
    messages_.erase(key);
    if (held) shared_.grants.retry();
    return;
  }
  if (message.window == 0 || message.told == message.bytes) return;
  const std::uint64_t segment = shared_.segment_bytes(message.bytes),
                      next = std::min(message.bytes, message.consumed + message.window);
  // Not for every little, as long as one more segment fits in what was told. The sender's may be shorter than ours, where it sends the
  // same to ranks over other wires, and need not end where a window does.
  if (message.told >= message.consumed + segment && next < message.bytes && next - message.told < std::max(segment, message.window / 2)) return;
  if (next == message.told) return;
  message.told = next;
  tell(key, message);
}

void Grants::abandon(std::uint32_t communicator) {
  abandoned_.push_back(communicator);
  for (auto at = messages_.begin(); at != messages_.end();) {
    const bool gone = at->first.communicator == communicator;
    if (gone) give_back(at->second);
    at = gone ? messages_.erase(at) : std::next(at);
  }
  shared_.grants.retry();
}

}  // namespace tutti::transport::tcp
