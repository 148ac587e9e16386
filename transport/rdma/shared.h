#pragma once
// What the connections of one rdma transport have in common: options, counters, devices, pools. Owns no connection.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/net.h"
#include "transport/rdma/cell.h"
#include "transport/rdma/landed.h"
#include "transport/rdma/memory.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma_options.h"
#include "transport/rdma/registrations.h"
#include "transport/transport.h"

namespace tutti::transport::rdma {

class Grants;

struct Shared {
  Shared(Loop& with_loop, Listener& to, const RdmaOptions& with) : loop(with_loop), listener(to), options(with) {}

  Loop& loop;
  Listener& listener;
  const RdmaOptions options;
  RdmaCounters counters;
  Devices devices;                       // those that are offered
  Offer offer;                           // of those, in the same order
  std::unique_ptr<Pool> landings;        // windows of granted messages that have no place yet
  std::unique_ptr<Pool> stagings;        // copies of what is sent from memory that is not registered
  Registrations registrations{devices, counters};
  GpuDirect* gpu = nullptr;              // once there is one
  LandedPool landed;
  struct Waiting {
    Grants* grants;
    std::uint32_t id;
  };
  std::vector<Waiting> waiting;          // messages that wait for a window, in order of arrival
  std::vector<ibv_wc> kept;              // completions that were taken from the devices and not yet dealt with, in order
  bool dispatching = false;              // those that came before them are being dealt with

  // What is there now goes into `kept`. Returns whether anything was.
  bool fetch();

  // Segment bytes that suit a message, and the grid that writes of it are cut at; both ends compute the same.
  std::size_t segment_bytes(std::uint64_t message_bytes) const;
  std::size_t grid_bytes(std::uint64_t message_bytes) const;
  QueueOptions queue_options() const { return {options.timeout, options.retry, options.service_level, options.traffic_class}; }
};

}  // namespace tutti::transport::rdma
