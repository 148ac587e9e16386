#include "nccl/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "comm/member.h"
#include "core/fork.h"

using tutti::nccl::CustomReduction;
using tutti::nccl::Outcome;

namespace {

// Collective. Of one host: others have nothing of it.
bool all_have_gpus(tutti::Communicator& ranks, bool mine) {
  if (ranks.rank_count() < 2 || ranks.local_rank_count() != ranks.rank_count()) return false;
  std::uint8_t all = mine;
  tutti::Work work = ranks.all_reduce(
      {.input = &all, .output = &all, .count = 1, .type = tutti::DataType::u8, .op = tutti::ReduceOp::min});
  return work.wait().ok() && all;
}

}  // namespace

Outcome ncclComm::state() {
  {
    const std::lock_guard held(mutex_);
    if (running_ > 0) return {ncclInProgress, ""};
    if (failure_.failed()) return failure_;
    if (revoked_ || !made_) return {};
  }
  return tutti::nccl::outcome_of(communicator_.status());
}

Outcome ncclComm::ready() {
  {
    const std::lock_guard held(mutex_);
    if (running_ > 0)
      return {ncclInvalidArgument,
              "the call before is still in progress: wait until ncclCommGetAsyncError says something else than "
              "ncclInProgress"};
    if (aborted_) return {ncclInvalidUsage, "the communicator was aborted"};
    if (revoked_) return {ncclInvalidUsage, "the communicator was revoked: it may be split, shrunk and destroyed"};
    if (finalized_) return {ncclInvalidUsage, "the communicator was finalized"};
    if (failure_.failed()) return failure_;
    if (!made_) return {ncclInvalidUsage, "the communicator is not made yet: that is done at the end of the group"};
  }
  return {};
}

bool ncclComm::is_made() {
  const std::lock_guard held(mutex_);
  return made_;
}

bool ncclComm::may_renew(bool broken) {
  const std::lock_guard held(mutex_);
  return made_ && running_ == 0 && !aborted_ && (revoked_ || (broken && failure_.failed()));
}

// All ranks make the same descendants in the same order.
ncclComm::Origin ncclComm::descend(const std::string& how) {
  const std::lock_guard held(mutex_);
  return {fmt::format("{}/{}:{}", origin_.family, ++descendants_, how), origin_.device, origin_.gpu};
}

// They pass in the order in which they were put there.
void ncclComm::note(const tutti::Work& on_stream) {
  const std::lock_guard held(mutex_);
  last_on_stream_ = on_stream;
}

void ncclComm::wait_for_streams() {
  tutti::Work last;
  {
    const std::lock_guard held(mutex_);
    last = last_on_stream_;
  }
  (void)last.wait();
}

void ncclComm::begin_run() {
  const std::lock_guard held(mutex_);
  ++running_;
}

void ncclComm::end_run() {
  const std::lock_guard held(mutex_);
  if (--running_ == 0) idle_.notify_all();
}

void ncclComm::wait_until_idle() {
  std::unique_lock held(mutex_);
  idle_.wait(held, [this] { return running_ == 0; });
}

// What was refused before anything was sent leaves it as it was.
void ncclComm::keep(Outcome& outcome) {
  if (outcome.failed() && !settings_.name.empty())
    outcome.text = fmt::format("communicator {}: {}", settings_.name, outcome.text);
  const std::lock_guard held(mutex_);
  const bool harmless = made_ && outcome.code == ncclInvalidArgument;
  if (outcome.failed() && !harmless && !revoked_ && !failure_.failed()) failure_ = outcome;
}

Outcome ncclComm::made(tutti::Result<tutti::Communicator> result) {
  if (!result) return tutti::nccl::outcome_of(result.status());
  {
    const std::lock_guard held(mutex_);      // from now on abort() ends what waits
    communicator_ = std::move(*result);
    if (aborted_) communicator_.abort("ncclCommAbort");
  }
  if (origin_.gpu)
    if (const auto member = tutti::comm::Member::of(communicator_)) member->use_device(origin_.gpu);
  // Where they do not reach each other's memory the log says why, and operations go through the host's.
  if (all_have_gpus(communicator_, origin_.gpu != nullptr)) (void)communicator_.use_gpu();
  {
    const std::lock_guard held(mutex_);
    made_ = true;
    if (!aborted_ && communicator_.rank_count() == 0) return {};
    if (!aborted_) return tutti::nccl::outcome_of(communicator_.status());
  }
  return {ncclInvalidUsage, "the communicator was aborted while it was being made"};
}

