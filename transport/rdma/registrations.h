#pragma once
// Registrations: users' memory that the devices know, made when first met, kept as long as the range lives and there are not too many. Memory
// of which nobody says how long it stays (no range of transport/ranges.h) is never registered: its pages may change under the device's hands.
#include <memory>
#include <unordered_map>

#include "transport/rdma/gpu_direct.h"
#include "transport/rdma/memory.h"
#include "transport/rdma/rdma_counters.h"

namespace tutti::transport::rdma {

class Registrations {
 public:
  static constexpr std::size_t kMost = 128;
  Registrations(const Devices& devices, RdmaCounters& counters) : devices_(devices), counters_(counters) {}
  // The GPU whose ranges may be registered, too.
  void use(const GpuDirect* gpu) { gpu_ = gpu; }
  // Null: not, or not wholly, in a range, or the device refused (said once): the bytes are to be copied.
  std::shared_ptr<const Registration> find(const std::byte* data, std::uint64_t bytes);
  // Lets go of the ranges that were dropped. Costs nothing while none was.
  void purge();
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::shared_ptr<const Registration> registration;      // null: it was refused
    std::uint64_t used = 0;
  };
  void make_room();
  void say_refused(bool of_gpu, const Status& why);
  const GpuDirect* gpu_ = nullptr;

  const Devices& devices_;
  RdmaCounters& counters_;
  std::unordered_map<std::uint64_t, Entry> entries_;        // by the range's token
  std::uint64_t uses_ = 0, seen_dropped_ = 0;
  bool refused_[2] = {};              // and said so: of the host's memory, of a GPU's
};

}  // namespace tutti::transport::rdma
