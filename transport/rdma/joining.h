#pragma once
// What two ranks say to each other over a socket before they can use RDMA: what each offers, where its queue pairs are, whether it worked.
// Values and frames; who does what with them is the transport's business. Knows no verbs.
#include <span>
#include <string>
#include <vector>

#include "core/task.h"
#include "transport/rdma/fabric.h"

namespace tutti::transport::rdma {

inline constexpr std::chrono::seconds kJoinLimit{20};

struct Proposal {
  Offer offer;                  // empty: this rank cannot
  std::uint32_t queues = 1;     // for each rail; the smaller number counts
  std::string why_not;
};
std::vector<std::byte> encode(const Proposal& proposal);
Result<Proposal> decode_proposal(std::span<const std::byte> bytes);

// One frame. network, timeout.
Task<Status> send_frame(Loop& loop, Stream& stream, std::vector<std::byte> bytes, TimePoint deadline);
Task<Result<std::vector<std::byte>>> receive_frame(Loop& loop, Stream& stream, TimePoint deadline);
// Sends one frame and reads one.
Task<Result<std::vector<std::byte>>> exchange(Loop& loop, Stream& stream, std::vector<std::byte> own, TimePoint deadline);
// Whether both sides are content: own failure, or else the peer's as its text. `broken`: the socket failed.
Task<Status> agree(Loop& loop, Stream& stream, Status own, TimePoint deadline, bool& broken);

}  // namespace tutti::transport::rdma