Outcome ncclComm::finalize() {
  if (Outcome usable = ready(); !usable.ok()) return usable;
  const std::lock_guard held(mutex_);
  finalized_ = true;
  return {};
}

Outcome ncclComm::revoke() {
  {
    const std::lock_guard held(mutex_);
    if (!made_) return {ncclInvalidUsage, "the communicator is not made yet"};
    if (finalized_) return {ncclInvalidUsage, "the communicator was finalized"};
    revoked_ = true;
    failure_ = {};
  }
  communicator_.abort("ncclCommRevoke");
  return {};
}

void ncclComm::abort(const std::string& reason) {
  {
    const std::lock_guard held(mutex_);
    aborted_ = true;
    if (communicator_.rank_count() == 0) return;      // not made yet: made() will see it
  }
  communicator_.abort(reason);
}

tutti::Result<tutti::Communicator> ncclComm::split(int color, int key) {
  const bool revoked = [this] {
    const std::lock_guard held(mutex_);
    return revoked_;
  }();
  if (!revoked) return communicator_.split(color, key);
  if (renewed_.rank_count() == 0) {
    auto renewed = communicator_.shrink();
    if (!renewed) return renewed.status();
    renewed_ = std::move(*renewed);
  }
  return renewed_.split(color, key);
}

// Numbers are not used again in a process, so that one of another communicator is found out.
ncclRedOp_t ncclComm::add(const CustomReduction& reduction) {
  static std::atomic<int> next{ncclNumOps};
  const auto op = ncclRedOp_t(next++);
  const std::lock_guard held(mutex_);
  reductions_.emplace(op, reduction);
  return op;
}

std::optional<CustomReduction> ncclComm::find(ncclRedOp_t op) {
  const std::lock_guard held(mutex_);
  const auto at = reductions_.find(op);
  return at == reductions_.end() ? std::nullopt : std::optional(at->second);
}

bool ncclComm::remove(ncclRedOp_t op) {
  const std::lock_guard held(mutex_);
  return reductions_.erase(op) == 1;
}

void* ncclComm::add_registration() {
  const std::lock_guard held(mutex_);
  return registrations_.insert(std::make_unique<char>()).first->get();
}

bool ncclComm::remove_registration(void* handle) {
  const std::lock_guard held(mutex_);
  return std::erase_if(registrations_, [&](const auto& kept) { return kept.get() == handle; }) == 1;
}

std::string ncclComm::failure_text() {
  const std::lock_guard held(mutex_);
  return failure_.text;
}

namespace tutti::nccl {
namespace {

struct Living {
  std::mutex mutex;
  std::unordered_map<ncclComm_t, std::shared_ptr<ncclComm>> comms;
};
// A child of fork() has none of its parent's.
Living& living() {
  static PerProcess<Living> all;
  return *all;
}

}  // namespace

ncclComm_t publish(std::shared_ptr<ncclComm> comm) {
  const std::lock_guard held(living().mutex);
  ncclComm_t handle = comm.get();
  living().comms[handle] = std::move(comm);
  return handle;
}

void withdraw(ncclComm_t handle) {
  std::shared_ptr<ncclComm> last;  // goes when the lock is free
  const std::lock_guard held(living().mutex);
  if (auto at = living().comms.find(handle); at != living().comms.end()) {
    last = std::move(at->second);
    living().comms.erase(at);
  }
}

std::shared_ptr<ncclComm> find(ncclComm_t handle) {
  const std::lock_guard held(living().mutex);
  const auto at = living().comms.find(handle);
  return at == living().comms.end() ? nullptr : at->second;
}

Outcome find(ncclComm_t handle, std::shared_ptr<ncclComm>& out) {
  if (!handle) return {ncclInvalidArgument, "the communicator is NULL"};
  out = find(handle);
  if (!out)
    return {ncclInvalidArgument, fmt::format("{} is no communicator of this process, or was destroyed", static_cast<void*>(handle))};
  return {};
}

}  // namespace tutti::nccl
