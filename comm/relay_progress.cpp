// Relay under the engine's lock: what has arrived begins, what is done is let go.
#include <fmt/format.h>

#include "comm/engine.h"
#include "comm/member.h"
#include "comm/relay.h"
#include "core/check.h"
#include "core/no_memory.h"

namespace tutti::comm {

void Relay::note_begun() {
  if (!peers_) return;
  const std::uint32_t begun = std::atomic_ref(peers_->words().begun).load(std::memory_order_acquire);
  for (const auto& call : unfinished_) {
    if (call->kernel == 0) continue;
    if (std::int32_t(begun - call->kernel) < 0) break;
    if (std::vector<int>& meets = call->all->meets; meets.empty())
      for (int r = 0; r < member_->rank_count(); ++r)
        if (r != member_->rank()) meets.push_back(r);
  }
}

// Whether no kernel has ended early; otherwise nothing can be completed any more.
bool Relay::kernels_are_well() {
  if (!peers_) return true;
  SharedWords& words = peers_->words();
  const std::uint32_t outcome = std::atomic_ref(words.outcome).load(std::memory_order_acquire);
  if (outcome != SharedWords::kMismatch) return outcome == 0;
  const Call* of = nullptr;
  for (const auto& call : unfinished_)
    if (call->kernel != 0 && std::int32_t(words.number - call->kernel) >= 0) of = call.get();
  const std::uint64_t theirs = words.call[0] | std::uint64_t(words.call[1]) << 32;
  if (of) member_->engine()->disagree(*member_, member_->world_rank(int(words.peer)), *of->all, theirs);
  return false;
}

Status Relay::begin_next(Lane& lane) {
  Call& call = *lane.calls.front();
  const std::uint32_t slice = call.begun;
  ++lane.begun;
  const StraightStage* const stage = call.straight.empty() ? nullptr : &call.straight[slice];
  auto prepared = stage ? Result<Prepared>(stage->operation) : prepare(slice_of(call, slice), member_->self());
  if (!prepared) return prepared.status();
  try {
    auto operation = member_->begin_held(call.form, std::move(*prepared), call.held + slice, stage ? stage->program : nullptr);
    if (!operation) return operation.status();
    lane.running.push_back({call.passage.first + slice, std::move(*operation)});
  } catch (const NoMemory& why) {
    return Status(Code::out_of_resources, fmt::format("no memory for {} bytes ({})", why.bytes, why.what_for), member_->rank());
  }
  if (++call.begun == call.passage.slices) lane.calls.pop_front();
  return {};
}

bool Relay::advance(Lane& lane) {
  bool any = false;
  while (lane.begun != std::atomic_ref(*lane.arrived).load(std::memory_order_acquire)) {
    any = true;
    if (Status status = begin_next(lane); !status.ok()) member_->engine()->fail(*member_, status);
    if (!member_->broken().ok()) return give_up(), true;
  }
  for (; !lane.running.empty() && lane.running.front().operation->complete(); any = true) {
    if (!lane.running.front().operation->status().ok()) return any;  // its verdict is everybody's, and on its way
    if (Status seen = lane.straight ? device_->take_remote_writes() : Status(); !seen.ok()) {
      Engine& engine = *member_->engine();
      engine.fail(*member_, Status(seen.code(), fmt::format("{}, {}: {}", engine.describe(engine.world_rank()), device_->describe(), seen.text()), member_->rank()));
      return true;
    }
    std::atomic_ref(*lane.done).store(lane.running.front().number, std::memory_order_release);
    lane.running.pop_front();
  }
  return any;
}

bool Relay::advance() {
  if (given_up_) return false;
  if (!member_->broken().ok()) return give_up(), true;
  // Before the rest: what has passed has arrived, and its kernels have said how they ended.
  const std::uint32_t passed = passed_.load(std::memory_order_acquire);
  note_begun();
  if (!kernels_are_well()) return false;
  bool any = false;
  for (const auto& [key, lane] : lanes_) {
    any |= advance(*lane);
    if (given_up_) return true;
  }
  for (; ended_ != passed; any = true) {
    TUTTI_CHECK(!unfinished_.empty());
    const auto call = std::move(unfinished_.front());
    unfinished_.pop_front();
    ++ended_;
    member_->engine()->complete(*call->all, {});
  }
  return any;
}

}  // namespace tutti::comm
