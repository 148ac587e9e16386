#include "python/csrc/process_group.h"

#include <Python.h>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "python/csrc/failure.h"

namespace tutti_torch {
namespace {

using c10d::OpType;
using tutti::Communicator;

const at::Tensor& only(const Tensors& tensors, const char* call, const char* what) {
  if (tensors.size() != 1) refuse(std::string(call) + ": " + std::to_string(tensors.size()) + " tensors as " + what + "; wanted 1");
  expect_dense(tensors, call, what);
  return tensors[0];
}

// Lists of lists are a relic of several devices in one process.
const Tensors& only_list(const std::vector<Tensors>& lists, int ranks, const char* call, const char* what) {
  if (lists.size() != 1) refuse(std::string(call) + ": " + std::to_string(lists.size()) + " lists as " + what + "; wanted 1");
  if (int(lists[0].size()) != ranks)
    refuse(std::string(call) + ": " + std::to_string(lists[0].size()) + " tensors as " + what + "; wanted one a rank, " + std::to_string(ranks));
  expect_dense(lists[0], call, what);
  return lists[0];
}

void expect_alike(const at::Tensor& a, const char* name_a, int64_t count_a, const at::Tensor& b, const char* name_b, int64_t count_b, const char* call) {
  const auto text = [](const at::Tensor& t, const char* name, int64_t count) { return std::string(name) + " of " + std::to_string(count) + " " + at::toString(t.scalar_type()); };
  if (a.device() != b.device()) refuse(std::string(call) + ": " + name_a + " on " + a.device().str() + ", " + name_b + " on " + b.device().str() + "; wanted the same");
  if (a.scalar_type() != b.scalar_type() || count_a != count_b)
    refuse(std::string(call) + ": " + text(a, name_a, count_a) + ", " + text(b, name_b, count_b) + "; wanted the same");
}

// Contiguous, of the type in which it is reduced: the tensor itself, or a copy.
at::Tensor carried(const at::Tensor& tensor, const Reduction& reduction) {
  const at::NoGradGuard no_grad;
  return tensor.to(reduction.carrier).contiguous();
}

std::vector<std::size_t> counts_of(const Tensors& tensors, const Numbers& numbers) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& t : tensors) counts.push_back(numbers.count(t));
  return counts;
}

bool all_equal(const std::vector<std::size_t>& counts) { return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end(); }

// Rows of the first dimension for each rank: as given, or equal shares.
std::vector<std::size_t> shares(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks, const char* what) {
  const std::string call = std::string("all_to_all_single: ") + what;
  if (tensor.dim() == 0) refuse(call + " has no dimension to split");
  const int64_t rows = tensor.size(0), row = rows ? tensor.numel() / rows : 0;
  if (splits.empty()) {
    if (rows % ranks) refuse(call + " has " + std::to_string(rows) + " rows; wanted a multiple of the " + std::to_string(ranks) + " ranks, or split sizes");
    return std::vector<std::size_t>(std::size_t(ranks), std::size_t(rows / ranks * row));
  }
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t(0));
  if (int(splits.size()) != ranks || sum != rows)
    refuse(call + " has " + std::to_string(rows) + " rows and " + std::to_string(splits.size()) + " split sizes of " + std::to_string(sum) + " together; wanted " +
           std::to_string(ranks) + " of " + std::to_string(rows));
  std::vector<std::size_t> out;
  for (const int64_t rows_of_rank : splits) out.push_back(std::size_t(rows_of_rank * row));
  return out;
}

void land(Job& job, const Landing& landing) {
  job.kept.push_back(landing.run);
  if (landing.then) job.then.push_back(landing.then);
}

Tensors joined(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

void expect_no_tag(int tag, const char* call) {
  if (tag != 0)
    unsupported(std::string(call) + ": tag " + std::to_string(tag) + "; the messages of two ranks are matched in their order, without tags: wanted 0");
}

struct Groups {
  std::mutex mutex;
  std::vector<c10::weak_intrusive_ptr<ProcessGroup>> alive;
};
Groups& groups() {
  static auto* const all = new Groups;      // outlives everybody's end
  return *all;
}

}  // namespace

