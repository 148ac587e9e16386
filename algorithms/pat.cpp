// PAT, parallel aggregated trees: one binomial tree a block, all shifted copies of one, their messages of a round sent
// as one. Far distances come first, while there is little to send (in all_gather; reduce_scatter runs backwards),
// unlike Bruck. This is the fully aggregated form, ceil(log2 p) rounds with a buffer of p blocks; it has no linear
// phase for smaller buffers.
#include "algorithms/families.h"
#include "algorithms/rounds.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {
namespace {

// The buffer lists blocks by how far they have come. Before the round of distance d it lists the multiples of 2d below
// p, the largest one last; only that one may have nowhere left to go. So what leaves is one run, and what comes is put
// after the list if it holds the new largest, and before it if not.
struct Round {
  int distance;
  int sent;   // first place and count of what leaves, the same on every rank
  int received;
  int count;
};

struct Layout {
  std::vector<Round> rounds;
  std::vector<int> offset;   // by place: the block there is that of the rank `offset` before this one
  int own = 0;               // the place of offset 0
};

Layout layout_of(int p) {
  Layout out;
  std::vector<int> list{0};
  int front = 0;   // places that were put before the first one so far; shifts the places of earlier rounds at the end
  for (int distance = 1 << (log2_ceil(p) - 1); distance >= 1; distance /= 2) {
    const bool grows = list.back() + distance < p;
    const int size = int(list.size()), count = grows ? size : size - 1;
    if (count > 0) {
      std::vector<int> come(list.begin(), list.begin() + count);
      for (int& offset : come) offset += distance;
      list.insert(grows ? list.end() : list.begin(), come.begin(), come.end());
      out.rounds.push_back({distance, -front, grows ? size - front : -front - count, count});
      if (!grows) front += count;
    }
  }
  for (Round& round : out.rounds) {
    round.sent += front;
    round.received += front;
  }
  out.own = front;
  out.offset = std::move(list);
  return out;
}

Schedule pat_all_gather(const Request& request, int rank) {
  const int p = request.rank_count;
  const Layout layout = layout_of(p);
  Schedule out;
  for (int offset : layout.offset) out.scratch.push_back(std::uint32_t(wrap(rank - offset, p)));
  for (std::size_t i = 0; i < layout.rounds.size(); ++i) {
    const Round& round = layout.rounds[i];
    out.steps.push_back(send(i == 0 ? input(0) : scratch(round.sent, round.count), wrap(rank + round.distance, p)));
    out.steps.push_back(recv(scratch(round.received, round.count), wrap(rank - round.distance, p)));
    if (i == 0) out.steps.push_back(copy(scratch(layout.own), input(0)));
  }
  for (int place = 0; place < p; ++place) {
    if (place != layout.own)
      out.steps.push_back(copy(output(wrap(rank - layout.offset[std::size_t(place)], p)), scratch(place)));
  }
  if (!request.in_place) out.steps.push_back(copy(output(rank), input(0)));
  return out;
}

Schedule pat_reduce_scatter(const Request& request, int rank) {
  const int p = request.rank_count;
  const Layout layout = layout_of(p);
  Schedule out;
  for (int offset : layout.offset) {
    const int block = wrap(rank - offset, p), place = int(out.scratch.size());
    out.scratch.push_back(std::uint32_t(block));
    out.steps.push_back(copy(scratch(place), input(block)));
  }
  for (std::size_t i = layout.rounds.size(); i-- > 0;) {
    const Round& round = layout.rounds[i];
    const Chunks stays = scratch(round.sent, round.count);
    out.steps.push_back(send(scratch(round.received, round.count), wrap(rank - round.distance, p)));
    out.steps.push_back(recv_reduce(i == 0 ? output(0) : stays, stays, {wrap(rank + round.distance, p)}, i == 0));
  }
  return out;
}

Rounds rounds_of(const Request& request) {
  const int p = request.rank_count;
  const Layout layout = layout_of(p);
  const std::size_t count = layout.rounds.size();
  Rounds rounds;
  for (std::size_t i = 0; i < count; ++i) {
    const bool adds = request.collective == Collective::reduce_scatter;
    const Round& round = layout.rounds[adds ? count - 1 - i : i];
    rounds.add(around_by(adds ? -round.distance : round.distance, p), double(round.count) / p,
               adds ? round.received : round.sent, adds ? round.sent : round.received, round.count);
  }
  return rounds;
}

class Pat final : public Family {
 public:
  std::string_view name() const override { return "pat"; }
  std::string_view source() const override {
    return "Jeaugey: PAT, a new algorithm for all-gather and reduce-scatter operations at scale (2025)";
  }
  std::string_view best_when() const override {
    return "small blocks among many ranks where far links are the slow ones";
  }
  bool canonical(const Request& request) const override {
    return Family::canonical(request) || request.rank_count == 2;
  }
  Cost cost(const Request& request) const override {
    const int p = request.rank_count, rounds = log2_ceil(p);
    const double part = double(p - 1) / p;
    if (request.collective == Collective::all_gather) return {doubling_chain(p), part, part, 0, rounds};
    return {rounds, part, part, 2 * part, rounds};
  }
  std::vector<Border> borders(const Request& request) const override { return rounds_of(request).borders(request); }

  Schedule generate(const Request& request, int rank) const override {
    Schedule out = request.collective == Collective::all_gather ? pat_all_gather(request, rank)
                                                                : pat_reduce_scatter(request, rank);
    out.blocks = std::uint32_t(request.rank_count);
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    const bool serves =
        request.collective == Collective::all_gather || request.collective == Collective::reduce_scatter;
    return serves ? "" : "serves all_gather and reduce_scatter";
  }
};

}  // namespace

const Generator& pat() {
  static const Pat generator;
  return generator;
}

}  // namespace tutti::algorithms
