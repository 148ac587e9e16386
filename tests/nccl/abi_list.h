// Not a header of its own: included once behind either nccl.h and nccl_device.h, it defines abi_list().
#include <cstddef>
#include <string>
#include <type_traits>
#include <typeinfo>

#include "tests/nccl/abi.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

template <class T>
std::string text_of(T value) {
  if constexpr (std::is_convertible_v<T, const char*>) return value ? value : "null";
  else if constexpr (std::is_floating_point_v<T>) return std::to_string(value);
  else return std::to_string(static_cast<long long>(value));
}

#define FUNCTION(what) list[#what] = typeid(decltype(what)).name(), list["p" #what] = typeid(decltype(p##what)).name()
// Of the device API, whose names are overloaded there.
#define DEVICE_FUNCTION(what, ...) list[#what] = typeid(static_cast<__VA_ARGS__>(&what)).name()
#define CONSTANT(what) list[#what] = text_of(what)
#define TYPE(what) list["sizeof " #what] = std::to_string(sizeof(what)) + " aligned " + std::to_string(alignof(what)) + " " + typeid(what).name()
#define FIELD(of, field) \
  list[#of "." #field] = std::to_string(offsetof(of, field)) + " " + typeid(decltype(of::field)).name()

void functions(tutti::test::Abi& list) {
  FUNCTION(ncclMemAlloc);
  FUNCTION(ncclMemFree);
  FUNCTION(ncclGetVersion);
  FUNCTION(ncclGetUniqueId);
  FUNCTION(ncclCommInitRankConfig);
  FUNCTION(ncclCommInitRank);
  FUNCTION(ncclCommInitAll);
  FUNCTION(ncclCommFinalize);
  FUNCTION(ncclCommDestroy);
  FUNCTION(ncclCommAbort);
  FUNCTION(ncclCommRevoke);
  FUNCTION(ncclCommSplit);
  FUNCTION(ncclCommShrink);
  FUNCTION(ncclCommInitRankScalable);
  FUNCTION(ncclGetErrorString);
  FUNCTION(ncclGetLastError);
  FUNCTION(ncclResetDebugInit);
  FUNCTION(ncclCommGetAsyncError);
  FUNCTION(ncclCommCount);
  FUNCTION(ncclCommCuDevice);
  FUNCTION(ncclCommUserRank);
  FUNCTION(ncclCommRegister);
  FUNCTION(ncclCommDeregister);
  FUNCTION(ncclCommWindowRegister);
  FUNCTION(ncclCommWindowDeregister);
  FUNCTION(ncclRedOpCreatePreMulSum);
  FUNCTION(ncclRedOpDestroy);
  FUNCTION(ncclReduce);
  FUNCTION(ncclBcast);
  FUNCTION(ncclBroadcast);
  FUNCTION(ncclAllReduce);
  FUNCTION(ncclReduceScatter);
  FUNCTION(ncclAllGather);
  FUNCTION(ncclAlltoAll);
  FUNCTION(ncclGather);
  FUNCTION(ncclScatter);
  FUNCTION(ncclSend);
  FUNCTION(ncclRecv);
  FUNCTION(ncclGroupStart);
  FUNCTION(ncclGroupEnd);
  FUNCTION(ncclGroupSimulateEnd);
}

void device_functions(tutti::test::Abi& list) {
  DEVICE_FUNCTION(ncclDevCommCreate, ncclResult_t (*)(ncclComm_t, ncclDevCommRequirements_t const*, ncclDevComm_t*));
  DEVICE_FUNCTION(ncclDevCommDestroy, ncclResult_t (*)(ncclComm_t, ncclDevComm_t const*));
  DEVICE_FUNCTION(ncclTeamWorld, ncclTeam_t (*)(ncclComm_t));
  DEVICE_FUNCTION(ncclTeamLsa, ncclTeam_t (*)(ncclComm_t));
  DEVICE_FUNCTION(ncclTeamRail, ncclTeam_t (*)(ncclComm_t));
  DEVICE_FUNCTION(ncclTeamRankToWorld, int (*)(ncclComm_t, ncclTeam_t, int));
  DEVICE_FUNCTION(ncclTeamRankToLsa, int (*)(ncclComm_t, ncclTeam_t, int));
  DEVICE_FUNCTION(ncclLsaBarrierCreateRequirement, ncclResult_t (*)(ncclTeam_t, int, ncclLsaBarrierHandle_t*, ncclDevResourceRequirements_t*));
  DEVICE_FUNCTION(ncclGinBarrierCreateRequirement, ncclResult_t (*)(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*, ncclDevResourceRequirements_t*));
  DEVICE_FUNCTION(ncclLLA2ACalcSlots, int (*)(int, int));
  DEVICE_FUNCTION(ncclLLA2ACreateRequirement, ncclResult_t (*)(int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*));
  TYPE(ncclTeam_t);
  FIELD(ncclTeam_t, nRanks);
  FIELD(ncclTeam_t, rank);
  FIELD(ncclTeam_t, stride);
}

void constants(tutti::test::Abi& list) {
  CONSTANT(NCCL_MAJOR);
  CONSTANT(NCCL_MINOR);
  CONSTANT(NCCL_PATCH);
  CONSTANT(NCCL_SUFFIX);
  CONSTANT(NCCL_VERSION_CODE);
  CONSTANT(NCCL_COMM_NULL);
  CONSTANT(NCCL_UNIQUE_ID_BYTES);
  CONSTANT(NCCL_CONFIG_UNDEF_INT);
  CONSTANT(NCCL_CONFIG_UNDEF_PTR);
  CONSTANT(NCCL_SPLIT_NOCOLOR);
  CONSTANT(NCCL_UNDEF_FLOAT);
  CONSTANT(NCCL_WIN_DEFAULT);
  CONSTANT(NCCL_WIN_COLL_SYMMETRIC);
  CONSTANT(NCCL_WIN_REQUIRED_ALIGNMENT);
  CONSTANT(NCCL_CTA_POLICY_DEFAULT);
  CONSTANT(NCCL_CTA_POLICY_EFFICIENCY);
  CONSTANT(NCCL_CTA_POLICY_ZERO);
  CONSTANT(NCCL_SHRINK_DEFAULT);
  CONSTANT(NCCL_SHRINK_ABORT);
  CONSTANT(NCCL_REVOKE_DEFAULT);
  CONSTANT(NCCL_VERSION(2, 8, 4));
  CONSTANT(NCCL_VERSION(2, 9, 1));
  CONSTANT(NCCL_VERSION(3, 0, 0));
}

void enumerators(tutti::test::Abi& list) {
  CONSTANT(ncclSuccess);
  CONSTANT(ncclUnhandledCudaError);
  CONSTANT(ncclSystemError);
  CONSTANT(ncclInternalError);
  CONSTANT(ncclInvalidArgument);
  CONSTANT(ncclInvalidUsage);
  CONSTANT(ncclRemoteError);
  CONSTANT(ncclInProgress);
  CONSTANT(ncclNumResults);
  CONSTANT(ncclNumOps_dummy);
  CONSTANT(ncclSum);
  CONSTANT(ncclProd);
  CONSTANT(ncclMax);
  CONSTANT(ncclMin);
  CONSTANT(ncclAvg);
  CONSTANT(ncclNumOps);
  CONSTANT(ncclMaxRedOp);
  CONSTANT(ncclInt8);
  CONSTANT(ncclChar);
  CONSTANT(ncclUint8);
  CONSTANT(ncclInt32);
  CONSTANT(ncclInt);
  CONSTANT(ncclUint32);
  CONSTANT(ncclInt64);
  CONSTANT(ncclUint64);
  CONSTANT(ncclFloat16);
  CONSTANT(ncclHalf);
  CONSTANT(ncclFloat32);
  CONSTANT(ncclFloat);
  CONSTANT(ncclFloat64);
  CONSTANT(ncclDouble);
  CONSTANT(ncclBfloat16);
  CONSTANT(ncclFloat8e4m3);
  CONSTANT(ncclFloat8e5m2);
  CONSTANT(ncclNumTypes);
  CONSTANT(ncclScalarDevice);
  CONSTANT(ncclScalarHostImmediate);
}

void layouts(tutti::test::Abi& list) {
  TYPE(ncclUniqueId);
  TYPE(ncclConfig_t);
  TYPE(ncclSimInfo_t);
  TYPE(ncclResult_t);
  TYPE(ncclRedOp_t);
  TYPE(ncclRedOp_dummy_t);
  TYPE(ncclDataType_t);
  TYPE(ncclScalarResidence_t);
  TYPE(ncclComm_t);
  TYPE(ncclWindow_t);
  TYPE(cudaStream_t);
  FIELD(ncclUniqueId, internal);
  FIELD(ncclConfig_t, size);
  FIELD(ncclConfig_t, magic);
  FIELD(ncclConfig_t, version);
  FIELD(ncclConfig_t, blocking);
  FIELD(ncclConfig_t, cgaClusterSize);
  FIELD(ncclConfig_t, minCTAs);
  FIELD(ncclConfig_t, maxCTAs);
  FIELD(ncclConfig_t, netName);
  FIELD(ncclConfig_t, splitShare);
  FIELD(ncclConfig_t, trafficClass);
  FIELD(ncclConfig_t, commName);
  FIELD(ncclConfig_t, collnetEnable);
  FIELD(ncclConfig_t, CTAPolicy);
  FIELD(ncclConfig_t, shrinkShare);
  FIELD(ncclConfig_t, nvlsCTAs);
  FIELD(ncclConfig_t, nChannelsPerNetPeer);
  FIELD(ncclConfig_t, nvlinkCentricSched);
  FIELD(ncclSimInfo_t, size);
  FIELD(ncclSimInfo_t, magic);
  FIELD(ncclSimInfo_t, version);
  FIELD(ncclSimInfo_t, estimatedTime);
}

// Every byte that the initializers set.
void initializers(tutti::test::Abi& list) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  for (std::size_t i = 0; i < sizeof config; ++i) list["config byte " + std::to_string(i)] = std::to_string(reinterpret_cast<const unsigned char*>(&config)[i]);
  for (std::size_t i = 0; i < offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float); ++i)
    list["info byte " + std::to_string(i)] = std::to_string(reinterpret_cast<const unsigned char*>(&info)[i]);
}

tutti::test::Abi abi_list() {
  tutti::test::Abi list;
  functions(list);
  device_functions(list);
  constants(list);
  enumerators(list);
  layouts(list);
  initializers(list);
  return list;
}

}  // namespace
