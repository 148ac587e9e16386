#pragma once
// Journal: what an engine tells its flight recorder, and the clock that it tells time by. Without a recorder every call does
// nothing. Under the engine's lock, except beat().
//
// The clock is looked at where it costs next to nothing. A small operation that is about to be waited for gets its start stamped
// by the first look that finds nothing, while the peers' bytes are on their way, or by its first arrival. What arrives is stamped
// with the last look at the clock, which is a microsecond or so old while somebody spins, and a beat of the progress thread (2 ms)
// at most. Those that are over within their calls (Brief) have no times of their own: a run of them lasts a beat at most.
#include <atomic>
#include <memory>

#include "comm/operation.h"
#include "core/net.h"
#include "record/recorder.h"
#include "record/ticks.h"

namespace tutti::comm {

class Journal {
 public:
  static constexpr std::uint64_t kLarge = 64 << 10;   // bytes: moving so many takes far longer than a look at the clock
  static constexpr std::uint64_t kSmall = 1 << 10;
  static constexpr std::uint32_t kRunLook = 32;        // operations of a run between looks at the clock

  // `counter`: ticks are the processor's, else the loop's nanoseconds.
  Journal(Loop& loop, std::unique_ptr<record::Recorder> recorder, bool counter);

  void tick() {
    if (!recorder_) return;
    now_ = counter_ ? record::counter() : loop_now();
    beats_then_ = beats_.load(std::memory_order_relaxed);
    if (unstamped_ == 0) return;
    recorder_->restart(unstamped_, now_);
    unstamped_ = 0;
  }
  // `awaited`: somebody is about to wait for it, or the progress thread will look after it soon.
  void started(Operation& operation, bool awaited) {
    if (recorder_ && operation.record == 0) start(operation, awaited);
  }
  // A segment of that world rank has come for it. Before it is used.
  void arrived(const Operation& operation, int peer, const transport::SegmentHeader& header) {
    if (!recorder_ || operation.record == 0) return;
    if (unstamped_ != 0 || header.bytes >= kLarge || stale()) tick();
    if (header.offset == 0 && header.key.message == 0) recorder_->arrived(operation.record, narrow(peer), now_);
  }
  void ended(const Operation& operation, const Status& status) {
    if (recorder_ && operation.record != 0) end(operation, status);
  }
  // One that is about to be over within its call (Brief), and moves so many bytes. Runs of equal ones share an entry, which costs a few
  // stores and no clock. Then it is over, or it waits and gets an entry of its own: its number, 0 where there is no recorder.
  void begun(const transport::SegmentHeader& header, std::uint64_t moved) {
    if (recorder_ && (stale() || !recorder_->another(header.key.communicator, header.key.operation, header.call))) begin_run(header, moved);
  }
  void over() {
    if (!recorder_ || recorder_->over() % kRunLook != 0) return;
    tick();
    recorder_->over_at(now_);
  }
  std::uint32_t waits(const transport::SegmentHeader& header) {
    if (!recorder_) return 0;
    recorder_->had_not_begun();
    return start(header, record::kNobody, false);
  }

  // Seldom.
  void joined(std::uint32_t communicator, int rank_count, int rank);
  // `description`: the connection's own.
  void connected(int peer, const std::string& wire, const std::string& description);
  void goes_by(int peer, const std::string& description);       // from now on
  void lost(int peer);
  void served(int peer, std::uint64_t bytes, std::uint64_t nanoseconds);
  void repaired(int peer, std::uint64_t frames, std::uint64_t segments);
  void broken(int peer, const Status& why);
  // After so long; `silent`: it had not broken, but moved nothing.
  void mended(int peer, Nanoseconds after, std::uint64_t resent_frames, bool silent);
  void waits(const Operation& operation);
  void hang_reported(std::uint32_t communicator, std::uint32_t sequence);
  void verdict(std::uint32_t communicator, const Status& status);
  void beat();
  // The file goes where nothing failed, unless it is to be kept.
  void close(bool keep);
  std::string path() const { return recorder_ ? recorder_->path() : ""; }
  std::size_t memory_bytes() const { return recorder_ ? recorder_->memory_bytes() : 0; }

 private:
  static std::uint16_t narrow(int peer) { return peer < 0 || peer >= record::kNobody ? record::kNobody : std::uint16_t(peer); }
  bool stale() const { return beats_.load(std::memory_order_relaxed) != beats_then_; }
  std::uint64_t loop_now() const { return std::uint64_t(loop_.now().time_since_epoch().count()); }
  void start(Operation& operation, bool awaited);
  std::uint32_t start(const transport::SegmentHeader& header, std::uint16_t peer, bool awaited);
  void begin_run(const transport::SegmentHeader& header, std::uint64_t moved);
  void end(const Operation& operation, const Status& status);
  void event(record::EventKind kind, int peer, std::uint32_t communicator, std::uint32_t operation, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0);

  Loop& loop_;
  std::unique_ptr<record::Recorder> recorder_;
  bool counter_;
  bool failed_ = false;
  std::uint64_t now_ = 0;
  std::uint32_t unstamped_ = 0;          // number of an operation whose start is not known better than now_; 0: none
  std::uint32_t beats_then_ = 0;         // when now_ was read
  std::atomic<std::uint32_t> beats_{0};
};

// By the setting: a new recorder, or null. Says once why there is none although there should be one.
std::unique_ptr<record::Recorder> open_recorder(const std::string& setting, const record::Identity& identity, record::Recorder::Clock clock);

}  // namespace tutti::comm
