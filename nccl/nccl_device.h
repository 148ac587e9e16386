/* The host's side of NCCL's device API as of version 2.28: what the library must export. The device side is refused (docs/nccl.md), so
 * a handle is never filled in and its type stays incomplete. */
#ifndef TUTTI_NCCL_DEVICE_H_
#define TUTTI_NCCL_DEVICE_H_

#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclMultimemHandle ncclMultimemHandle_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;

/* Ranks of a communicator at equal distances. */
struct ncclTeam {
  int nRanks, rank, stride;
};
typedef struct ncclTeam ncclTeam_t;

#define TUTTI_NCCL_FUNCTION(result, name, parameters) \
  result name parameters;                             \
  result p##name parameters;

TUTTI_NCCL_FUNCTION(ncclResult_t, ncclDevCommCreate,
                    (ncclComm_t comm, ncclDevCommRequirements_t const* requirements, ncclDevComm_t* outDevComm))
TUTTI_NCCL_FUNCTION(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, ncclDevComm_t const* devComm))
TUTTI_NCCL_FUNCTION(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm))
TUTTI_NCCL_FUNCTION(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm))
TUTTI_NCCL_FUNCTION(ncclTeam_t, ncclTeamRail, (ncclComm_t comm))
TUTTI_NCCL_FUNCTION(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank))
TUTTI_NCCL_FUNCTION(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank))
TUTTI_NCCL_FUNCTION(ncclResult_t, ncclLsaBarrierCreateRequirement,
                    (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle, ncclDevResourceRequirements_t* outReq))
TUTTI_NCCL_FUNCTION(ncclResult_t, ncclGinBarrierCreateRequirement,
                    (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t* outHandle,
                     ncclDevResourceRequirements_t* outReq))
TUTTI_NCCL_FUNCTION(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize))
TUTTI_NCCL_FUNCTION(ncclResult_t, ncclLLA2ACreateRequirement,
                    (int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle, ncclDevResourceRequirements_t* outReq))

#undef TUTTI_NCCL_FUNCTION

#ifdef __cplusplus
}
#endif
#endif
