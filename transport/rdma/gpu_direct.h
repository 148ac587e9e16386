#pragma once
// GpuDirect: how RDMA devices come to a GPU's memory: themselves, where the driver exports it as a dma-buf or nvidia-peermem stands behind
// ibv_reg_mr, and where a write in each direction has been tried and compared; or not at all, and the bytes are staged in pinned host memory. For
// each pair of the GPU and a device what was found and why it is no better.
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "transport/rdma/memory.h"

namespace tutti::transport::rdma {

class QueuePair;
struct WriteRequest;

// How far apart two PCI functions are, by their folders under /sys/devices: as NCCL names it. Nearest first.
enum class Distance : std::uint8_t { local, one_switch, switches, processor, system, unknown };
const char* name_of(Distance distance);                   // "PIX"
Distance distance_named(std::string_view name);           // of TUTTI_IB_GPU_DISTANCE
Distance distance_between(std::string_view one, std::string_view other, bool same_node);

enum class GpuWay : std::uint8_t { dmabuf, peermem, staged };

struct GpuReach {
  GpuWay way = GpuWay::staged;
  std::string why;                     // no better way
};

class GpuDirect {
 public:
  // Tries it out, which takes milliseconds for each device. What completes on them meanwhile goes into `kept`. All must outlive it.
  GpuDirect(tutti::Device& gpu, const Devices& devices, Distance most, std::vector<ibv_wc>& kept);
  GpuDirect(const GpuDirect&) = delete;
  GpuDirect& operator=(const GpuDirect&) = delete;
  ~GpuDirect();

  const GpuReach& reach(std::size_t device) const { return reaches_[device]; }
  // By all devices.
  bool direct() const;
  // One line for each: "off for GPU2/mlx5_0: no dma-buf support in this driver, nvidia_peermem not loaded"
  std::vector<std::string> describe() const;
  // From or to memory of the GPU, and waits for it: for bytes that no device carries. On a stream of its own, so it waits for nothing else.
  Status copy(std::byte* to, const std::byte* from, std::size_t bytes);
  // Memory of the GPU, for that device. unsupported: reach() says why.
  Result<ibv_mr*> add(std::size_t device, std::byte* data, std::size_t bytes) const;

 private:
  GpuReach find(std::size_t device, Distance most);
  Result<ibv_mr*> add_by(GpuWay way, Device& device, std::byte* data, std::size_t bytes) const;
  Status try_out(GpuWay way, std::size_t device);
  Status write_to_self(Device& device, QueuePair& from, const WriteRequest& request);

  tutti::Device& gpu_;
  const Devices& devices_;
  std::vector<ibv_wc>& kept_;
  std::vector<GpuReach> reaches_;
  StreamHandle stream_ = nullptr;      // from the first copy() on
  std::byte* there_ = nullptr;         // of the GPU's, for trials: written by the device; read by it. Kept: to free it waits for all of the GPU's streams
};

}  // namespace tutti::transport::rdma
