// Communicators: making them, taking them apart, and asking them.
#include <dlfcn.h>
#include <fmt/format.h>
#include <tutti/version.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>

#include "core/config.h"
#include "core/log.h"
#include "nccl/api.h"
#include "nccl/gpus.h"
#include "nccl/place.h"

namespace tutti::nccl {
namespace {

static_assert(sizeof(ncclUniqueId) == UniqueId::kBytes);

// `tutti doctor` looks for it in the file.
constexpr const char* kMark = "libnccl.so.2 of tutti " TUTTI_VERSION_STRING;

// Of an id that NCCL_COMM_ID has given: the address follows. Our own begin with a version that is no letter.
constexpr std::string_view kByAddress = "NCCL_COMM_ID=";

Outcome make_id(ncclUniqueId& out) {
  out = {};
  if (const std::string address = environment("NCCL_COMM_ID"); !address.empty()) {
    const std::string text = std::string(kByAddress) + address;
    if (text.size() >= sizeof out) return {ncclInvalidArgument, fmt::format("NCCL_COMM_ID={} is too long", address)};
    std::copy(text.begin(), text.end(), out.internal);
    return {};
  }
  const auto id = Communicator::make_unique_id();
  if (!id) return outcome_of(id.status());
  std::memcpy(out.internal, id->bytes.data(), sizeof out);
  return {};
}

Result<Communicator> create(int rank, int rank_count, const ncclUniqueId& id) {
  const std::string_view text(id.internal, strnlen(id.internal, sizeof id));
  if (text.starts_with(kByAddress))
    return Communicator::create(rank, rank_count, std::string(text.substr(kByAddress.size())));
  UniqueId ours;
  std::memcpy(ours.bytes.data(), id.internal, sizeof id);
  return Communicator::create(rank, rank_count, ours);
}

// Which library this is: what NCCL_DEBUG=VERSION is asked for.
void introduce() {
  std::string debug = environment("NCCL_DEBUG");
  std::transform(debug.begin(), debug.end(), debug.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  Dl_info self{};
  dladdr(reinterpret_cast<const void*>(&introduce), &self);
  const std::string text = fmt::format("NCCL version {}.{}.{}: {}, {}, {}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, kMark,
                                       self.dli_fname ? self.dli_fname : "?", has_device() ? "beside a CUDA driver" : "on host memory");
  static std::once_flag told;      // whatever TUTTI_LOG says
  if (debug == "VERSION") std::call_once(told, [&] { fmt::print(stderr, "tutti: {}\n", text); });
  else log::write_once(log::Level::info, text);
}

Outcome check_rank(int rank, int rank_count) {
  if (rank_count < 1) return {ncclInvalidArgument, fmt::format("nranks is {}, wanted at least 1", rank_count)};
  if (rank < 0 || rank >= rank_count)
    return {ncclInvalidArgument, fmt::format("rank is {}, wanted 0 to {}", rank, rank_count - 1)};
  return {};
}

// One rank, which the others of `id` meet.
Outcome add_rank(ncclComm_t* out, int rank_count, const ncclUniqueId& id, int rank, ncclComm::Origin origin,
                 const CommSettings& settings) {
  if (Outcome good = check_rank(rank, rank_count); !good.ok()) return good;
  introduce();
  Task task;
  task.name = "ncclCommInitRank";
  origin.family = std::string(id.internal, sizeof id);
  task.comm = std::make_shared<ncclComm>(settings, std::move(origin));
  task.handle = out;
  task.make = [rank, rank_count, id] { return create(rank, rank_count, id); };
  *out = publish(task.comm);
  return Group::of_this_thread().add(std::move(task));
}

Outcome init(ncclComm_t* out, int rank_count, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  if (!out) return {ncclInvalidArgument, "comm is NULL, wanted where to put the communicator"};
  *out = nullptr;
  if (Outcome known = check_settings(); !known.ok()) return known;
  CommSettings settings;
  if (Outcome read = read_config(config, settings); !read.ok()) return read;
  return add_rank(out, rank_count, id, rank, {"", current_device(), open_gpu()}, settings);
}

// All ranks of a communicator in this process.
Outcome init_all(ncclComm_t* out, int rank_count, const int* devices) {
  if (!out) return {ncclInvalidArgument, "comm is NULL, wanted room for the communicators"};
  if (rank_count < 1) return {ncclInvalidArgument, fmt::format("ndev is {}, wanted at least 1", rank_count)};
  for (int r = 0; devices && r < rank_count; ++r)
    if (devices[r] < 0)
      return {ncclInvalidArgument, fmt::format("devlist[{}] is {}, wanted a device's number", r, devices[r])};
  std::fill(out, out + rank_count, nullptr);
  if (Outcome known = check_settings(); !known.ok()) return known;
  const auto device = [&](int r) { return devices ? devices[r] : r; };
  for (int r = 0; has_device() && r < rank_count; ++r)
    if (device(r) >= device_count())
      return {ncclInvalidArgument, fmt::format("rank {} is to be on device {}, and there are {}: devlist says on which, one of them "
                                               "several times where that is wanted", r, device(r), device_count())};
  ncclUniqueId id;
  if (Outcome made = make_id(id); !made.ok()) return made;
  Group& group = Group::of_this_thread();
  group.start();
  Outcome first;
  for (int r = 0; r < rank_count && first.ok(); ++r)
    first = add_rank(&out[r], rank_count, id, r, {"", device(r), open_gpu(device(r))}, {});
  if (!first.ok()) group.refuse(first);
  Outcome ended = group.end();
  return first.ok() ? ended : first;
}

// Whether a new one may come from it; `broken` ones too, where the operation does not need it whole.
Outcome check_parent(ncclComm& parent, bool broken) {
  Outcome usable = parent.ready();
  if (usable.ok() || parent.may_renew(broken)) return {};
  return usable;
}

Outcome split(const std::shared_ptr<ncclComm>& parent, int color, int key, ncclComm_t* out,
              const ncclConfig_t* config) {
  if (!out) return {ncclInvalidArgument, "newcomm is NULL, wanted where to put the communicator"};
  *out = nullptr;
  if (Outcome good = check_parent(*parent, false); !good.ok()) return good;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
    return {ncclInvalidArgument, fmt::format("color is {}, wanted at least 0, or NCCL_SPLIT_NOCOLOR", color)};
  CommSettings settings = parent->settings();
  if (Outcome read = read_config(config, settings); !read.ok()) return read;
  Task task;
  task.name = "ncclCommSplit";
  task.comm = std::make_shared<ncclComm>(settings, parent->descend(fmt::format("{}", color)));
  task.parent = parent;
  task.make = [parent = parent.get(), color, key] { return parent->split(color, key); };
  if (color != NCCL_SPLIT_NOCOLOR) {
    task.handle = out;
    *out = publish(task.comm);
  }
  return Group::of_this_thread().add(std::move(task));
}

Outcome shrink(const std::shared_ptr<ncclComm>& parent, const int* excluded, int excluded_count, ncclComm_t* out,
               const ncclConfig_t* config, int flags) {
  if (!out) return {ncclInvalidArgument, "newcomm is NULL, wanted where to put the communicator"};
  *out = nullptr;
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT)
    return {ncclInvalidArgument,
            fmt::format("shrinkFlags is {}, wanted NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT", flags)};
  const bool ends_what_runs = flags == NCCL_SHRINK_ABORT && parent->is_made() && parent->state().code == ncclInProgress;
  if (Outcome good = check_parent(*parent, true); !good.ok() && !ends_what_runs) return good;
  const int rank = parent->communicator().rank(), rank_count = parent->communicator().rank_count();
  if (excluded_count < 0 || excluded_count >= rank_count || (excluded_count > 0 && !excluded))
    return {ncclInvalidArgument, fmt::format("excludeRanksCount is {}, wanted 0 to {} and a list of as many",
                                             excluded_count, rank_count - 1)};
  const std::vector<int> without(excluded, excluded + excluded_count);
  for (int r : without)
    if (r < 0 || r >= rank_count || r == rank)
      return {ncclInvalidArgument,
              fmt::format("excludeRanksList has {}, wanted ranks from 0 to {} without the caller's, which is {}", r,
                          rank_count - 1, rank)};
  CommSettings settings = parent->settings();
  if (Outcome read = read_config(config, settings); !read.ok()) return read;
  if (flags == NCCL_SHRINK_ABORT) parent->communicator().abort("ncclCommShrink with NCCL_SHRINK_ABORT");
  Task task;
  task.name = "ncclCommShrink";
  task.comm = std::make_shared<ncclComm>(settings, parent->descend("shrink"));
  task.parent = parent;
  task.handle = out;
  task.make = [parent = parent.get(), without] {
    return parent->communicator().shrink(std::chrono::milliseconds(0), without);
  };
  *out = publish(task.comm);
  return Group::of_this_thread().add(std::move(task));
}

// One number that a communicator tells.
template <class Ask>
ncclResult_t tell(const char* name, ncclComm_t handle, int* out, Ask ask) {
  return answer(name, with(handle, [&](const std::shared_ptr<ncclComm>& comm) -> Outcome {
                  if (!out) return {ncclInvalidArgument, "the result is NULL, wanted where to put it"};
                  if (comm->is_made()) return *out = ask(*comm), Outcome();
                  return comm->ready();
                }));
}

}  // namespace
}  // namespace tutti::nccl

