#include "nccl/place.h"

#include <fmt/format.h>

#include "core/config.h"
#include "nccl/gpus.h"

namespace tutti::nccl {
namespace {

Outcome refuse(const std::string& what) {
  return {ncclInvalidUsage, fmt::format("{}, and the communicator has no GPU: {}", what, why_no_gpu())};
}

}  // namespace

Outcome check_settings() {
  const std::string host = environment("TUTTI_NCCL_HOST");
  if (host.empty() || host == "0" || host == "1" || host == "on" || host == "off") return {};
  return {ncclInvalidArgument, fmt::format("TUTTI_NCCL_HOST=\"{}\" is not a switch: wanted 0, 1, on or off", host)};
}

Outcome check_place(const void* buffer, ncclComm& comm) {
  if (comm.gpu() || !buffer || !on_gpu(buffer)) return {};
  return refuse(fmt::format("the buffer {} is on a GPU", buffer));
}

Outcome place(Call& call, ncclComm& comm, cudaStream_t stream) {
  const auto& gpu = comm.gpu();
  if (call.scalar && !(gpu && gpu->reaches(call.scalar))) {
    if (Outcome read = read_scalar(call.scalar, call.scalar_type, call.factor); !read.ok()) return read;
    call.scalar = nullptr;
  }
  if (!gpu) {
    for (const void* buffer : {call.input, static_cast<const void*>(call.output)})
      if (Outcome served = check_place(buffer, comm); !served.ok()) return served;
    if (stream && has_device()) return refuse(fmt::format("it is for the CUDA stream {}", static_cast<void*>(stream)));
    return {};
  }
  const auto capturing = gpu->capturing(stream);
  if (!capturing) return outcome_of(capturing.status());
  if (*capturing)
    return {ncclInvalidUsage,
            "the stream is being captured into a graph, and the host takes part in the operation each time: call it "
            "outside of the capture"};
  const bool in = call.input && gpu->reaches(call.input), out = call.output && gpu->reaches(call.output);
  if ((in && call.output && !out) || (out && call.input && !in))
    return {ncclInvalidArgument,
            fmt::format("the GPU reaches {} but not {}, which is pageable memory of the host: both or none (cudaHostRegister "
                        "makes it reachable)",
                        in ? call.input : call.output, in ? call.output : call.input)};
  (in || out || (!call.input && !call.output) ? call.stream : call.behind) = DeviceStream(stream);
  if (call.scalar && call.behind.given)
    return {ncclInvalidArgument, "op has its scalar where the GPU reaches it, and the buffers are pageable memory of the host"};
  return {};
}

}  // namespace tutti::nccl
