#include "comm/journal.h"

#include <algorithm>
#include <cstring>

#include "comm/member.h"
#include "core/log.h"
#include "record/folder.h"

namespace tutti::comm {
namespace {

constexpr std::uint64_t kLongWait = 20'000;   // ticks: 5 to 20 us

std::uint64_t payload_of(const Call& call) { return call.count * size_of(call.type); }

Result<std::unique_ptr<record::Recorder>> open_first(const std::vector<std::string>& folders, bool own, const record::Identity& identity,
                                                     record::Recorder::Clock clock) {
  Status why;
  for (const std::string& folder : folders) {
    Status ready = record::prepare_folder(folder, own);
    if (ready.ok()) {
      record::remove_stale(folder);
      auto recorder = record::Recorder::create(folder, identity, clock);
      if (recorder) return recorder;
      ready = recorder.status();
    }
    why = why.ok() ? ready : Status(why.code(), why.text() + "; " + ready.text());
  }
  return why;
}

}  // namespace

std::unique_ptr<record::Recorder> open_recorder(const std::string& setting, const record::Identity& identity, record::Recorder::Clock clock) {
  if (setting == "0") return nullptr;
  const bool own = !setting.empty();
  auto recorder = open_first(own ? std::vector{setting} : record::default_folders(), own, identity, std::move(clock));
  if (recorder) return std::move(*recorder);
  log::write_once(own ? log::Level::warning : log::Level::info, "no flight recorder: " + recorder.status().text());
  return nullptr;
}

Journal::Journal(Loop& loop, std::unique_ptr<record::Recorder> recorder, bool counter)
    : loop_(loop), recorder_(std::move(recorder)), counter_(counter) {
  tick();
}

void Journal::start(Operation& operation, bool awaited) {
  if (operation.in_kernel) {
    const Member& member = operation.member();
    const transport::SegmentHeader header{.key = {member.id(), operation.sequence}, .call = pack(operation.call)};
    operation.record = start(header, record::kNobody, awaited);
    return;
  }
  const transport::SegmentHeader& header = operation.execution->header();
  std::uint16_t peer = record::kNobody;
  if (header.key.communicator & kPairBit) peer = narrow(operation.member().world_rank(operation.execution->program()->peers[0]));
  operation.record = start(header, peer, awaited);
}

std::uint32_t Journal::start(const transport::SegmentHeader& header, std::uint16_t peer, bool awaited) {
  const std::uint64_t payload = payload_of(unpack(header.call));
  const bool later = awaited && payload < kSmall;
  if (!later || unstamped_ != 0) tick();
  const std::uint32_t number = recorder_->started(header.key.communicator, header.key.operation, header.call, payload, peer, now_);
  if (later) unstamped_ = number;
  return number;
}

void Journal::begin_run(const transport::SegmentHeader& header, std::uint64_t moved) {
  tick();
  recorder_->begin_run(header.key.communicator, header.key.operation, header.call, payload_of(unpack(header.call)), moved, now_);
}

void Journal::end(const Operation& operation, const Status& status) {
  const std::uint32_t number = operation.record;
  const std::uint64_t moved = operation.execution ? operation.execution->moved_bytes() : 0;
  if (unstamped_ != 0 || moved >= kLarge || stale() || !status.ok()) tick();
  failed_ |= !status.ok();
  recorder_->ended(number, std::uint8_t(status.code()), moved, now_);
  const record::OperationEntry* entry = recorder_->find(number);
  if (!entry || std::uint64_t(entry->last_after) << record::kAfterShift < kLongWait) return;
  record::PeerEntry* peer = entry->last_peer == record::kNobody ? nullptr : recorder_->peer(entry->last_peer);
  if (!peer) return;
  peer->waited += std::uint64_t(entry->last_after) << record::kAfterShift;
  ++peer->waits;
}

void Journal::event(record::EventKind kind, int peer, std::uint32_t communicator, std::uint32_t operation, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  if (!recorder_) return;
  tick();
  recorder_->event({0, std::uint16_t(kind), narrow(peer), now_, communicator, operation, a, b, c, 0, 0});
}

void Journal::joined(std::uint32_t communicator, int rank_count, int rank) {
  event(record::EventKind::joined, -1, communicator, 0, std::uint64_t(rank_count), std::uint64_t(rank));
}

void Journal::connected(int peer, const std::string& wire, const std::string& description) {
  event(record::EventKind::connected, peer, 0, 0);
  record::PeerEntry* entry = recorder_ ? recorder_->peer(peer) : nullptr;
  if (!entry) return;
  entry->state = 1;
  record::put_text(entry->wire, wire);
  goes_by(peer, description);
}

// What its first word, the wire, does not say.
void Journal::goes_by(int peer, const std::string& description) {
  record::PeerEntry* entry = recorder_ ? recorder_->peer(peer) : nullptr;
  if (entry) record::put_text(entry->way, std::string_view(description).substr(std::min(description.find(' '), description.size() - 1) + 1));
}

void Journal::lost(int peer) {
  event(record::EventKind::lost, peer, 0, 0);
  if (record::PeerEntry* entry = recorder_ ? recorder_->peer(peer) : nullptr) entry->state = 2;
}

void Journal::served(int peer, std::uint64_t bytes, std::uint64_t nanoseconds) {
  record::PeerEntry* entry = recorder_ ? recorder_->peer(peer) : nullptr;
  if (!entry) return;
  entry->service_bytes = bytes;
  entry->service_nanoseconds = nanoseconds;
}

void Journal::repaired(int peer, std::uint64_t frames, std::uint64_t segments) {
  record::PeerEntry* entry = recorder_ ? recorder_->peer(peer) : nullptr;
  if (!entry) return;
  entry->resent = frames;
  entry->retransmitted = segments;
}

void Journal::broken(int peer, const Status& why) { event(record::EventKind::broken, peer, 0, 0, std::uint64_t(why.code())); }

void Journal::mended(int peer, Nanoseconds after, std::uint64_t resent_frames, bool silent) {
  event(record::EventKind::mended, peer, 0, 0, std::uint64_t(std::max<std::int64_t>(after.count(), 0)), resent_frames, silent);
  if (record::PeerEntry* entry = recorder_ ? recorder_->peer(peer) : nullptr) ++entry->mended;
}

void Journal::waits(const Operation& operation) {
  if (!recorder_) return;
  tick();
  for (const Stand& stand : operation.execution->stands(4)) {
    const transport::MessageKey& key = operation.execution->header().key;
    recorder_->event({0, std::uint16_t(record::EventKind::waits), narrow(operation.member().world_rank(stand.peer)), now_, key.communicator, key.operation,
                      stand.step, stand.steps, stand.done, stand.bytes, stand.sends ? 1u : 0u});
  }
}

void Journal::hang_reported(std::uint32_t communicator, std::uint32_t sequence) { event(record::EventKind::hang, -1, communicator, sequence); }

void Journal::verdict(std::uint32_t communicator, const Status& status) {
  if (!recorder_) return;
  failed_ = true;
  event(record::EventKind::verdict, status.culprit(), communicator, 0, std::uint64_t(status.code()));
  recorder_->verdict(communicator, status, now_);
}

void Journal::beat() {
  if (!recorder_) return;
  beats_.fetch_add(1, std::memory_order_relaxed);
  recorder_->beat();
}

void Journal::close(bool keep) {
  if (!recorder_) return;
  recorder_->beat();
  recorder_->close(failed_ ? record::End::failed : record::End::clean);
  if (!failed_ && !keep) record::remove_recorder(recorder_->path());
  recorder_.reset();
}

}  // namespace tutti::comm
