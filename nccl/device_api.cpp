// The host's side of the device API. Kernels of a program's own that communicate are not served: what would prepare for
// them is refused. Teams can be asked for: of memory that peers load and store in kernels each rank has its own alone.
#include "nccl/nccl_device.h"

#include "nccl/api.h"

namespace tutti::nccl {
namespace {

ncclResult_t refuse_device_api(const char* name) {
  return answer(name, []() -> Outcome {
    return {ncclInvalidUsage,
            "the device API (communication from within a program's own kernels) is not served by this library; the "
            "host API is"};
  });
}

// Null where it is not usable; the reason is remembered.
std::shared_ptr<ncclComm> usable(const char* name, ncclComm_t handle) {
  std::shared_ptr<ncclComm> found;
  const auto code = answer(name, with(handle, [&](const std::shared_ptr<ncclComm>& comm) {
                             found = comm;
                             return comm->is_made() ? Outcome() : comm->ready();
                           }));
  return code == ncclSuccess ? found : nullptr;
}

constexpr int kSlotBytes = 8;  // of payload

}  // namespace
}  // namespace tutti::nccl

using tutti::nccl::refuse_device_api;
using tutti::nccl::usable;

extern "C" {

ncclResult_t pncclDevCommCreate(ncclComm_t, ncclDevCommRequirements_t const*, ncclDevComm_t*) {
  return refuse_device_api("ncclDevCommCreate");
}
ncclResult_t pncclDevCommDestroy(ncclComm_t, ncclDevComm_t const*) { return refuse_device_api("ncclDevCommDestroy"); }
ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle_t*,
                                              ncclDevResourceRequirements_t*) {
  return refuse_device_api("ncclLsaBarrierCreateRequirement");
}
ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*,
                                              ncclDevResourceRequirements_t*) {
  return refuse_device_api("ncclGinBarrierCreateRequirement");
}
ncclResult_t pncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*) {
  return refuse_device_api("ncclLLA2ACreateRequirement");
}

int pncclLLA2ACalcSlots(int maxElts, int maxEltSize) {
  return maxElts * ((maxEltSize + tutti::nccl::kSlotBytes - 1) / tutti::nccl::kSlotBytes);
}

ncclTeam_t pncclTeamWorld(ncclComm_t comm) {
  const auto of = usable("ncclTeamWorld", comm);
  return of ? ncclTeam_t{of->communicator().rank_count(), of->communicator().rank(), 1} : ncclTeam_t{0, 0, 0};
}

ncclTeam_t pncclTeamLsa(ncclComm_t comm) {
  return usable("ncclTeamLsa", comm) ? ncclTeam_t{1, 0, 1} : ncclTeam_t{0, 0, 0};
}

ncclTeam_t pncclTeamRail(ncclComm_t comm) {
  const auto of = usable("ncclTeamRail", comm);
  return of ? ncclTeam_t{of->communicator().rank_count(), of->communicator().rank(), 1} : ncclTeam_t{0, 0, 0};
}

int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  const auto of = usable("ncclTeamRankToWorld", comm);
  return of ? of->communicator().rank() + (rank - team.rank) * team.stride : -1;
}

int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return usable("ncclTeamRankToLsa", comm) ? (rank - team.rank) * team.stride : -1;
}

TUTTI_NCCL_TWIN(ncclDevCommCreate);
TUTTI_NCCL_TWIN(ncclDevCommDestroy);
TUTTI_NCCL_TWIN(ncclLsaBarrierCreateRequirement);
TUTTI_NCCL_TWIN(ncclGinBarrierCreateRequirement);
TUTTI_NCCL_TWIN(ncclLLA2ACreateRequirement);
TUTTI_NCCL_TWIN(ncclLLA2ACalcSlots);
TUTTI_NCCL_TWIN(ncclTeamWorld);
TUTTI_NCCL_TWIN(ncclTeamLsa);
TUTTI_NCCL_TWIN(ncclTeamRail);
TUTTI_NCCL_TWIN(ncclTeamRankToWorld);
TUTTI_NCCL_TWIN(ncclTeamRankToLsa);

}  // extern "C"
