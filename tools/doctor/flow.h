#pragma once
// Bytes one way over a connected socket for a short time, and how busy the threads at both ends were with it: a rate
// below the link's speed is the link's fault only when neither end was short of processor time.
#include "tools/doctor/sockets.h"

namespace tutti::tools::doctor {

inline constexpr std::chrono::milliseconds kFlowTime{400};  // of sending; the first quarter is not counted

struct FlowEnd {
  double bytes_per_second = 0;  // the receiver's; 0 for a sender
  double busy = 0;              // of this end; a receiver adds the sender's, and gives at most 1
};
// The sender sends for kFlowTime, says how busy it was, and ends its half of the connection.
Result<FlowEnd> send_flow(int socket, Deadline deadline);
Result<FlowEnd> receive_flow(int socket, Deadline deadline);

}  // namespace tutti::tools::doctor
