#pragma once
// Journal: what an engine tells its flight recorder, and the clock that it tells time by. Without a recorder every call does
// nothing. Under the engine's lock, except beat().
//
// The clock is looked at where it costs nothing: after an operation's first sends, while a peer's bytes are on their way, and
// between the looks of a wait. What arrives is stamped with the last such look.
#include <memory>

#include "comm/operation.h"
#include "core/net.h"
#include "record/recorder.h"
#include "record/ticks.h"

namespace tutti::comm {

class Journal {
 public:
  static constexpr std::uint64_t kLarge = 64 << 10;   // bytes: moving so many takes longer than a look at the clock

  // `counter`: ticks are the processor's, else the loop's nanoseconds.
  Journal(Loop& loop, std::unique_ptr<record::Recorder> recorder, bool counter);

  void tick() {
    if (recorder_) now_ = counter_ ? record::counter() : loop_now();
  }
  // In place of a pause between two looks: reading the clock takes about as long.
  bool idle_tick() {
    if (!recorder_ || !counter_) return false;
    now_ = record::counter();
    return true;
  }
  void started(Operation& operation) {
    if (recorder_) start(operation);
  }
  // A segment of that world rank has come for it. Before it is used.
  void arrived(const Operation& operation, int peer, const transport::SegmentHeader& header) {
    if (!recorder_ || operation.record == 0) return;
    if (header.bytes >= kLarge) tick();
    if (header.offset == 0 && header.key.message == 0) recorder_->arrived(operation.record, narrow(peer), now_);
  }
  void ended(const Operation& operation, const Status& status) {
    if (recorder_ && operation.record != 0) end(operation, status);
  }

  // Seldom.
  void joined(std::uint32_t communicator, int rank_count, int rank);
  void connected(int peer, const std::string& wire);
  void lost(int peer);
  void served(int peer, std::uint64_t bytes, std::uint64_t nanoseconds);
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
  std::uint64_t loop_now() const { return std::uint64_t(loop_.now().time_since_epoch().count()); }
  void start(Operation& operation);
  void end(const Operation& operation, const Status& status);
  void event(record::EventKind kind, int peer, std::uint32_t communicator, std::uint32_t operation, std::uint64_t a = 0, std::uint64_t b = 0);

  Loop& loop_;
  std::unique_ptr<record::Recorder> recorder_;
  bool counter_;
  bool failed_ = false;
  std::uint64_t now_ = 0;
  std::uint64_t long_wait_ = 0;          // ticks: shorter waits are not added up
};

// By the setting: a new recorder, or null. Says once why there is none although there should be one.
std::unique_ptr<record::Recorder> open_recorder(const std::string& setting, const record::Identity& identity, record::Recorder::Clock clock);

}  // namespace tutti::comm
