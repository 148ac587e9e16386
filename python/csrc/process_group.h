#pragma once
// ProcessGroup: the torch.distributed backend "tutti": each of c10d's collectives as a call of one tutti::Communicator.
//
// Tensors are in host memory or on a GPU (lane.h), of any type and any strides; those that are not contiguous, and types that the library does not
// reduce, go through a copy. Every call returns at once; waiting drives the communication from the waiting thread, and what
// nobody waits for is driven by the library's progress thread. There is no thread of this backend's own.
//
// Errors: Failure, thrown by the call itself for what is refused before anything was sent, by Work::wait() and the future for the rest.
#include <tutti/communicator.h>

#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include <atomic>
#include <optional>
#include <thread>

#include "python/csrc/lists.h"
#include "python/csrc/numbers.h"
#include "python/csrc/work.h"

namespace tutti_torch {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

class ProcessGroup final : public Base {
 public:
  // `communicator` has these ranks.
  static c10::intrusive_ptr<ProcessGroup> make(tutti::Communicator communicator);
  // Pending operations end with 'aborted'. Waits for no other rank.
  ~ProcessGroup() override;
  const std::string getBackendName() const override { return "tutti"; }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override;
  // Messages of a pair are matched in order; a tag other than 0 is refused. So is receiving from anybody.
  WorkPointer send(Tensors& tensors, int peer, int tag) override;
  WorkPointer recv(Tensors& tensors, int peer, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override;
#endif
  // The next ones override where this PyTorch has them.
  // What this thread calls in between is started together, as one group. Each call's Work is complete when all are.
  void startCoalescing();
  WorkPointer endCoalescing();
  void endCoalescing(std::vector<WorkPointer>& works);
  bool supportsCoalescing() const { return true; }
  // Pending operations end with 'aborted', on all ranks.
  void abort() { communicator_.abort("abort was called"); }
  // As the end of the group does.
  void shutdown();
  // Of all groups that there are. For the end of the interpreter: afterwards a thread that wants Python's lock would end the process.
  static void shutdown_all();
  // How many operations were started.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

  tutti::Communicator& communicator() { return communicator_; }

 private:
  // Calls that are to start together.
  struct Batch {
    Job job;                                        // of all, without their lanes
    std::optional<c10::Device> device;              // of one that is on a GPU
    std::vector<c10::intrusive_ptr<Work>> works;
  };
  friend class c10::intrusive_ptr<ProcessGroup>;      // which makes it
  explicit ProcessGroup(tutti::Communicator communicator);
  bool batches() const { return batching_ == std::this_thread::get_id(); }
  WorkPointer add_to_batch(c10d::OpType type, Job job);
  // For tensors where `first` is. On a GPU its lane is current from here to start().
  Job prepare(const at::Tensor& first, Tensors outputs);
  WorkPointer start(c10d::OpType type, Job job);
  // Each of these starts one operation of a job.
  tutti::Work all_reduce(Job& job, const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call);
  tutti::Work all_gather(Job& job, const Tensors& outputs, const at::Tensor& input);
  tutti::Work reduce_scatter(Job& job, const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op);
  tutti::Work exchange(Job& job, const at::Tensor& output, const at::Tensor& input, std::vector<std::size_t> from, std::vector<std::size_t> to);
  // All ranks' tensors, as rows; the result of folding them is what `then` is given.
  tutti::Work gather_and_fold(Job& job, const at::Tensor& tensor, const c10d::ReduceOp& op, std::function<void(const at::Tensor&)> then);

  tutti::Communicator communicator_;
  Lanes lanes_;
  std::atomic<std::thread::id> batching_{};        // who is between startCoalescing() and endCoalescing(), and has batch_
  Batch batch_;
  std::atomic<std::uint64_t> sequence_{0};
};

}  // namespace tutti_torch