ProcessGroup::ProcessGroup(Communicator communicator)
    : Base(communicator.rank(), communicator.rank_count()), communicator_(std::move(communicator)) {}

c10::intrusive_ptr<ProcessGroup> ProcessGroup::make(Communicator communicator) {
  auto group = c10::make_intrusive<ProcessGroup>(std::move(communicator));
  Groups& all = groups();
  const std::lock_guard held(all.mutex);
  all.alive.erase(std::remove_if(all.alive.begin(), all.alive.end(), [](const auto& other) { return other.expired(); }), all.alive.end());
  all.alive.emplace_back(group);
  return group;
}

ProcessGroup::~ProcessGroup() { shutdown(); }

void ProcessGroup::shutdown_all() {
  std::vector<c10::weak_intrusive_ptr<ProcessGroup>> alive;
  {
    const std::lock_guard held(groups().mutex);
    alive.swap(groups().alive);
  }
  for (const auto& weak : alive)
    if (const auto group = weak.lock()) group->shutdown();
}

void ProcessGroup::shutdown() {
  // Joins the library's thread, which may be about to run a Python callback: not under Python's lock.
  PyThreadState* const state = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
  communicator_.destroy();
  if (state) PyEval_RestoreThread(state);
}

Job ProcessGroup::prepare(const at::Tensor& first, Tensors outputs) {
  Job job;
  job.outputs = std::move(outputs);
  if (!first.device().is_cpu()) job.lane = std::make_unique<OnLane>(lanes_.of(first.device()));
  return job;
}

WorkPointer ProcessGroup::start(OpType type, Job job) {
  ++sequence_;
  if (batches()) return add_to_batch(type, std::move(job));
  return c10::make_intrusive<Work>(getRank(), type, std::move(job));
}

// --- several started together ---

void ProcessGroup::startCoalescing() {
  std::thread::id nobody;
  if (!batching_.compare_exchange_strong(nobody, std::this_thread::get_id()))
    throw Failure(tutti::Status(tutti::Code::invalid_state, "coalescing has begun already, and has not ended: did a call in it fail? Then make another group"));
  communicator_.begin_group();
}

WorkPointer ProcessGroup::add_to_batch(OpType type, Job job) {
  Job& all = batch_.job;
  const auto append = [](auto& to, auto& from) { to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end())); };
  append(all.outputs, job.outputs);
  append(all.kept, job.kept);
  append(all.then, job.then);
  if (job.lane) batch_.device = job.lane->device();
  return batch_.works.emplace_back(c10::make_intrusive<Work>(getRank(), type));
}

WorkPointer ProcessGroup::endCoalescing() {
  if (!batches()) throw Failure(tutti::Status(tutti::Code::invalid_state, "coalescing ends that this thread has not begun"));
  Batch batch = std::exchange(batch_, {});
  batching_ = std::thread::id();
  if (batch.device) batch.job.lane = std::make_unique<OnLane>(lanes_.of(*batch.device));
  batch.job.work = communicator_.end_group();
  const auto whole = c10::make_intrusive<Work>(getRank(), OpType::UNKNOWN, std::move(batch.job));
  for (const auto& work : batch.works) work->runs_with(*whole);
  return whole;
}

void ProcessGroup::endCoalescing(std::vector<WorkPointer>&) { (void)endCoalescing(); }

// --- one operation each ---

