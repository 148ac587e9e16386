#include "nccl/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

namespace tutti::nccl {
namespace {

constexpr int kLooks = 256;  // at the operations of several communicators in turn, before one is waited for

ncclComm& who_waits(const Task& task) { return task.parent ? *task.parent : *task.comm; }

// A call that returns before it is carried out. What is on a stream is carried out there.
bool runs_behind(const Task& task) { return !who_waits(task).blocking() && (task.make || !task.call.stream.given); }

// A blocking creation that failed leaves no handle behind.
void take_back(const Task& task) {
  if (!task.handle) return;
  *task.handle = nullptr;
  withdraw(task.comm.get());
}

Outcome create(Task& task) {
  Outcome outcome = caught([&] { return task.comm->made(task.make()); });
  task.comm->keep(outcome);
  return outcome;
}

// One thread for each parent, and for each that has none.
Outcome create_all(std::vector<Task>& tasks) {
  std::map<ncclComm*, std::vector<Task*>> chains;
  for (Task& task : tasks)
    if (task.make) chains[&who_waits(task)].push_back(&task);
  std::vector<Outcome> outcomes(chains.size());
  std::vector<std::jthread> threads;
  std::size_t at = 0;
  for (const auto& entry : chains) {
    const auto run = [&chain = entry.second, &outcome = outcomes[at]] {
      for (Task* task : chain)
        if (Outcome made = create(*task); outcome.ok()) outcome = std::move(made);
    };
    ++at;
    if (chains.size() > 1)
      threads.emplace_back(run);
    else
      run();
  }
  threads.clear();      // joins them
  const auto failed = std::find_if(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return !o.ok(); });
  return failed == outcomes.end() ? Outcome() : *failed;
}

// What a rank sends to itself it must receive in the same group.
Outcome check_to_self(const std::vector<const Call*>& calls, int rank) {
  int open = 0;
  for (const Call* call : calls) {
    if (call->peer != rank) continue;
    open += call->what == Collective::send;
    open -= call->what == Collective::recv;
  }
  if (open == 0) return {};
  return {ncclInvalidUsage, fmt::format("rank {} {} itself without a matching {} in the same group", rank,
                                        open > 0 ? "sends to" : "receives from", open > 0 ? "ncclRecv" : "ncclSend")};
}

struct Started {
  ncclComm* comm;
  Work work;
  bool on_stream;  // not waited for
};

void start_calls(ncclComm& comm, const std::vector<const Call*>& calls, std::vector<Started>& started) {
  Communicator& c = comm.communicator();
  const bool alone = calls.size() == 1;
  if (!alone) c.begin_group();
  for (const Call* call : calls) started.push_back({&comm, start(comm, *call), call->stream.given});
  const bool streams = std::any_of(calls.begin(), calls.end(), [](const Call* call) { return call->stream.given; });
  if (!alone) started.push_back({&comm, c.end_group(), streams});
  if (streams) comm.note(started.back().work);
}

// Each of several engines would wait for the others' threads otherwise.
void wait_for_all(std::vector<Started>& started) {
  if (std::all_of(started.begin(), started.end(), [](const Started& s) { return s.on_stream; })) return;
  const bool one =
      std::all_of(started.begin(), started.end(), [&](const Started& s) { return s.comm == started[0].comm; });
  for (int look = 0; !one && look < kLooks; ++look) {
    bool all = true;
    for (Started& s : started) all &= s.on_stream || s.work.test();
    if (all) break;
  }
  for (Started& s : started)
    if (!s.on_stream) (void)s.work.wait();
}

using ByComm = std::vector<std::pair<ncclComm*, std::vector<const Call*>>>;

ByComm by_communicator(const std::vector<Task>& tasks) {
  ByComm by_comm;
  for (const Task& task : tasks) {
    if (task.make) continue;
    const auto at =
        std::find_if(by_comm.begin(), by_comm.end(), [&](const auto& entry) { return entry.first == task.comm.get(); });
    if (at != by_comm.end())
      at->second.push_back(&task.call);
    else
      by_comm.push_back({task.comm.get(), {&task.call}});
  }
  return by_comm;
}

// Two ranks of a communicator whose calls are on one stream: one could only begin when the other has ended.
Outcome check_streams(const ByComm& by_comm) {
  std::map<std::tuple<const Device*, void*, std::string>, const ncclComm*> seen;
  for (const auto& [comm, calls] : by_comm)
    for (const Call* call : calls) {
      if (!call->stream.given) continue;
      const auto [at, fresh] = seen.try_emplace({comm->gpu().get(), call->stream.handle, comm->origin().family}, comm);
      if (!fresh && at->second != comm)
        return {ncclInvalidUsage,
                fmt::format("two ranks of a communicator share the stream {}: ranks on one GPU need a stream each", call->stream.handle)};
    }
  return {};
}

// What can be said of a group before anything of it is started.
Outcome check_calls(const std::vector<Task>& tasks) {
  const ByComm by_comm = by_communicator(tasks);
  for (const auto& [comm, calls] : by_comm)
    if (Outcome matched = check_to_self(calls, comm->communicator().rank()); !matched.ok()) return matched;
  return check_streams(by_comm);
}

// Of those that are not waited for: what has failed by now.
Outcome operate(const std::vector<Task>& tasks) {
  std::vector<Started> started;
  for (const auto& [comm, calls] : by_communicator(tasks)) start_calls(*comm, calls, started);
  wait_for_all(started);
  Outcome first;
  for (Started& s : started) {
    if (s.on_stream && !s.work.test()) continue;
    Outcome outcome = outcome_of(s.work.status());
    if (outcome.ok()) continue;
    s.comm->keep(outcome);
    if (first.ok()) first = std::move(outcome);
  }
  return first;
}

// The usual case, without lists.
Outcome operate_alone(ncclComm& comm, const Call& call) {
  if (call.what == Collective::send || call.what == Collective::recv)
    if (Outcome matched = check_to_self({&call}, comm.communicator().rank()); !matched.ok()) return matched;
  Work work = start(comm, call);
  if (call.stream.given) comm.note(work);
  if (call.stream.given && !work.test()) return {};
  Outcome outcome = outcome_of(work.wait());
  comm.keep(outcome);
  return outcome;
}

Outcome perform(std::vector<Task>& tasks) {
  if (Outcome made = create_all(tasks); !made.ok()) return made;
  return operate(tasks);
}

// All that are busy until it is done.
std::vector<std::shared_ptr<ncclComm>> involved(const std::vector<Task>& tasks) {
  std::vector<std::shared_ptr<ncclComm>> all;
  for (const Task& task : tasks)
    for (const auto& comm : {task.comm, task.parent})
      if (comm && std::find(all.begin(), all.end(), comm) == all.end()) all.push_back(comm);
  return all;
}

}  // namespace

