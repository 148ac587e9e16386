#pragma once
// Meeting: how the doctors of a job find each other, by plain sockets at the address where the ranks would meet. Rank 0
// listens, all others call. The collective library takes no part: the point is to say why it does not start.
#include <functional>
#include <map>
#include <optional>

#include "tools/doctor/channel.h"
#include "tools/doctor/examination.h"

namespace tutti::tools::doctor {

struct MeetingPlace {
  std::vector<std::string> addresses;  // "host:port", any of them
  comm::JobKey key;
};

// Of rank 0. The first error: the port is taken (by whom), not an address of this host, nothing resolves.
Result<std::vector<Descriptor>> open_meeting(const MeetingPlace& place);

// Those who came, by rank.
struct Gathered {
  std::map<int, Channel> channels;
  std::map<int, Facts> facts;
  std::vector<std::string> strangers;  // address and what was wrong with it
};
// Until all ranks but 0 have come, the deadline, or a byte at `stop` (-1: none).
Gathered gather(const std::vector<Descriptor>& listeners, const MeetingPlace& place, int rank_count, Deadline deadline,
                int stop);

// Of the other ranks: calls until someone answers or the deadline. `attempts` tells of the last round, for why_not().
struct Call {
  std::optional<Channel> channel;
  Lookup lookup;  // of the first address's host
  std::vector<Attempt> attempts;
};
Call call_meeting(const MeetingPlace& place, Deadline deadline);
// What a rank says that cannot reach rank 0.
std::vector<Finding> why_not(const Call& call, const Facts& own);

}  // namespace tutti::tools::doctor
