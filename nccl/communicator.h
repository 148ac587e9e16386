#pragma once
// ncclComm: what an ncclComm_t points to: one rank of one communicator, with what NCCL's API keeps beside a
// tutti::Communicator. And the list of those that exist, so that a handle that was destroyed is an error and not a
// crash.
#include <tutti/communicator.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "core/device.h"
#include "nccl/outcome.h"
#include "nccl/settings.h"

namespace tutti::nccl {

// One made by ncclRedOpCreatePreMulSum.
struct CustomReduction {
  ncclDataType_t type;
  double factor = 1;
  const void* scalar = nullptr;  // not null: where the factor is to be read when an operation starts
};

}  // namespace tutti::nccl

// Any thread. `communicator` is written once, by whoever makes it, before made().
struct ncclComm {
 public:
  using Outcome = tutti::nccl::Outcome;
  // Which ranks belong together, on which GPU.
  struct Origin {
    std::string family;                     // the same for all ranks of a communicator, and of no other
    int device = -1;                        // its number; -1 none
    std::shared_ptr<tutti::Device> gpu;     // null: host memory
  };
  ncclComm(tutti::nccl::CommSettings settings, Origin origin) : settings_(std::move(settings)), origin_(std::move(origin)) {}

  const tutti::nccl::CommSettings& settings() const { return settings_; }
  bool blocking() const { return settings_.blocking; }
  const Origin& origin() const { return origin_; }
  const std::shared_ptr<tutti::Device>& gpu() const { return origin_.gpu; }
  // Of one that comes from it.
  Origin descend(const std::string& how);
  tutti::Communicator& communicator() { return communicator_; }

  // Whether it may be used for operations, or for what leaves it as it is.
  Outcome ready();
  // ncclInProgress, ok, or what broke it; what ncclCommGetAsyncError says.
  Outcome state();

  bool is_made();
  // Whether a new one may come from it though it cannot be used: it was revoked, or, where `broken` will do, has
  // failed.
  bool may_renew(bool broken);

  // What is on streams; and waiting until they have passed it, however it ended.
  void note(const tutti::Work& on_stream);
  void wait_for_streams();

  // Of what goes on behind a call that has returned.
  void begin_run();
  void end_run();
  void wait_until_idle();
  void keep(Outcome& outcome);  // says which communicator it was, where that has a name

  // Each says why not.
  Outcome made(tutti::Result<tutti::Communicator> result);
  Outcome finalize();
  Outcome revoke();
  void abort(const std::string& reason);
  // A new one; blocks until all ranks have called. After revoke by way of one that all ranks form anew.
  tutti::Result<tutti::Communicator> split(int color, int key);

  ncclRedOp_t add(const tutti::nccl::CustomReduction& reduction);
  std::optional<tutti::nccl::CustomReduction> find(ncclRedOp_t op);
  bool remove(ncclRedOp_t op);
  void* add_registration();
  bool remove_registration(void* handle);
  std::string failure_text();

 private:
  const tutti::nccl::CommSettings settings_;
  const Origin origin_;
  tutti::Communicator communicator_, renewed_;
  std::mutex mutex_;
  std::condition_variable idle_;
  tutti::Work last_on_stream_;
  int descendants_ = 0;
  bool made_ = false, finalized_ = false, revoked_ = false, aborted_ = false;
  int running_ = 0;
  Outcome failure_;  // the first
  std::map<ncclRedOp_t, tutti::nccl::CustomReduction> reductions_;
  std::set<std::unique_ptr<char>> registrations_;
};

namespace tutti::nccl {

ncclComm_t publish(std::shared_ptr<ncclComm> comm);
void withdraw(ncclComm_t handle);
// Null for a handle that is none (any more).
std::shared_ptr<ncclComm> find(ncclComm_t handle);
// The same, with what is to be told about one that is none.
Outcome find(ncclComm_t handle, std::shared_ptr<ncclComm>& out);

}  // namespace tutti::nccl