tutti::Work ProcessGroup::gather_and_fold(Job& job, const at::Tensor& tensor, const c10d::ReduceOp& op, std::function<void(const at::Tensor&)> then) {
  const at::Tensor own = run_of({tensor}), rows = at::empty({getSize(), own.numel()}, own.options());
  job.kept.insert(job.kept.end(), {own, rows});
  job.then.push_back([=, op = op.op_, sizes = tensor.sizes().vec()] { then(fold(rows, op).view(sizes)); });
  const Numbers numbers = as_moved(own);
  return communicator_.all_gather({own.data_ptr(), rows.data_ptr(), numbers.count(own), numbers.type, job.stream()});
}

tutti::Work ProcessGroup::all_reduce(Job& job, const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call) {
  const Reduction r = reduction_of(tensor.scalar_type(), op, call);
  if (r.fold) return gather_and_fold(job, tensor, op, [tensor](const at::Tensor& result) { tensor.copy_(result); });
  const at::Tensor dense = carried(tensor, r);
  job.kept.push_back(dense);
  if (!dense.is_same(tensor)) job.then.push_back([tensor, dense] { tensor.copy_(dense); });
  return communicator_.all_reduce({dense.data_ptr(), dense.data_ptr(), r.numbers.count(dense), r.numbers.type, r.op, r.factor, job.stream()});
}

tutti::Work ProcessGroup::all_gather(Job& job, const Tensors& outputs, const at::Tensor& input) {
  const at::Tensor own = run_of({input});
  const Landing landing = landing_for(outputs);
  const Numbers numbers = as_moved(own);
  job.kept.push_back(own);
  land(job, landing);
  const auto counts = counts_of(outputs, numbers);
  if (counts.size() > 1 && !all_equal(counts)) return communicator_.all_gather_v({own.data_ptr(), landing.run.data_ptr(), counts, {}, numbers.type, job.stream()});
  return communicator_.all_gather({own.data_ptr(), landing.run.data_ptr(), numbers.count(own), numbers.type, job.stream()});
}

tutti::Work ProcessGroup::reduce_scatter(Job& job, const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op) {
  const Reduction r = reduction_of(output.scalar_type(), op, "reduce_scatter");
  const at::Tensor all = carried(run_of(inputs), r);
  const auto counts = counts_of(inputs, r.numbers);
  const bool even = all_equal(counts);
  const std::size_t own = r.numbers.count(output);
  const at::Tensor result = r.fold ? at::empty({getSize(), output.numel()}, output.options()) : carried(output, r);
  job.kept.insert(job.kept.end(), {all, result});
  if (r.fold) {
    job.then.push_back([=, op = op.op_] { output.copy_(fold(result, op).view(output.sizes())); });
    const Numbers numbers = as_moved(output);
    return exchange(job, result, all, std::vector<std::size_t>(std::size_t(getSize()), numbers.count(output)),
                    inputs.size() == 1 ? std::vector<std::size_t>(std::size_t(getSize()), numbers.count(output)) : counts_of(inputs, numbers));
  }
  if (!result.is_same(output)) job.then.push_back([=] { output.copy_(result); });
  if (inputs.size() > 1 && !even) return communicator_.reduce_scatter_v({all.data_ptr(), result.data_ptr(), counts, {}, r.numbers.type, r.op, r.factor, job.stream()});
  return communicator_.reduce_scatter({all.data_ptr(), result.data_ptr(), own, r.numbers.type, r.op, r.factor, job.stream()});
}

// Counts of the library's numbers. Always the v form: a rank that names equal shares may meet one that names none.
tutti::Work ProcessGroup::exchange(Job& job, const at::Tensor& output, const at::Tensor& input, std::vector<std::size_t> from, std::vector<std::size_t> to) {
  job.kept.insert(job.kept.end(), {output, input});
  return communicator_.all_to_all_v({input.data_ptr(), output.data_ptr(), std::move(to), std::move(from), {}, {}, as_moved(input).type, job.stream()});
}

// --- c10d's calls ---

