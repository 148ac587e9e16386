// Rings: each rank sends to one neighbour and hears from the other. Bandwidth-optimal for large vectors, p-1 rounds a
// half. Where ranks lie in groups, the ring goes through group after group, so that it crosses their borders the fewest
// times. Channels: every slice has a ring of its own. One by one they go the other way round, and every second one
// enters and leaves the outermost groups (hosts) by other members, so that each of a host's network cards has a ring.
#include <algorithm>
#include <numeric>

#include "algorithms/borders.h"
#include "algorithms/families.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {
namespace {

// One rank on one ring: data moves by `way` (+1 or -1) and concerns one slice of each block. Places on the ring are
// numbered; `order` says who sits there (empty: the rank of that number), so that groups sit together.
struct Track {
  const Request& request;
  std::vector<int> order;
  int place, way, slices, slice;

  int rank_count() const { return request.rank_count; }
  int at(int where) const {
    return order.empty() ? wrap(where, rank_count()) : order[std::size_t(wrap(where, rank_count()))];
  }
  int next() const { return at(place + way); }
  int prev() const { return at(place - way); }
  int block(int hops_back) const { return at(place - way * hops_back); }
  int chunk(int hops_back) const { return block(hops_back) * slices + slice; }
};

// Round k of p-1: the block that started k hops back goes on, the one behind it comes in and is added to. Whole at hop
// p-1 = -1.
void all_reduce_round(const Track& at, int k, Schedule& out) {
  const int last = at.rank_count() - 2;
  out.steps.push_back(send(k == 0 ? input(at.chunk(0)) : output(at.chunk(k)), at.next()));
  out.steps.push_back(recv_reduce(output(at.chunk(k + 1)), input(at.chunk(k + 1)), {at.prev()}, k == last));
}

// The whole blocks go around: round k passes on the one that is complete k hops back.
void pass_round(const Track& at, int k, Schedule& out) {
  out.steps.push_back(send(output(at.chunk(k - 1)), at.next()));
  out.steps.push_back(recv(output(at.chunk(k)), at.prev()));
}

// Partial sums wait in scratch, one place a round; the last one is this rank's own block.
void reduce_scatter_round(const Track& at, int k, Schedule& out, int& previous) {
  const int last = at.rank_count() - 2;
  out.steps.push_back(send(k == 0 ? input(at.chunk(1)) : scratch(previous), at.next()));
  Chunks target = output(at.slice);
  if (k < last) {
    previous = int(out.scratch.size());
    out.scratch.push_back(std::uint32_t(at.chunk(k + 2)));
    target = scratch(previous);
  }
  out.steps.push_back(recv_reduce(target, input(at.chunk(k + 2)), {at.prev()}, k == last));
}

void all_gather_round(const Track& at, int k, Schedule& out) {
  out.steps.push_back(send(k == 0 ? input(at.slice) : output(at.chunk(k)), at.next()));
  out.steps.push_back(recv(output(at.chunk(k + 1)), at.prev()));
}

// The order of the channel-th ring: within each outermost group, turned by its share of the group.
std::vector<int> channel_order(const Request& request, int channel, int channels) {
  std::vector<int> order = nested_order(request);
  const int turn = channel / 2, turns = (channels + 1) / 2;
  if (turn == 0 || request.levels.empty()) return order;
  if (order.empty()) {
    order.resize(std::size_t(request.rank_count));
    std::iota(order.begin(), order.end(), 0);
  }
  const auto group = [&](auto at) { return request.levels[0][std::size_t(*at)]; };
  for (auto first = order.begin(), end = first; first != order.end(); first = end) {
    end = std::find_if(first, order.end(),
                       [&](int rank) { return request.levels[0][std::size_t(rank)] != group(first); });
    std::rotate(first, first + (end - first) * turn / turns, end);
  }
  return order;
}

class Ring final : public Family {
 public:
  explicit Ring(int least) : least_(least) {}
  std::string_view name() const override { return least_ == 1 ? "ring" : "bidirectional_ring"; }
  std::string_view source() const override {
    return "Patarasuk, Yuan: Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations (2009), 3";
  }
  std::string_view best_when() const override {
    return least_ == 1 ? "large vectors, one neighbour at a time"
                        : "large vectors where both directions of a ring have links of their own";
  }

  Cost cost(const Request& request) const override {
    const int p = request.rank_count;
    const double part = double(p - 1) / p;
    const int slices = channels(request);
    switch (request.collective) {
      case Collective::all_reduce: return {2 * (p - 1), 2 * part, 2 * part, 2 * part, slices * 2 * (p - 1)};
      case Collective::reduce_scatter: return {p - 1, part, part, 2 * part, slices * (p - 1)};
      default: return {p - 1, part, part, 0, slices * (p - 1)};
    }
  }

  std::vector<Border> borders(const Request& request) const override {
    const int p = request.rank_count, rounds = request.collective == Collective::all_reduce ? 2 * (p - 1) : p - 1;
    const int slices = channels(request);
    if (slices > 2) return Family::borders(request);
    return along_ring(request, double(rounds) / p / slices, rounds, slices == 2);
  }

  Schedule generate(const Request& request, int rank) const override {
    const int p = request.rank_count;
    Schedule out;
    out.blocks = std::uint32_t(p);
    const int slices = channels(request);
    out.slices = std::uint32_t(slices);
    std::vector<Track> tracks;
    for (int t = 0; t < slices; ++t) {
      std::vector<int> order = channel_order(request, t, slices);
      const int place = order.empty() ? rank : int(std::find(order.begin(), order.end(), rank) - order.begin());
      tracks.push_back({request, std::move(order), place, t % 2 ? -1 : 1, slices, t});
    }
    std::vector<int> previous(tracks.size());
    for (int k = 0; k < p - 1; ++k) {
      for (int t = 0; t < slices; ++t) {
        if (request.collective == Collective::all_reduce) all_reduce_round(tracks[std::size_t(t)], k, out);
        if (request.collective == Collective::reduce_scatter)
          reduce_scatter_round(tracks[std::size_t(t)], k, out, previous[std::size_t(t)]);
        if (request.collective == Collective::all_gather) all_gather_round(tracks[std::size_t(t)], k, out);
      }
    }
    if (request.collective == Collective::all_reduce) {
      for (int k = 0; k < p - 1; ++k) {
        for (int t = 0; t < slices; ++t) pass_round(tracks[std::size_t(t)], k, out);
      }
    }
    if (request.collective == Collective::all_gather && !request.in_place) {
      out.steps.push_back(copy(output(rank * slices, slices), input(0, slices)));
    }
    return out;
  }

  bool canonical(const Request& request) const override {   // two operands make one tree
    return Family::canonical(request) || request.rank_count == 2;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    if (least_ == 2 && request.rank_count == 2) return "with two ranks both directions are one: ring";
    switch (request.collective) {
      case Collective::all_reduce:
      case Collective::reduce_scatter:
      case Collective::all_gather: return {};
      default: return "a ring serves all_reduce, reduce_scatter and all_gather";
    }
  }

  int channels(const Request& request) const { return std::max(least_, request.channels); }

  int least_;
};

}  // namespace

const Generator& ring() {
  static const Ring generator(1);
  return generator;
}
const Generator& bidirectional_ring() {
  static const Ring generator(2);
  return generator;
}

}  // namespace tutti::algorithms
