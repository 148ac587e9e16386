#pragma once
// Ranks of one communicator as threads of this process, and processes beside them, by nccl.h alone.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nccl/nccl.h"

namespace tutti::test {

#define EXPECT_NCCL(wanted, call) EXPECT_EQ(wanted, call) << #call << ": " << ncclGetLastError(nullptr)

inline void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r) threads.emplace_back([&body, r] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

class Ranks {
 public:
  // The first `here` of `count` ranks.
  explicit Ranks(int count, int here = -1, ncclConfig_t* config = nullptr) : Ranks(count, here, config, make_id()) {}
  Ranks(int count, int here, ncclConfig_t* config, const ncclUniqueId& id) : comms_(std::size_t(here < 0 ? count : here)) {
    in_threads(int(comms_.size()), [&](int r) { EXPECT_NCCL(ncclSuccess, ncclCommInitRankConfig(&comms_[std::size_t(r)], count, id, r, config)); });
  }
  ~Ranks() {
    for (ncclComm_t comm : comms_) EXPECT_NCCL(ncclSuccess, ncclCommDestroy(comm));
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  static ncclUniqueId make_id() {
    ncclUniqueId id;
    EXPECT_NCCL(ncclSuccess, ncclGetUniqueId(&id));
    return id;
  }
  ncclComm_t& operator[](int rank) { return comms_[std::size_t(rank)]; }
  int here() const { return int(comms_.size()); }
  void run(const std::function<void(int rank, ncclComm_t comm)>& body) {
    in_threads(here(), [&](int r) { body(r, comms_[std::size_t(r)]); });
  }

 private:
  std::vector<ncclComm_t> comms_;
};

// A rank in a process of its own: program.c's "join".
class Process {
 public:
  Process(int rank, int count, const ncclUniqueId& id, const char* what) {
    std::string hex;
    for (const char c : id.internal) hex += "0123456789abcdef"[(unsigned char)c >> 4], hex += "0123456789abcdef"[c & 15];
    const std::string ranks[] = {std::to_string(rank), std::to_string(count)};
    pid_ = fork();
    if (pid_ != 0) return;
    execl(TUTTI_NCCL_PROGRAM, TUTTI_NCCL_PROGRAM, "join", ranks[0].c_str(), ranks[1].c_str(), hex.c_str(), what, nullptr);
    _exit(127);
  }
  ~Process() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

 private:
  pid_t pid_;
};

// One sum of `count` ones; what the call returned.
inline ncclResult_t sum_of_ones(ncclComm_t comm, int ranks, std::size_t count = 1) {
  std::vector<float> ones(count, 1), sum(count, -1);
  const ncclResult_t result = ncclAllReduce(ones.data(), sum.data(), count, ncclFloat, ncclSum, comm, nullptr);
  if (result == ncclSuccess) {
    EXPECT_EQ(sum, std::vector<float>(count, float(ranks)));
  }
  return result;
}

}  // namespace tutti::test
