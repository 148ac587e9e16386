#pragma once
// A provider of verbs in memory: devices, queue pairs and completion queues that move bytes within this process, check keys and
// bounds as hardware does, and fail when they are told to. Writes are carried out late, when somebody polls, in the order of their queue
// pair and in a random one between queue pairs, so that whoever reuses memory too early is found out.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "transport/rdma/fabric.h"
#include "transport/rdma/verbs.h"

namespace tutti::tests {

class FakeFabric {
 public:
  explicit FakeFabric(std::uint64_t seed = 1);
  ~FakeFabric();
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  // A port of a host; those of all hosts with one subnet reach each other.
  void add_port(int host, transport::rdma::Port port);
  // "10.0.<rail>.<host + 1>", active, RoCE v2 at index 3
  void add_rail(int host, int rail);
  // What `host` sees, as long as this thread asks for no other.
  const transport::rdma::Verbs& verbs(int host);

  // Carries out what was posted, as far as it can be. Returns whether anything moved.
  bool deliver();
  // Nothing arrives at or leaves a rail any more, until it is put up again.
  void set_link(int rail, bool up) {
    const std::lock_guard held(mutex);
    down_[rail] = !up;
  }
  // So do, after so many that are carried out, one write and its queue pair. failures(): how often that has happened.
  void fail_after(unsigned writes, ibv_wc_status status) { fail_in_ = int(writes), fail_with_ = status; }
  void calm() { fail_in_ = -1; }
  bool about_to_fail() const { return fail_in_ >= 0; }
  unsigned failures() const { return failures_; }
  // The oldest write of any queue pair on the rail fails so, and its queue pair with it.
  bool fail_one(int rail, ibv_wc_status status);
  // The port of a rail as its hosts see it; one that is down is not offered to peers.
  void set_port(int rail, bool up);
  // Registers no more than this.
  static inline std::size_t default_memory_limit = ~std::size_t(0);
  std::size_t memory_limit = default_memory_limit;
  // Where the bytes of another device's memory are, for who has it registered; null: they are the host's. And whether ibv_reg_mr takes such.
  std::function<std::byte*(const std::byte*, std::size_t)> foreign = [](const std::byte*, std::size_t) { return nullptr; };
  bool takes_foreign = false;
  bool damages_foreign = false;                                // what is written there
  static inline std::uint32_t default_vendor = 0x2c9;
  static inline std::string sysfs = "/sys";                    // of which verbs() tells
  int retries() const { return retries_; }                     // as the last queue pair was told
  int dmabuf_error = 0;                                        // instead of a registration
  std::uint64_t relaxed() const { return relaxed_; }           // registrations with relaxed ordering
  std::uint64_t dmabufs() const { return dmabufs_; }           // of other devices' memory
  // Writes that arrived at that host since the last call.
  std::uint64_t delivered_into(int host) { return std::exchange(delivered_[host], 0); }
  std::size_t registered_bytes() const { return registered_; }
  std::size_t live_objects() const { return objects_; }
  std::uint64_t not_ready() const { return not_ready_; }       // writes that found no receive posted
  std::size_t queue_pairs() const { return pairs_.size(); }

  struct Device;
  struct Context;
  struct Channel;
  struct Queue;
  struct Pair;
  struct Memory;
  static FakeFabric* current;
  static inline std::recursive_mutex mutex;                    // calls of several threads take turns
  static inline thread_local int host_of_this_thread = 0;

  // Bytes of writes since the last call: into other devices' memory, and out of it; and of those that are longer than a cell of
  // transport/rdma/cell.h, into the host's memory and out of it.
  struct Moved {
    std::uint64_t into_foreign = 0, out_of_foreign = 0, into_host = 0, out_of_host = 0;
  };
  Moved moved() {
    const std::lock_guard held(mutex);
    return std::exchange(moved_, {});
  }

 private:
  friend struct FakeCalls;
  bool carry_out(Pair& pair);
  void complete(Pair& pair, ibv_wc_status status);
  void fail(Pair& pair);
  Memory* find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes) const;
  int rail_of(const Pair& pair) const;

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::map<std::uint32_t, Pair*> pairs_;
  std::map<std::uint32_t, Memory*> memories_;
  std::map<int, bool> down_;
  std::map<int, std::uint64_t> delivered_;
  std::uint32_t last_number_ = 100, last_key_ = 1000;
  std::size_t registered_ = 0, objects_ = 0;
  std::uint64_t not_ready_ = 0, relaxed_ = 0, dmabufs_ = 0;
  int fail_in_ = -1, retries_ = 0;
  ibv_wc_status fail_with_ = IBV_WC_SUCCESS;
  unsigned failures_ = 0;
  Moved moved_;
};

}  // namespace tutti::tests
