#pragma once
// Operation: one operation from its start to its single completion, behind the Work that the user holds. Its execution runs
// under the engine's lock; completion can be read without it.
#include <atomic>
#include <functional>
#include <memory>
#include <tutti/status.h>
#include <vector>

#include "comm/call.h"
#include "comm/execution.h"
#include "comm/result_check.h"
#include "core/fork.h"
#include "core/net.h"

namespace tutti::comm {

class Engine;
class Member;

class Operation {
 public:
  Operation(std::weak_ptr<Engine> engine, std::shared_ptr<Member> member) : engine_(std::move(engine)), member_(std::move(member)) {}

  bool complete() const { return complete_.load(std::memory_order_acquire); }
  const Status& status() const { return status_; }          // once complete
  std::shared_ptr<Engine> engine() const { return engine_.lock(); }
  Member& member() const { return *member_; }
  const Origin& origin() const;

  // Under the engine's lock: ends it. Only the first call counts. Returns the callbacks, to be run without the lock.
  std::vector<std::function<void(const Status&)>> finish(Status status);
  // Under the engine's lock; false when complete already (then the caller runs it).
  bool add_callback(std::function<void(const Status&)>& callback);

  Call call;
  std::uint32_t sequence = 0;
  std::uint32_t token = 0;         // names it among the engine's pending ones
  TimePoint last_moved{};          // for TUTTI_TIMEOUT; as seen by those who look, unset before the first
  std::uint64_t last_moved_bytes = 0;
  std::uint64_t noted_moved_bytes = ~std::uint64_t(0);   // when its waits were last written to the flight recorder
  bool hang_told = false;          // in a hang report
  std::unique_ptr<Execution> execution;
  bool in_kernel = false;          // a kernel among GPUs carries it, and there is no execution
  std::vector<int> meets;          // then: ranks that it waits for, once the kernel has begun
  std::vector<int> waits_for() const { return execution ? execution->waits_for() : meets; }
  std::function<void()> after;     // on success, before completion: writes converted results to the user's buffer
  std::unique_ptr<ResultCheck> check;   // before completion, too; null: none
  std::vector<std::byte> staging;  // converted inputs
  int pending_parts = 0;           // a group: how many of its operations are not complete
  bool outlives = false;           // its communicator's verdict: it deals with that
  std::uint32_t record = 0;        // its number in the flight recorder, 0 none
  bool waited = false;             // somebody called wait()
  bool unwaited = false;           // the progress thread found it while nobody waited

 private:
  std::weak_ptr<Engine> engine_;
  std::shared_ptr<Member> member_;
  std::vector<std::function<void(const Status&)>> callbacks_;
  Status status_;
  std::atomic<bool> complete_{false};
};

}  // namespace tutti::comm