using tutti::nccl::answer;
using tutti::nccl::answer_in_group;
using tutti::nccl::Outcome;
using tutti::nccl::with;
using Shared = const std::shared_ptr<ncclComm>&;

extern "C" {

ncclResult_t pncclGetVersion(int* version) {
  return answer("ncclGetVersion", [&]() -> Outcome {
    if (!version) return {ncclInvalidArgument, "version is NULL, wanted where to put it"};
    *version = NCCL_VERSION_CODE;
    return {};
  });
}

ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) {
  return answer("ncclGetUniqueId", [&]() -> Outcome {
    if (!uniqueId) return {ncclInvalidArgument, "uniqueId is NULL, wanted where to put it"};
    return tutti::nccl::make_id(*uniqueId);
  });
}

ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return answer_in_group("ncclCommInitRank", [&] { return tutti::nccl::init(comm, nranks, commId, rank, nullptr); });
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t* config) {
  return answer_in_group("ncclCommInitRankConfig",
                         [&] { return tutti::nccl::init(comm, nranks, commId, rank, config); });
}

// One meeting point serves any number of ranks: the first id is the one.
ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                       ncclConfig_t* config) {
  return answer_in_group("ncclCommInitRankScalable", [&]() -> Outcome {
    if (nId < 1 || nId > nranks || !commIds)
      return {ncclInvalidArgument, fmt::format("nId is {}, wanted 1 to {} and as many ids", nId, nranks)};
    return tutti::nccl::init(newcomm, nranks, commIds[0], myrank, config);
  });
}

ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return answer_in_group("ncclCommInitAll", [&] { return tutti::nccl::init_all(comm, ndev, devlist); });
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  return answer_in_group("ncclCommSplit", with(comm, [&](Shared parent) {
                           return tutti::nccl::split(parent, color, key, newcomm, config);
                         }));
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                             ncclConfig_t* config, int shrinkFlags) {
  return answer_in_group("ncclCommShrink", with(comm, [&](Shared parent) {
                           return tutti::nccl::shrink(parent, excludeRanksList, excludeRanksCount, newcomm, config,
                                                      shrinkFlags);
                         }));
}