WorkPointer ProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Job job = prepare(only(tensors, "broadcast", "tensor"), tensors);
  const Landing landing = landing_for(tensors);
  if (landing.then && options.rootRank == getRank()) landing.run.copy_(run_of(tensors));
  land(job, landing);
  const Numbers numbers = as_moved(landing.run);
  job.work = communicator_.broadcast({landing.run.data_ptr(), landing.run.data_ptr(), numbers.count(landing.run), numbers.type, int(options.rootRank), job.stream()});
  return start(OpType::BROADCAST, std::move(job));
}

WorkPointer ProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "all_reduce", "tensor");
  Job job = prepare(tensor, tensors);
  job.work = all_reduce(job, tensor, options.reduceOp, "all_reduce");
  return start(OpType::ALLREDUCE, std::move(job));
}

WorkPointer ProcessGroup::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  if (tensors.empty()) refuse("all_reduce_coalesced: no tensors");
  expect_dense(tensors, "all_reduce_coalesced", "tensors");
  (void)reduction_of(tensors[0].scalar_type(), options.reduceOp, "all_reduce_coalesced");     // before a group is open
  Job job = prepare(tensors[0], tensors);
  communicator_.begin_group();
  for (const at::Tensor& t : tensors) (void)all_reduce(job, t, options.reduceOp, "all_reduce_coalesced");
  job.work = communicator_.end_group();
  return start(OpType::ALLREDUCE_COALESCED, std::move(job));
}

WorkPointer ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "reduce", "tensor");
  const bool root = options.rootRank == getRank();
  const Reduction r = reduction_of(tensor.scalar_type(), options.reduceOp, "reduce");
  Job job = prepare(tensor, tensors);
  if (r.fold) {
    job.work = gather_and_fold(job, tensor, options.reduceOp, [tensor, root](const at::Tensor& result) { if (root) tensor.copy_(result); });
  } else {
    const at::Tensor dense = carried(tensor, r);
    job.kept.push_back(dense);
    if (root && !dense.is_same(tensor)) job.then.push_back([tensor, dense] { tensor.copy_(dense); });
    job.work = communicator_.reduce({dense.data_ptr(), root ? dense.data_ptr() : nullptr, r.numbers.count(dense), r.numbers.type, r.op, int(options.rootRank), r.factor, job.stream()});
  }
  return start(OpType::REDUCE, std::move(job));
}

WorkPointer ProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  const at::Tensor& input = only(inputs, "all_gather", "tensor");
  const Tensors& list = only_list(outputs, getSize(), "all_gather", "tensor_list");
  const at::Tensor& own = list[std::size_t(getRank())];
  expect_alike(input, "tensor", input.numel(), own, "this rank's place in tensor_list", own.numel(), "all_gather");
  Job job = prepare(input, list);
  job.work = all_gather(job, list, input);
  return start(OpType::ALLGATHER, std::move(job));
}

// outputs[rank][i] is rank's inputs[i].
WorkPointer ProcessGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  if (int(outputs.size()) != getSize()) refuse("all_gather_coalesced: " + std::to_string(outputs.size()) + " lists; wanted one a rank, " + std::to_string(getSize()));
  for (const Tensors& list : outputs) {
    if (list.size() != inputs.size()) refuse("all_gather_coalesced: a list of " + std::to_string(list.size()) + " tensors for inputs of " + std::to_string(inputs.size()));
    for (std::size_t i = 0; i < list.size(); ++i) {
      expect_dense({inputs[i], list[i]}, "all_gather_coalesced", "a tensor and its place");
      expect_alike(inputs[i], "a tensor", inputs[i].numel(), list[i], "its place", list[i].numel(), "all_gather_coalesced");
    }
  }
  if (inputs.empty()) refuse("all_gather_coalesced: no tensors");
  Job job = prepare(inputs[0], joined(outputs));
  communicator_.begin_group();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors places;
    for (const Tensors& list : outputs) places.push_back(list[i]);
    (void)all_gather(job, places, inputs[i]);
  }
  job.work = communicator_.end_group();
  return start(OpType::ALLGATHER_COALESCED, std::move(job));
}

