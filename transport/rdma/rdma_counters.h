#pragma once
// RdmaCounters: what an rdma transport has done so far, as hardware is paid for it. PortError: what a device has had to mend by itself.
#include <cstdint>
#include <string>

namespace tutti::transport::rdma {

struct RdmaCounters {
  std::uint64_t work_requests = 0, inlined = 0, doorbells = 0;     // doorbells: calls that posted something, sends or receives
  std::uint64_t completions = 0, arrivals = 0;                     // of what was sent; of what came
  std::uint64_t cells_out = 0, control_out = 0, writes_out = 0;    // cells with payload; without: grants, credit; writes of segments
  std::uint64_t credits_out = 0, grants_out = 0;                   // of control_out
  std::uint64_t bytes_out = 0, copied_out = 0, copied_in = 0;      // copied: payload, on its way to the device or from where it landed
  std::uint64_t socket_bytes_out = 0;    // of bytes_out, by a socket instead of a device
  std::uint64_t sent_again = 0;          // cells and writes, after a break
  std::uint64_t registrations = 0;       // of users' memory
  std::uint64_t breaks = 0;              // of a connection: all its queue pairs were lost
  std::uint64_t rebuilt = 0;             // queue pairs in place of such
  std::uint64_t over_sockets = 0;        // so many times a socket took their place
};

// Packets sent again, answers that did not come in time and the like, of all that use the port, since the device came up.
struct PortError {
  std::string device, name;              // "mlx5_0", "packet_seq_err": as the kernel has it in hw_counters
  int port = 1;
  std::uint64_t count = 0;
};

}  // namespace tutti::transport::rdma
