// What the two ends of a broken connection tell each other, over new sockets, before they go on: how far each has handled its inbox, which
// writes it does not know to have arrived, and what it wants no more. The other says of each write whether it has.
#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "transport/rdma/bytes.h"
#include "transport/rdma/connection.h"

namespace tutti::transport::rdma {
namespace {

struct Head {
  std::uint32_t handled = 0, writes = 0, abandoned = 0;
};
struct Asked {
  MessageKey key;
  std::uint32_t grant = 0;
  std::uint64_t offset = 0;
};

}  // namespace

void RdmaConnection::break_off() {
  if (state_ != State::up) return;
  state_ = State::broken;
  failure_ = {};
  ++shared_.counters.breaks;
  stop_queues();
}

bool RdmaConnection::settled() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue->settled(); });
}

void RdmaConnection::stop_queues() {
  for (const auto& queue : queues_) queue->stop();
}

void RdmaConnection::go_over(std::unique_ptr<Stream> stream, std::uint32_t id) {
  auto queue = std::make_unique<SocketQueue>(std::move(stream), id, shared_.counters, [this](std::uint32_t immediate, std::uint32_t bytes) { return place_of(immediate, bytes); }, shared_.gpu);
  over_socket_ = queue.get();
  queues_.push_back(std::move(queue));
  rails_ = {Rail{}};
  rail_of_ = {0};
}

// Where a device would have written.
std::byte* RdmaConnection::place_of(std::uint32_t immediate, std::uint32_t bytes) {
  if (!delivers()) return nullptr;
  if ((immediate & kIsCell) == 0) return grants_.place_of(immediate >> kIndexBits, immediate & ((1u << kIndexBits) - 1), bytes);
  const std::size_t unit = immediate & ~kIsCell;
  return unit < kRingUnits && bytes <= kRingBytes - unit * kUnit ? rings_->data() + unit * kUnit : nullptr;
}

void RdmaConnection::drop_queues() {
  // The peer may have gone on by new queue pairs that this side has given up: what it knows to have arrived has.
  if (!opened_ && state_ == State::broken) {
    const auto early = std::move(early_);
    for (const ibv_wc& completion : early) deliver(completion);
  }
  Posted posted;
  for (const auto& queue : queues_) {
    queue->stop();
    while (queue->take_posted(posted))
      if (!posted.cell) unsure_.push_back(std::move(posted));
  }
  queues_.clear();
  over_socket_ = nullptr;
  rail_of_.clear();
  main_ = turn_ = 0;
  greetings_ = 0;
  opened_ = false;
  early_.clear();
}

std::vector<std::byte> RdmaConnection::resumption() {
  // What was to be sent again after the break before this one is as uncertain as the rest.
  for (Posted& write : writes_again_) unsure_.push_back(std::move(write));
  writes_again_.clear();
  std::vector<std::byte> out;
  const auto given_up = grants_.abandoned();
  append(out, Head{handled_, std::uint32_t(unsure_.size()), std::uint32_t(given_up.size())});
  for (const Posted& write : unsure_) append(out, Asked{write.key, write.where.id, write.offset});
  for (const std::uint32_t communicator : given_up) append(out, communicator);
  return out;
}

Result<std::vector<std::byte>> RdmaConnection::answer(std::span<const std::byte> theirs) {
  const Status nonsense(Code::network, "rdma: what the peer says about the broken connection cannot be read", peer_);
  Head head;
  if (!take(theirs, head) || head_ - head.handled > kRingUnits) return nonsense;
  std::vector<std::byte> out;
  for (std::uint32_t i = 0; i < head.writes; ++i) {
    Asked asked;
    if (!take(theirs, asked)) return nonsense;
    append(out, std::uint8_t(grants_.has(asked.grant, asked.key, asked.offset)));
  }
  for (std::uint32_t i = 0; i < head.abandoned; ++i) {
    std::uint32_t communicator = 0;
    if (!take(theirs, communicator)) return nonsense;
    std::erase_if(leaves_, [&](const auto& leave) { return leave.first.communicator == communicator; });
  }
  while (!in_ring_.empty() && std::int32_t(head.handled - in_ring_.front().end) >= 0) in_ring_.pop_front();
  cells_again_ = in_ring_.size();
  return out;
}

Status RdmaConnection::reopen(std::span<const std::byte> answers) {
  if (answers.size() != unsure_.size()) return Status(Code::network, "rdma: the peer's answer about the broken connection cannot be read", peer_);
  for (std::size_t i = 0; i < unsure_.size(); ++i) {
    Posted& write = unsure_[i];
    if (answers[i] != std::byte{0} || abandoned_.contains(write.key.communicator)) retire(write);
    else writes_again_.push_back(std::move(write));
  }
  unsure_.clear();
  for (auto& [key, leave] : leaves_) leave.queue = main_;       // behind what is sent again of its grid cell
  for (const std::uint32_t communicator : grants_.abandoned()) grants_.revoked(communicator);
  open();
  return {};
}

bool RdmaConnection::send_again() {
  if (state_ != State::up || (cells_again_ == 0 && writes_again_.empty())) return false;
  const std::uint64_t before = sent_again_;
  for (; cells_again_ > 0 && main().has_room(1, true); --cells_again_, ++sent_again_) {
    const CellInRing& cell = in_ring_[in_ring_.size() - cells_again_];
    std::byte* at = rings_->data() + kRingBytes + cell.unit * kUnit;
    Cell header;
    std::memcpy(&header, at, sizeof header);
    stamp(header);
    std::memcpy(at, &header, sizeof header);
    if (const Status status = post_cell(cell, false); !status) fail(status);
  }
  for (; !writes_again_.empty() && main().has_room(1); writes_again_.pop_front(), ++sent_again_)
    if (const Status status = post_write(main_, writes_again_.front(), true); !status) fail(status);
  shared_.counters.sent_again += sent_again_ - before;
  return sent_again_ != before;
}

}  // namespace tutti::transport::rdma
