#pragma once
// Lane: the stream of a GPU on which a group's operations run, beside the caller's: an operation starts when the caller's stream has come
// to the call, the caller's stream goes on at once, and waiting for the operation makes it wait. As torch's own backends do, so that DDP's
// exchange overlaps the backward pass.
//
// By c10's streams and events of any device: nothing here is CUDA's but the handle, which Python tells once a lane.
#include <tutti/device_stream.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <map>
#include <mutex>

namespace tutti_torch {

struct Lane {
  c10::Stream stream;
  void* handle = nullptr;              // its cudaStream_t
};

// A group's, one a GPU, made when first asked for. Any thread.
class Lanes {
 public:
  // unsupported: PyTorch has no such devices here.
  const Lane& of(c10::Device device);

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, Lane> lanes_;
};

// While it lives the lane is this thread's current stream: what torch computes for the operation, copies of tensors above all, takes its
// turn there. It begins where the caller's stream is now.
class OnLane {
 public:
  explicit OnLane(const Lane& lane);
  ~OnLane();
  OnLane(const OnLane&) = delete;
  OnLane& operator=(const OnLane&) = delete;
  tutti::DeviceStream stream() const { return tutti::DeviceStream(lane_.handle); }
  // The lane uses this tensor's memory: torch's allocator gives it to nobody else before the lane has passed.
  void uses(const at::Tensor& tensor) const;
  // Where the lane will have done all of it.
  c10::Event mark() const;
  c10::Device device() const { return lane_.stream.device(); }

 private:
  const Lane& lane_;
  c10::Stream before_;
};

// Makes this thread's current stream wait for it.
void hold_for(const c10::Event& event, c10::Device device);

}  // namespace tutti_torch
