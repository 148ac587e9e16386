#include "python/csrc/work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>
#include <utility>

#include "python/csrc/failure.h"

namespace tutti_torch {

Running::Running(Job job)
    : work_(std::move(job.work)), outputs_(std::move(job.outputs)), kept_(std::move(job.kept)), then_(std::move(job.then)) {
  if (!job.lane) return;
  const at::AutoDispatchBelowADInplaceOrView plain;
  for (const auto& step : std::exchange(then_, {})) step();
  for (const auto* tensors : {&outputs_, static_cast<const std::vector<at::Tensor>*>(&kept_)})
    for (const at::Tensor& tensor : *tensors) job.lane->uses(tensor);
  device_ = job.lane->device();
  done_ = job.lane->mark();
}

const tutti::Status& Running::finish(const tutti::Status& status) {
  // Let go at the very end: to free a tensor may take Python's lock, whose holder may be waiting for us here.
  std::vector<at::Tensor> kept;
  std::vector<std::function<void()>> then;
  std::call_once(once_, [&] {
    status_ = status;
    kept.swap(kept_);
    then.swap(then_);
    try {
      const at::AutoDispatchBelowADInplaceOrView plain;      // a copy, whatever mode whoever called for it was in
      for (const auto& step : then)
        if (status.ok()) step();
    } catch (const std::exception& error) {
      status_ = tutti::Status(tutti::Code::internal, std::string("putting the results in their places: ") + error.what());
    }
    finished_.store(true, std::memory_order_release);
  });
  return status_;
}

Work::Work(int rank, c10d::OpType type, Job job) : c10d::Work(rank, type), running_(std::make_shared<Running>(std::move(job))) {}

Work::~Work() {
  if (running_ && !running_->finished()) running_->work().then([running = running_](const tutti::Status& status) { running->finish(status); });
}

Running& Work::running() const {
  if (!running_) throw Failure(tutti::Status(tutti::Code::invalid_state, "the call is one of several that are coalesced, and starts when all have been made: wait for it afterwards"));
  return *running_;
}

bool Work::isCompleted() {
  if (!running_) return false;
  if (running_->finished()) return true;
  if (!running_->work().test() || (running_->done() && !running_->done()->query())) return false;
  running_->finish(running_->work().status());
  return true;
}

bool Work::isSuccess() const { return running_ && running_->finished() && running_->status().ok(); }

std::exception_ptr Work::exception() const {
  if (!running_ || !running_->finished() || running_->status().ok()) return nullptr;
  return std::make_exception_ptr(Failure(running_->status()));
}

void Work::synchronize() {
  if (running().done()) hold_for(*running_->done(), running_->device());
}

bool Work::wait(std::chrono::milliseconds limit) {
  if (running().done() && limit.count() <= 0) {
    if (running_->work().test()) check(running_->finish(running_->work().status()));
    synchronize();
    return true;
  }
  if (limit.count() > 0 && !running_->work().wait_for(limit))
    throw Failure(tutti::Status(tutti::Code::timeout, "wait: not complete after " + std::to_string(limit.count()) + " ms; the operation goes on"));
  check(running_->finish(running_->work().wait()));
  synchronize();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const std::lock_guard held(future_mutex_);
  if (future_) return future_;
  const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
  if (running().done()) {
    // Complete as far as the host goes: whoever reads it waits on the stream.
    future_ = c10::make_intrusive<c10::ivalue::Future>(tensors, std::vector<c10::Device>{running_->device()});
    const c10::StreamGuard waiting(c10::impl::VirtualGuardImpl(running_->device().type()).getStreamFromGlobalPool(running_->device()));
    synchronize();
    future_->markCompleted(at::IValue(running_->outputs()));
    return future_;
  }
  future_ = c10::make_intrusive<c10::ivalue::Future>(tensors);
  running_->work().then([running = running_, future = future_](const tutti::Status& ended) {
    const tutti::Status& status = running->finish(ended);
    if (status.ok()) future->markCompleted(at::IValue(running->outputs()));
    else future->setError(std::make_exception_ptr(Failure(status)));
  });
  return future_;
}

}  // namespace tutti_torch