WorkPointer ProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) {
  expect_dense({output, input}, "all_gather_into_tensor", "output and input");
  expect_alike(output, "output", output.numel(), input, "inputs of all ranks", input.numel() * getSize(), "all_gather_into_tensor");
  Job job = prepare(output, {output});
  job.work = all_gather(job, {output}, input);
  return start(OpType::_ALLGATHER_BASE, std::move(job));
}

WorkPointer ProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  Job job = prepare(only(inputs, "gather", "tensor"), {});
  const at::Tensor own = run_of(inputs);
  const Numbers numbers = as_moved(own);
  job.kept.push_back(own);
  void* into = nullptr;
  if (options.rootRank == getRank()) {
    const Tensors& list = only_list(outputs, getSize(), "gather", "gather_list");
    for (const at::Tensor& t : list) expect_alike(own, "tensor", own.numel(), t, "its place in gather_list", t.numel(), "gather");
    const Landing landing = landing_for(list);
    land(job, landing);
    job.outputs = list;
    into = landing.run.data_ptr();
  }
  job.work = communicator_.gather({own.data_ptr(), into, numbers.count(own), numbers.type, int(options.rootRank), job.stream()});
  return start(OpType::GATHER, std::move(job));
}

WorkPointer ProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  Job job = prepare(only(outputs, "scatter", "tensor"), outputs);
  const Landing landing = landing_for(outputs);
  const Numbers numbers = as_moved(landing.run);
  land(job, landing);
  const void* from = nullptr;
  if (options.rootRank == getRank()) {
    const Tensors& list = only_list(inputs, getSize(), "scatter", "scatter_list");
    for (const at::Tensor& t : list) expect_alike(landing.run, "tensor", landing.run.numel(), t, "its source in scatter_list", t.numel(), "scatter");
    job.kept.push_back(run_of(list));
    from = job.kept.back().data_ptr();
  }
  job.work = communicator_.scatter({from, landing.run.data_ptr(), numbers.count(landing.run), numbers.type, int(options.rootRank), job.stream()});
  return start(OpType::SCATTER, std::move(job));
}

WorkPointer ProcessGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce_scatter", "output");
  const Tensors& list = only_list(inputs, getSize(), "reduce_scatter", "input_list");
  const at::Tensor& own = list[std::size_t(getRank())];
  expect_alike(output, "output", output.numel(), own, "this rank's place in input_list", own.numel(), "reduce_scatter");
  Job job = prepare(output, outputs);
  job.work = reduce_scatter(job, output, list, options.reduceOp);
  return start(OpType::REDUCE_SCATTER, std::move(job));
}

WorkPointer ProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  expect_dense({output, input}, "reduce_scatter_tensor", "output and input");
  expect_alike(input, "input", input.numel(), output, "outputs of all ranks", output.numel() * getSize(), "reduce_scatter_tensor");
  Job job = prepare(output, {output});
  job.work = reduce_scatter(job, output, {input}, options.reduceOp);
  return start(OpType::_REDUCE_SCATTER_BASE, std::move(job));
}

WorkPointer ProcessGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  only_list({outputs}, getSize(), "all_to_all", "output_tensor_list");
  only_list({inputs}, getSize(), "all_to_all", "input_tensor_list");
  if (inputs[0].scalar_type() != outputs[0].scalar_type()) refuse("all_to_all: the two lists differ in type");
  if (inputs[0].device() != outputs[0].device()) refuse("all_to_all: the two lists are on different devices");
  Job job = prepare(inputs[0], outputs);
  const at::Tensor all = run_of(inputs);
  const Landing landing = landing_for(outputs);
  const Numbers numbers = as_moved(all);
  land(job, landing);
  job.work = exchange(job, landing.run, all, counts_of(outputs, numbers), counts_of(inputs, numbers));
  return start(OpType::ALLTOALL, std::move(job));
}

