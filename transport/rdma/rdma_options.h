#pragma once
// RdmaOptions: what a user may say about RDMA.
#include <cstddef>
#include <string>

#include "core/net.h"

namespace tutti::transport::rdma {

struct RdmaOptions {
  std::string devices;                          // TUTTI_IB_HCA
  int gid_index = -1;                           // -1: by the peer's subnet
  int queues = 1;                               // queue pairs of a rail
  int timeout = 16, retry = 7;                  // as ibv_modify_qp takes them
  int service_level = 0, traffic_class = 0;
  bool resumable = false;                       // Listener::on_broken, rather than on_lost, where all queue pairs have failed
  bool relaxed_ordering = true;                 // of PCIe
  std::string gpu_distance = "PXB";             // TUTTI_IB_GPU_DISTANCE
  Nanoseconds socket_after{-1};                 // broken for so long, a connection goes on over a socket, where both sides allow it; -1: never
  int numa = -1;                                // where this rank runs
  std::size_t segment_bytes = 0;                // of large messages; 0: by their size
  std::size_t landing_bytes = 3 << 20;          // for what arrives before it has its place
  std::size_t staging_bytes = 1 << 20;          // for what is sent from memory that is not registered
};

}  // namespace tutti::transport::rdma
