#pragma once
// Scenes: what the causes of the gallery (gallery.h) happen in: ranks as threads, a rank that is a process and is
// killed, processes that may hold little. Each returns what the ranks said.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/process/faulty_sockets.h"
#include "tests/process/world.h"

namespace tutti::test {

using Body = std::function<Status(Communicator&)>;
using Statuses = std::vector<Status>;
inline constexpr int kForEver = 1 << 30;

Status reduce(Communicator& comm, std::size_t count);
// Again and again, until a failure or `times` are done; wrong sums are a failure of their own.
Status reduce_often(Communicator& comm, std::size_t count, int times, std::atomic<int>* rounds = nullptr);
// Until the communicator is broken: who had finished learns of it later.
Status last(Communicator& comm, Status status);
Work all_reduce(Communicator& comm, float* at, std::size_t count, DataType type = DataType::f32,
                ReduceOp op = ReduceOp::sum);

// A thread a rank; what each body returned.
Statuses ranks(int count, const Settings& settings, const Body& body);
// Rank 0 of three is a process that runs `body`; it gets `signal` after some rounds of the others (0: none).
Statuses with_process(int signal, const Settings& settings, std::size_t count,
                      const std::function<int(Communicator&)>& body = {});
// Two different calls: of the last rank of three, and of the others.
Statuses mismatch(const std::function<Work(Communicator&, float*)>& usual,
                  const std::function<Work(Communicator&, float*)>& odd);
// A fault on the busiest TCP socket in the midst of all_reduces of three ranks.
Statuses on_the_wire(Fault fault, Settings settings, int times = 60);

// Only rank `rank` of `count`, here and now.
Status alone(int rank, int count, const std::string& address, std::chrono::milliseconds limit,
             const std::string& key = "k");
// All these at once; what each got.
Statuses together(const std::vector<std::function<Status()>>& joins);
Statuses with_setting(const std::string& name, const std::string& value);

// A process of its own, begun before there are threads that could hold something at the fork.
class Apart {
 public:
  explicit Apart(const std::function<Status()>& body);
  ~Apart();
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;
  Status status();          // waits for what `body` returned

 private:
  struct Pipe {
    Pipe();
    int ends[2];
  } pipe_;
  Child child_;
};
inline Status apart(const std::function<Status()>& body) { return Apart(body).status(); }
// In a process that may hold no more of something, or of descriptors so many more.
Statuses with_limit(int what, rlim_t most, const std::function<Status()>& body);

}  // namespace tutti::test
