#pragma once
// Work: c10d's handle on an operation, over tutti's. wait() drives the communication from the calling thread, as tutti's does.
#include <tutti/work.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "python/csrc/lane.h"

namespace tutti_torch {

// One operation, or a group of them, and what is to be done around it. On a GPU: while the job is put together its lane is current, and
// `then` is for the lane to do.
struct Job {
  tutti::Work work;
  std::vector<at::Tensor> outputs;             // what result() and the future give
  std::vector<at::Tensor> kept;                // memory that the library uses until completion
  std::vector<std::function<void()>> then;     // on success, before anybody is told: results to their places
  std::unique_ptr<OnLane> lane;                // null: the tensors are in host memory
  tutti::DeviceStream stream() const { return lane ? lane->stream() : tutti::DeviceStream(); }
};

// A job that is under way. Shared by its Work and by the library's callback. Any thread.
class Running {
 public:
  // On a GPU: has the lane do the rest of the job after the operation.
  explicit Running(Job job);
  // Where the lane will have done the job; null: there is no lane.
  const c10::Event* done() const { return done_ ? &*done_ : nullptr; }
  c10::Device device() const { return device_; }
  tutti::Work& work() { return work_; }
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  // Once the library has ended it with `status`: the rest of the job, once. Returns how all of it ended. Others that call it meanwhile wait.
  const tutti::Status& finish(const tutti::Status& status);
  bool finished() const { return finished_.load(std::memory_order_acquire); }
  const tutti::Status& status() const { return status_; }      // once finished

 private:
  tutti::Work work_;
  const std::vector<at::Tensor> outputs_;
  std::vector<at::Tensor> kept_;
  std::vector<std::function<void()>> then_;
  c10::Device device_{c10::DeviceType::CPU};
  std::optional<c10::Event> done_;
  std::once_flag once_;
  tutti::Status status_;
  std::atomic<bool> finished_{false};
};

class Work final : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type, Job job);
  // Of a call within startCoalescing() and endCoalescing(): one with the others', which runs once that has come. Until then it is not complete,
  // and to wait for it is refused: invalid_state.
  Work(int rank, c10d::OpType type) : c10d::Work(rank, type) {}
  void runs_with(const Work& whole) { running_ = whole.running_; }
  // The operation goes on, and its tensors live until it is complete.
  ~Work() override;

  // Drives the communication a little.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return running().outputs(); }
  int sourceRank() const override { return -1; }
  // On a GPU: the current stream waits.
  void synchronize() override;
  // On a GPU without a limit: the current stream waits, this thread does not; what failed later, later calls say. Throws Failure. A limit that
  // is over is one too, and the operation goes on; without a limit the group's timeout counts.
  bool wait(std::chrono::milliseconds limit = kNoTimeout) override;
  // Completed by the thread that drives the communication at that moment; what is chained to it runs there.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  Running& running() const;

  std::shared_ptr<Running> running_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace tutti_torch
