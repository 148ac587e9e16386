#include "comm/straight_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/tell_all.h"

namespace tutti::comm {
namespace {

struct Offer {
  char why_not[400] = {};          // "": its devices reach its GPU; it has what collectives need
  bool willing() const { return why_not[0] == 0; }
};
Offer offer(const Status& can, const char* else_why) {
  Offer out;
  if (!can.ok()) std::strncpy(out.why_not, can.text().empty() ? else_why : can.text().c_str(), sizeof out.why_not - 1);
  return out;
}
// The first that is not willing; "": all are.
std::string refusal_of(const std::vector<Offer>& offers) {
  const auto first = std::find_if(offers.begin(), offers.end(), [](const Offer& o) { return !o.willing(); });
  return first == offers.end() ? "" : fmt::format("rank {}: {}", first - offers.begin(), first->why_not);
}
struct Row {
  std::uint64_t by_rdma = 0;       // bits: ranks
};

// They are connected afterwards.
Status meet(Member& member, const std::vector<Offer>& offers) {
  const Rank self{member.rank(), member.rank_count()};
  std::vector<std::byte> bytes(offers.size());
  std::vector<Work> works;
  for (int r = 0; r < self.count; ++r) {
    if (r == self.rank || !offers[std::size_t(r)].willing()) continue;
    auto to = prepare(Send{&bytes[std::size_t(self.rank)], 1, DataType::u8, r}, self);
    auto from = prepare(Recv{&bytes[std::size_t(r)], 1, DataType::u8, r}, self);
    if (!to || !from) return to ? from.status() : to.status();
    works.push_back(member.start_pair(Collective::recv, std::move(*from), r));
    works.push_back(member.start_pair(Collective::send, std::move(*to), r));
  }
  Status first;
  for (Work& work : works)      // all: they know this memory
    if (Status status = work.wait(); first.ok()) first = status;
  return first;
}

Row row_of(Member& member, const std::vector<Offer>& offers) {
  Row row;
  auto held = member.engine()->lock();
  for (std::size_t r = 0; r < offers.size(); ++r) {
    const Wire& wire = member.wires()[r];
    if (offers[r].willing() && wire.transport && wire.transport->name() == "rdma") row.by_rdma |= std::uint64_t(1) << r;
  }
  return row;
}

}  // namespace

Result<StraightRanks> StraightRanks::agree(const std::shared_ptr<Device>& device, const std::string& no_device, Member& member, const std::function<Status()>& reserve) {
  StraightRanks out;
  const Settings& settings = member.engine()->settings();
  const int ranks = member.rank_count();
  const bool by_memory = settings.transport == "auto" && member.local_rank_count() == ranks;
  if (ranks == 1 || by_memory || settings.transport == "tcp" || settings.transport == "shm" || settings.encrypt) return out;
  if (ranks > kMost) {
    out.text_ = fmt::format("GPUDirect RDMA serves {} ranks, these are {}", kMost, ranks);
    return out;
  }
  Status reach(Code::unsupported, no_device);
  if (device) {
    auto held = member.engine()->lock();
    reach = member.engine()->use_gpu(device);
  }
  const Offer mine = offer(reach, "no GPU");
  const auto offers = tell_all(member, mine);
  if (!offers) return offers.status();
  Row row;
  if (mine.willing()) {
    if (Status met = meet(member, *offers); !met.ok()) return met;
    row = row_of(member, *offers);
  }
  const auto rows = tell_all(member, row);
  if (!rows) return rows.status();

  int found = 0;
  const int pairs = ranks * (ranks - 1) / 2;
  std::string why = refusal_of(*offers);
  const auto straight = [&](int a, int b) { return a != b && ((*rows)[std::size_t(a)].by_rdma >> b & 1) && ((*rows)[std::size_t(b)].by_rdma >> a & 1); };
  for (int r = 0; r < ranks; ++r) out.with_.push_back(straight(member.rank(), r));
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      if (straight(a, b)) ++found;
      else if (why.empty()) why = fmt::format("ranks {} and {} are not connected by RDMA", a, b);
    }
  }
  out.any_ = found > 0;
  if (found == pairs) {
    const auto reserved = tell_all(member, offer(reserve(), "no memory"));
    if (!reserved) return reserved.status();
    why = refusal_of(*reserved);
    out.all_ = why.empty();
  }
  if (out.all_) out.text_ = "straight between the memory of the GPUs by GPUDirect RDMA: sends, receives and collectives";
  else if (out.any_) out.text_ = fmt::format("straight between the memory of the GPUs by GPUDirect RDMA: sends and receives of {} of {} pairs of ranks; all else through the host's memory: {}", found, pairs, why);
  else out.text_ = "GPUDirect RDMA " + why;
  return out;
}

}  // namespace tutti::comm
