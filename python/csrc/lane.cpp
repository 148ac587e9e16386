#include "python/csrc/lane.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

#include "python/csrc/failure.h"

namespace tutti_torch {

using c10::impl::VirtualGuardImpl;

const Lane& Lanes::of(c10::Device device) {
  const std::lock_guard held(mutex_);
  if (const auto it = lanes_.find(device.index()); it != lanes_.end()) return it->second;
  if (!c10::impl::hasDeviceGuardImpl(device.type())) unsupported("tensors on " + device.str() + ": this PyTorch has no such devices");
  const VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStreamFromGlobalPool(device);
  const c10::Stream before = guard.exchangeStream(stream);
  void* handle = nullptr;
  try {
    const pybind11::gil_scoped_acquire python;
    const auto current = pybind11::module::import("torch").attr("cuda").attr("current_stream")(int(device.index()));
    handle = reinterpret_cast<void*>(current.attr("cuda_stream").cast<std::uintptr_t>());
  } catch (const pybind11::error_already_set& error) {
    guard.exchangeStream(before);
    unsupported("tensors on " + device.str() + ": torch.cuda does not tell its stream: " + error.what());
  }
  guard.exchangeStream(before);
  return lanes_.emplace(device.index(), Lane{stream, handle}).first->second;
}

OnLane::OnLane(const Lane& lane) : lane_(lane), before_(VirtualGuardImpl(lane.stream.device_type()).getStream(lane.stream.device())) {
  c10::Event here(lane.stream.device_type());
  here.record(before_);
  here.block(lane.stream);
  VirtualGuardImpl(lane.stream.device_type()).exchangeStream(lane.stream);
}

OnLane::~OnLane() { VirtualGuardImpl(lane_.stream.device_type()).exchangeStream(before_); }

void OnLane::uses(const at::Tensor& tensor) const {
  if (tensor.device() == device()) VirtualGuardImpl(device().type()).recordDataPtrOnStream(tensor.storage().data_ptr(), lane_.stream);
}

c10::Event OnLane::mark() const {
  c10::Event event(lane_.stream.device_type());
  event.record(lane_.stream);
  return event;
}

void hold_for(const c10::Event& event, c10::Device device) { event.block(VirtualGuardImpl(device.type()).getStream(device)); }

}  // namespace tutti_torch