WorkPointer ProcessGroup::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions&) {
  expect_dense({output, input}, "all_to_all_single", "output and input");
  auto from = shares(output, output_splits, getSize(), "output"), to = shares(input, input_splits, getSize(), "input");
  Job job = prepare(input, {output});
  const at::Tensor all = run_of({input});
  const Landing landing = landing_for({output});
  const std::size_t per_element = as_moved(all).per_element;
  for (auto* counts : {&from, &to})
    for (std::size_t& count : *counts) count *= per_element;
  land(job, landing);
  job.work = exchange(job, landing.run, all, std::move(from), std::move(to));
  return start(OpType::ALLTOALL_BASE, std::move(job));
}

WorkPointer ProcessGroup::send(Tensors& tensors, int peer, int tag) {
  expect_no_tag(tag, "send");
  Job job = prepare(only(tensors, "send", "tensor"), tensors);
  const at::Tensor own = run_of(tensors);
  const Numbers numbers = as_moved(own);
  job.kept.push_back(own);
  job.work = communicator_.send({own.data_ptr(), numbers.count(own), numbers.type, peer, job.stream()});
  return start(OpType::SEND, std::move(job));
}

WorkPointer ProcessGroup::recv(Tensors& tensors, int peer, int tag) {
  expect_no_tag(tag, "recv");
  Job job = prepare(only(tensors, "recv", "tensor"), tensors);
  const Landing landing = landing_for(tensors);
  const Numbers numbers = as_moved(landing.run);
  land(job, landing);
  job.work = communicator_.recv({landing.run.data_ptr(), numbers.count(landing.run), numbers.type, peer, job.stream()});
  return start(OpType::RECV, std::move(job));
}

WorkPointer ProcessGroup::recvAnysource(Tensors&, int) {
  unsupported("recv from any rank: the messages of two ranks are matched in their order: wanted src=RANK");
}

WorkPointer ProcessGroup::barrier(const c10d::BarrierOptions&) {
  Job job;
  job.work = communicator_.barrier();
  return start(OpType::BARRIER, std::move(job));
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
WorkPointer ProcessGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  if (outputs.size() != inputs.size()) refuse("all_gather_into_tensor_coalesced: lists of different lengths");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    expect_dense({outputs[i], inputs[i]}, "all_gather_into_tensor_coalesced", "output and input");
    expect_alike(outputs[i], "output", outputs[i].numel(), inputs[i], "inputs of all ranks", inputs[i].numel() * getSize(), "all_gather_into_tensor_coalesced");
  }
  if (outputs.empty()) refuse("a coalesced call without tensors");
  Job job = prepare(outputs[0], outputs);
  communicator_.begin_group();
  for (std::size_t i = 0; i < inputs.size(); ++i) (void)all_gather(job, {outputs[i]}, inputs[i]);
  job.work = communicator_.end_group();
  return start(OpType::COALESCED, std::move(job));
}

WorkPointer ProcessGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size()) refuse("reduce_scatter_tensor_coalesced: lists of different lengths");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    expect_dense({outputs[i], inputs[i]}, "reduce_scatter_tensor_coalesced", "output and input");
    expect_alike(inputs[i], "input", inputs[i].numel(), outputs[i], "outputs of all ranks", outputs[i].numel() * getSize(), "reduce_scatter_tensor_coalesced");
    (void)reduction_of(outputs[i].scalar_type(), options.reduceOp, "reduce_scatter_tensor_coalesced");
  }
  if (outputs.empty()) refuse("a coalesced call without tensors");
  Job job = prepare(outputs[0], outputs);
  communicator_.begin_group();
  for (std::size_t i = 0; i < inputs.size(); ++i) (void)reduce_scatter(job, outputs[i], {inputs[i]}, options.reduceOp);
  job.work = communicator_.end_group();
  return start(OpType::COALESCED, std::move(job));
}
#endif

}  // namespace tutti_torch
