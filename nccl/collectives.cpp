// Collectives, send and receive, custom reductions, and groups of them.
#include <fmt/format.h>

#include "nccl/api.h"
#include "nccl/place.h"

namespace tutti::nccl {
namespace {

// No reduction: `op` null.
ncclResult_t operate(const char* name, ncclComm_t handle, cudaStream_t stream, ncclDataType_t type,
                     const ncclRedOp_t* op, Call call) {
  return answer_in_group(name, with(handle, [&](const std::shared_ptr<ncclComm>& comm) -> Outcome {
                           if (Outcome usable = comm->ready(); !usable.ok()) return usable;
                           if (Outcome known = to_type(type, call.type); !known.ok()) return known;
                           if (op)
                             if (Outcome known = to_op(*op, type, *comm, call); !known.ok()) return known;
                           if (Outcome good = check(call, *comm); !good.ok()) return good;
                           if (Outcome served = place(call, *comm, stream); !served.ok()) return served;
                           Task task;
                           task.name = name;
                           task.comm = comm;
                           task.call = call;
                           return Group::of_this_thread().add(std::move(task));
                         }));
}

Outcome check_sim_info(const ncclSimInfo_t* info) {
  constexpr unsigned kMagic = 0x74685283;
  if (!info) return {};
  if (info->magic != kMagic)
    return {ncclInvalidArgument,
            fmt::format("simInfo: magic is {:#x}, wanted {:#x}: begin with NCCL_SIM_INFO_INITIALIZER", info->magic,
                        kMagic)};
  if (info->size < sizeof *info)
    return {ncclInvalidArgument, fmt::format("simInfo: size is {}, wanted {}: begin with NCCL_SIM_INFO_INITIALIZER",
                                             info->size, sizeof *info)};
  return {};
}

}  // namespace
}  // namespace tutti::nccl

using tutti::Collective;
using tutti::nccl::Group;
using tutti::nccl::operate;
using tutti::nccl::Outcome;

extern "C" {

ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream) {
  return operate("ncclAllReduce", comm, stream, datatype, &op,
                 {.what = Collective::all_reduce, .input = sendbuff, .output = recvbuff, .count = count});
}

ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  return operate("ncclReduce", comm, stream, datatype, &op,
                 {.what = Collective::reduce, .input = sendbuff, .output = recvbuff, .count = count, .peer = root});
}

ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return operate("ncclReduceScatter", comm, stream, datatype, &op,
                 {.what = Collective::reduce_scatter, .input = sendbuff, .output = recvbuff, .count = recvcount});
}

ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return operate("ncclBcast", comm, stream, datatype, nullptr,
                 {.what = Collective::broadcast, .input = buff, .output = buff, .count = count, .peer = root});
}

ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                            ncclComm_t comm, cudaStream_t stream) {
  return operate("ncclBroadcast", comm, stream, datatype, nullptr,
                 {.what = Collective::broadcast, .input = sendbuff, .output = recvbuff, .count = count, .peer = root});
}

ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                            ncclComm_t comm, cudaStream_t stream) {
  return operate("ncclAllGather", comm, stream, datatype, nullptr,
                 {.what = Collective::all_gather, .input = sendbuff, .output = recvbuff, .count = sendcount});
}

ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream) {
  return operate("ncclAlltoAll", comm, stream, datatype, nullptr,
                 {.what = Collective::all_to_all, .input = sendbuff, .output = recvbuff, .count = count});
}

ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return operate("ncclGather", comm, stream, datatype, nullptr,
                 {.what = Collective::gather, .input = sendbuff, .output = recvbuff, .count = count, .peer = root});
}

ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                          ncclComm_t comm, cudaStream_t stream) {
  return operate("ncclScatter", comm, stream, datatype, nullptr,
                 {.what = Collective::scatter, .input = sendbuff, .output = recvbuff, .count = count, .peer = root});
}

ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream) {
  return operate("ncclSend", comm, stream, datatype, nullptr,
                 {.what = Collective::send, .input = sendbuff, .count = count, .peer = peer});
}

ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream) {
  return operate("ncclRecv", comm, stream, datatype, nullptr,
                 {.what = Collective::recv, .output = recvbuff, .count = count, .peer = peer});
}

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm) {
  return tutti::nccl::answer(
      "ncclRedOpCreatePreMulSum", tutti::nccl::with(comm, [&](const std::shared_ptr<ncclComm>& of) -> Outcome {
        if (Outcome usable = of->ready(); !usable.ok()) return usable;
        if (!op) return {ncclInvalidArgument, "op is NULL, wanted where to put the operation"};
        if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
          return {ncclInvalidArgument,
                  fmt::format("residence is {}, wanted ncclScalarDevice or ncclScalarHostImmediate", int(residence))};
        if (Outcome served = tutti::nccl::check_place(scalar, *of); !served.ok()) return served;
        tutti::nccl::CustomReduction reduction{datatype};
        if (residence == ncclScalarDevice) reduction.scalar = scalar;
        if (reduction.scalar && of->gpu() && of->gpu()->reaches(scalar)) {
          tutti::DataType known;
          if (Outcome type = tutti::nccl::to_type(datatype, known); !type.ok()) return type;
        } else if (Outcome read = tutti::nccl::read_scalar(scalar, datatype, reduction.factor); !read.ok()) {
          return read;
        }
        *op = of->add(reduction);
        return {};
      }));
}

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return tutti::nccl::answer(
      "ncclRedOpDestroy", tutti::nccl::with(comm, [&](const std::shared_ptr<ncclComm>& of) -> Outcome {
        if (of->remove(op)) return {};
        return {ncclInvalidArgument,
                fmt::format("op is {}, wanted one that ncclRedOpCreatePreMulSum made for this communicator", int(op))};
      }));
}

ncclResult_t pncclGroupStart() {
  Group::of_this_thread().start();
  return ncclSuccess;
}

ncclResult_t pncclGroupEnd() {
  return tutti::nccl::answer("ncclGroupEnd", [] { return Group::of_this_thread().end(); });
}

ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  return tutti::nccl::answer("ncclGroupSimulateEnd", [&]() -> Outcome {
    double seconds = 0;
    Outcome told = tutti::nccl::check_sim_info(simInfo);
    Outcome simulated = Group::of_this_thread().simulate(seconds);
    if (!told.ok()) return told;
    if (simulated.ok() && simInfo) simInfo->estimatedTime = float(seconds * 1e6);
    return simulated;
  });
}

TUTTI_NCCL_TWIN(ncclAllReduce);
TUTTI_NCCL_TWIN(ncclReduce);
TUTTI_NCCL_TWIN(ncclReduceScatter);
TUTTI_NCCL_TWIN(ncclBcast);
TUTTI_NCCL_TWIN(ncclBroadcast);
TUTTI_NCCL_TWIN(ncclAllGather);
TUTTI_NCCL_TWIN(ncclAlltoAll);
TUTTI_NCCL_TWIN(ncclGather);
TUTTI_NCCL_TWIN(ncclScatter);
TUTTI_NCCL_TWIN(ncclSend);
TUTTI_NCCL_TWIN(ncclRecv);
TUTTI_NCCL_TWIN(ncclRedOpCreatePreMulSum);
TUTTI_NCCL_TWIN(ncclRedOpDestroy);
TUTTI_NCCL_TWIN(ncclGroupStart);
TUTTI_NCCL_TWIN(ncclGroupEnd);
TUTTI_NCCL_TWIN(ncclGroupSimulateEnd);

}  // extern "C"