Group& Group::of_this_thread() {
  thread_local Group group;
  return group;
}

void Group::refuse(const Outcome& why) {
  if (open() && refused_.ok()) refused_ = why;
}

Outcome Group::add(Task task) {
  if (!open()) {
    if (!task.make && !runs_behind(task)) return operate_alone(*task.comm, task.call);
    std::vector<Task> alone;
    alone.push_back(std::move(task));
    return carry_out(std::move(alone));
  }
  if (!tasks_.empty() && who_waits(tasks_[0]).blocking() != who_waits(task).blocking()) {
    Outcome mixed{ncclInvalidArgument, "a group may not have both blocking and non-blocking communicators"};
    take_back(task);
    refuse(mixed);
    return mixed;
  }
  tasks_.push_back(std::move(task));
  return {};
}

Outcome Group::take(std::vector<Task>& tasks) {
  depth_ = 0;
  tasks = std::exchange(tasks_, {});
  Outcome refused = std::exchange(refused_, {});
  if (!refused.ok())
    for (const Task& task : tasks) take_back(task);
  return refused;
}

Outcome Group::end() {
  if (!open()) return {ncclInvalidUsage, "no group was started on this thread"};
  if (depth_ > 1) return --depth_, refused_;
  std::vector<Task> tasks;
  if (Outcome refused = take(tasks); !refused.ok()) return refused;
  return tasks.empty() ? Outcome() : carry_out(std::move(tasks));
}

Outcome Group::carry_out(std::vector<Task> tasks) {
  if (Outcome good = check_calls(tasks); !good.ok()) {
    for (const Task& task : tasks) take_back(task);
    return good;
  }
  if (std::none_of(tasks.begin(), tasks.end(), runs_behind)) {
    Outcome outcome = perform(tasks);
    if (!outcome.ok())
      for (const Task& task : tasks)
        if (task.make) take_back(task);
    return outcome;
  }
  const auto busy = involved(tasks);
  for (const auto& comm : busy) comm->begin_run();
  const Outcome begun = caught([&] {
    std::thread([tasks = std::move(tasks), busy]() mutable {
      remember(in(tasks[0].name, caught([&] { return perform(tasks); })));
      for (const auto& comm : busy) comm->end_run();
    }).detach();
    return Outcome{ncclInProgress, ""};
  });
  if (begun.failed())
    for (const auto& comm : busy) comm->end_run();
  return begun;
}

Outcome Group::simulate(double& seconds) {
  if (!open()) return {ncclInvalidUsage, "no group was started on this thread"};
  if (depth_ > 1) return {ncclInvalidUsage, "only the outermost group can be simulated"};
  std::vector<Task> tasks;
  if (Outcome refused = take(tasks); !refused.ok()) return refused;
  seconds = 0;
  for (const Task& task : tasks) {
    if (task.make) {
      for (const Task& other : tasks) take_back(other);
      return {ncclInvalidUsage, "the group makes communicators: only operations can be simulated"};
    }
    if (task.call.what == Collective::send || task.call.what == Collective::recv) continue;
    const auto choice =
        task.comm->communicator().explain(task.call.what, task.call.count, task.call.type, task.call.op);
    if (!choice) return outcome_of(choice.status());
    seconds += choice->seconds;
  }
  return {};
}

}  // namespace tutti::nccl
