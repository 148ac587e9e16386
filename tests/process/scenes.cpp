#include "tests/process/scenes.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace tutti::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What the next file that is opened gets.
rlim_t next_descriptor() {
  const int fd = ::dup(2);
  ::close(fd);
  return rlim_t(fd);
}

}  // namespace

Status reduce(Communicator& comm, std::size_t count) {
  std::vector<float> x(count, float(comm.rank())), y(count);
  return comm.all_reduce({x.data(), y.data(), count}).wait();
}

Status reduce_often(Communicator& comm, std::size_t count, int times, std::atomic<int>* rounds) {
  std::vector<float> x(count, 1), y(count);
  for (int i = 0; i < times; ++i) {
    if (const Status status = comm.all_reduce({x.data(), y.data(), count}).wait(); !status.ok()) return status;
    for (const float value : y)
      if (value != float(comm.rank_count())) return Status(Code::internal, "a wrong sum");
    if (rounds) ++*rounds;
  }
  return {};
}

Statuses ranks(int count, const Settings& settings, const Body& body) {
  World world(count, settings);
  std::mutex mutex;
  Statuses out;
  world.run([&](Communicator& comm) {
    const Status status = body(comm);
    const std::lock_guard held(mutex);
    out.push_back(status);
  });
  return out;
}

Status last(Communicator& comm, Status status) {
  while (status.ok()) status = comm.barrier().wait();
  return status;
}

Statuses with_process(int signal, const Settings& settings, std::size_t count,
                      const std::function<int(Communicator&)>& body) {
  const std::string address = fresh_address();
  Child victim([&] {
    const Environment environment(settings);
    Communicator comm = joined(0, 3, address);
    return body ? body(comm) : int(reduce_often(comm, count, kForEver).ok());
  });
  World world(3, 1, address, settings);
  std::atomic<int> rounds{0};
  std::atomic<bool> over{false};
  std::thread killer([&] {
    while (rounds < 20 && !over) std::this_thread::yield();
    if (signal) victim.signal(signal);
  });
  std::mutex mutex;
  Statuses out;
  world.run([&](Communicator& comm) {
    const Status status = reduce_often(comm, count, kForEver, &rounds);
    const std::lock_guard held(mutex);
    out.push_back(status);
    over = true;
  });
  killer.join();
  return out;
}

Statuses mismatch(const std::function<Work(Communicator&, float*)>& usual,
                  const std::function<Work(Communicator&, float*)>& odd) {
  return ranks(3, {{"TUTTI_TIMEOUT", "8s"}}, [&](Communicator& comm) {
    std::vector<float> memory(20000);
    return last(comm, (comm.rank() == 2 ? odd : usual)(comm, memory.data()).wait());
  });
}

Statuses on_the_wire(Fault fault, Settings settings, int times) {
  forget_traffic();
  settings.emplace_back("TUTTI_TRANSPORT", "tcp");
  std::atomic<int> rounds{0};
  auto out = ranks(3, settings, [&](Communicator& comm) {
    const Status before = reduce_often(comm, 100'000, 5, &rounds);
    if (!before.ok()) return before;
    if (comm.rank() == 0 && !inject(fault, 100'000)) return Status(Code::internal, "no socket to harm was found");
    return reduce_often(comm, 100'000, times);
  });
  if (strikes() == 0) out.emplace_back(Code::internal, "the fault never struck");
  forget_traffic();
  return out;
}

Status alone(int rank, int count, const std::string& address, milliseconds limit, const std::string& key) {
  auto made = Communicator::create(rank, count, address, {.init_timeout = limit, .job_key = key});
  return made ? Status() : made.status();
}

Statuses together(const std::vector<std::function<Status()>>& joins) {
  Statuses out(joins.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < joins.size(); ++i) threads.emplace_back([&, i] { out[i] = joins[i](); });
  for (auto& thread : threads) thread.join();
  return out;
}

Statuses with_setting(const std::string& name, const std::string& value) {
  const Environment environment(Settings{{name, value}});
  return {alone(0, 1, fresh_address(), seconds(1))};
}

Apart::Pipe::Pipe() {
  if (::pipe(ends) != 0) throw std::runtime_error("pipe");
}

Apart::Apart(const std::function<Status()>& body)
    : child_([&] {
        const Status status = body();
        const int head[2] = {int(status.code()), status.culprit()};
        return ::write(pipe_.ends[1], head, sizeof head) < 0 ||
               ::write(pipe_.ends[1], status.text().data(), status.text().size()) < 0;
      }) {
  ::close(pipe_.ends[1]);
}

Apart::~Apart() { ::close(pipe_.ends[0]); }

Status Apart::status() {
  int head[2] = {};
  std::string text(4096, 0);
  const bool told = ::read(pipe_.ends[0], head, sizeof head) == ssize_t(sizeof head);
  const ssize_t bytes = ::read(pipe_.ends[0], text.data(), text.size());
  const int code = child_.exit_code();
  text.resize(std::size_t(std::max<ssize_t>(bytes, 0)));
  return told ? Status(Code(head[0]), text, head[1])
              : Status(Code::internal, "the process ended without a word: " + std::to_string(code));
}

Statuses with_limit(int what, rlim_t most, const std::function<Status()>& body) {
  return {apart([&] {
    rlimit limit{};
    ::getrlimit(what, &limit);
    limit.rlim_cur = what == RLIMIT_NOFILE ? next_descriptor() + most : most;
    ::setrlimit(what, &limit);
    return body();
  })};
}

Work all_reduce(Communicator& c, float* at, std::size_t count, DataType type, ReduceOp op) {
  return c.all_reduce({at, at + 10000, count, type, op});
}

}  // namespace tutti::test