// Operations on host memory are complete when they return, or when the state is no longer ncclInProgress; streams have to
// pass the others.
ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  return answer("ncclCommFinalize", with(comm, [](Shared of) -> Outcome {
                  if (Outcome finalized = of->finalize(); !finalized.ok()) return finalized;
                  if (of->blocking() || !of->gpu()) return of->wait_for_streams(), Outcome();
                  of->begin_run();
                  std::thread([of] {
                    of->wait_for_streams();
                    of->end_run();
                  }).detach();
                  return {ncclInProgress, ""};
                }));
}

ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  return answer("ncclCommDestroy", with(comm, [&](Shared of) -> Outcome {
                  of->wait_until_idle();
                  of->wait_for_streams();
                  tutti::nccl::withdraw(comm);
                  return {};
                }));
}

ncclResult_t pncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  return answer("ncclCommAbort", with(comm, [&](Shared of) -> Outcome {
                  tutti::nccl::withdraw(comm);
                  of->abort("ncclCommAbort");
                  return {};
                }));
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return answer(
      "ncclCommRevoke", with(comm, [&](Shared of) -> Outcome {
        if (revokeFlags != NCCL_REVOKE_DEFAULT)
          return {ncclInvalidArgument, fmt::format("revokeFlags is {}, wanted NCCL_REVOKE_DEFAULT", revokeFlags)};
        Outcome revoked = of->revoke();
        if (revoked.ok() && of->blocking()) of->wait_until_idle();
        return revoked.ok() ? of->state() : revoked;
      }));
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  return tutti::nccl::tell("ncclCommCount", comm, count, [](ncclComm& of) { return of.communicator().rank_count(); });
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  return tutti::nccl::tell("ncclCommUserRank", comm, rank, [](ncclComm& of) { return of.communicator().rank(); });
}

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  return tutti::nccl::tell("ncclCommCuDevice", comm, device, [](ncclComm& of) { return of.origin().device; });
}

TUTTI_NCCL_TWIN(ncclGetVersion);
TUTTI_NCCL_TWIN(ncclGetUniqueId);
TUTTI_NCCL_TWIN(ncclCommInitRank);
TUTTI_NCCL_TWIN(ncclCommInitRankConfig);
TUTTI_NCCL_TWIN(ncclCommInitRankScalable);
TUTTI_NCCL_TWIN(ncclCommInitAll);
TUTTI_NCCL_TWIN(ncclCommSplit);
TUTTI_NCCL_TWIN(ncclCommShrink);
TUTTI_NCCL_TWIN(ncclCommFinalize);
TUTTI_NCCL_TWIN(ncclCommDestroy);
TUTTI_NCCL_TWIN(ncclCommAbort);
TUTTI_NCCL_TWIN(ncclCommRevoke);
TUTTI_NCCL_TWIN(ncclCommCount);
TUTTI_NCCL_TWIN(ncclCommUserRank);
TUTTI_NCCL_TWIN(ncclCommCuDevice);

}  // extern "C"
