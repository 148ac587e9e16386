#pragma once
// Recorder: the flight recorder of one rank: a file-backed map that outlives the process. Told what happens, it stores
// it; it asks no clock on its own, allocates nothing and makes no system call after it was created. One thread at a
// time, except beat(), which may run beside the others.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/status.h>

#include "record/format.h"

namespace tutti::record {

struct Identity {
  std::uint64_t job = 0;                  // the same for all ranks of a job, unlike any other's
  int rank = 0, rank_count = 1, pid = 0;
  std::uint64_t host_identity = 0;
  std::string host;
};

// Now, on three clocks.
Moment moment_of_this_host();             // ticks as counter(), or nanoseconds

// Cut where it is too long; zeros behind it.
template <std::size_t N>
void put_text(char (&field)[N], std::string_view text) {
  std::memset(field, 0, N);
  std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

class Recorder {
 public:
  using Clock = std::function<Moment()>;
  // A new file in `folder`, all of its memory taken at once: a full file system
  // shows here, not later. out_of_resources.
  static Result<std::unique_ptr<Recorder>> create(const std::string& folder, const Identity& identity, Clock clock);
  ~Recorder();                            // the file stays as it is
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Its number, never 0.
  std::uint32_t started(std::uint32_t communicator, std::uint32_t operation, std::uint64_t call, std::uint64_t payload,
                        std::uint16_t peer, std::uint64_t now, bool run = false) {
    end_run();
    if (++last_operation_ == 0) ++last_operation_;
    OperationEntry& entry = operations_[last_operation_ % kOperations];
    std::atomic_ref<std::uint32_t> stamp(entry.stamp);
    stamp.store(0, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    entry.communicator = communicator;
    entry.operation = operation;
    entry.last_peer = peer;
    entry.code = 0;
    entry.run = run;
    entry.call = call;
    entry.started = now;
    entry.ended = 0;
    entry.total = total_ += payload;
    entry.moved = 0;
    entry.first_after = run;
    entry.last_after = 0;
    stamp.store(last_operation_, std::memory_order_release);
    __builtin_prefetch(&operations_[(last_operation_ + 1) % kOperations],
                       1);  // written next: its line shall be here by then
    return last_operation_;
  }
  // One that will be over soon, as the last one was: false where it is no other of a run that began (a run begins as
  // started() says, and ends with another start). Then it is over, or had not begun.
  bool another(std::uint32_t communicator, std::uint32_t operation, std::uint64_t call) {
    if (run_ == nullptr || run_->call != call || run_->communicator != communicator ||
        operation != run_->operation + run_->first_after)
      return false;
    count(run_->first_after, 1);
    run_->total += run_payload_;
    return true;
  }
  void begin_run(std::uint32_t communicator, std::uint32_t operation, std::uint64_t call, std::uint64_t payload,
                 std::uint64_t moved, std::uint64_t now) {
    started(communicator, operation, call, payload, kNobody, now, true);
    run_ = &operations_[last_operation_ % kOperations];
    run_->moved = moved;
    run_->ended = now;
    run_payload_ = payload;
  }
  // How many of the run are.
  std::uint32_t over() { return count(run_->last_after, 1); }
  void over_at(std::uint64_t now) { run_->ended = now; }
  void had_not_begun() {
    run_->total -= run_payload_;
    if (count(run_->first_after, std::uint32_t(-1)) > 0) return;
    end_run();
    --last_operation_;                    // its entry is the next one's
  }
  // It started later than it was told to have.
  void restart(std::uint32_t number, std::uint64_t now) {
    OperationEntry& entry = operations_[number % kOperations];
    if (entry.stamp == number) entry.started = now;
  }
  // The first data of a peer for it has come.
  void arrived(std::uint32_t number, std::uint16_t peer, std::uint64_t now) {
    OperationEntry& entry = operations_[number % kOperations];
    if (entry.stamp != number) return;    // so many have been started since
    const std::uint64_t after = now > entry.started ? (now - entry.started) >> kAfterShift : 0;
    const auto capped = std::uint32_t(after < 0xffffffffu ? after : 0xffffffffu);
    if (entry.last_peer == kNobody) entry.first_after = capped;
    entry.last_after = capped;
    entry.last_peer = peer;
  }
  void ended(std::uint32_t number, std::uint8_t code, std::uint64_t moved, std::uint64_t now) {
    OperationEntry& entry = operations_[number % kOperations];
    if (entry.stamp != number) return;
    entry.moved = moved;
    entry.code = code;
    std::atomic_ref<std::uint64_t>(entry.ended)
        .store(now > entry.started ? now : entry.started + 1, std::memory_order_release);
  }
  const OperationEntry* find(std::uint32_t number) const {
    const OperationEntry& entry = operations_[number % kOperations];
    return entry.stamp == number ? &entry : nullptr;
  }

  // The stamp is given here.
  void event(EventEntry entry);
  // The first one stays.
  void verdict(std::uint32_t communicator, const Status& status, std::uint64_t now);
  PeerEntry* peer(int world_rank) { return std::uint32_t(world_rank) < header_->peers ? &peers_[world_rank] : nullptr; }
  void beat();                            // somebody looks after the rank now
  void close(End end);                    // and the file may go where that is clean
  bool clean() const;
  const std::string& path() const { return path_; }
  std::size_t memory_bytes() const { return bytes_; }

 private:
  Recorder() = default;
  static std::uint32_t count(std::uint32_t& of, std::uint32_t by) {
    std::atomic_ref<std::uint32_t> word(of);
    const std::uint32_t now = word.load(std::memory_order_relaxed) + by;
    word.store(now, std::memory_order_relaxed);
    return now;
  }
  void end_run() {
    if (run_ == nullptr) return;
    total_ = run_->total;
    run_ = nullptr;
  }

  Status open(const std::string& folder, const Identity& identity);
  void fill(const Identity& identity);

  std::string path_;
  int fd_ = -1;                           // holds the lock that says: alive
  std::byte* map_ = nullptr;
  std::size_t bytes_ = 0;
  Header* header_ = nullptr;
  OperationEntry* operations_ = nullptr;
  EventEntry* events_ = nullptr;
  PeerEntry* peers_ = nullptr;
  std::uint32_t last_operation_ = 0, last_event_ = 0;
  OperationEntry* run_ = nullptr;         // the newest entry where that is a run
  std::uint64_t run_payload_ = 0;         // of each
  std::uint64_t total_ = 0;
  Clock clock_;
};

}  // namespace tutti::record
