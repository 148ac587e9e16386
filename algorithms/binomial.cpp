// Binomial trees and what is built on them. Blocks of 2^k neighbouring ranks merge with the block beside them; a block
// is held by the root if it has it, else by its first rank. So blocks stay runs of ranks whatever the root is, and sums
// are canonical.
#include "algorithms/borders.h"
#include "algorithms/families.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {
namespace {

struct Run {
  int first = 0, count = 0;
};

struct Branch {
  int rank = 0;   // who holds it
  Run run;        // the ranks in it
};

struct Place {
  int parent = -1;
  Run run;                        // the ranks in the block that this rank holds
  std::vector<Branch> children;   // the blocks that merge into it, small ones first
};

Place place_of(int rank, int rank_count, int root) {
  Place place{.parent = -1, .run = {rank, 1}, .children = {}};
  const auto run_at = [&](int base, int size) { return Run{base, std::min(size, rank_count - base)}; };
  const auto has_root = [&](const Run& run) { return root >= run.first && root < run.first + run.count; };
  for (int size = 1; size < rank_count; size *= 2) {
    const int mine = rank & ~(size - 1), beside = mine ^ size;
    if (beside >= rank_count) continue;
    const Run other = run_at(beside, size);
    const int holder = has_root(other) ? root : other.first;
    const bool yields = has_root(other) || (beside < mine && !has_root(place.run));
    if (yields) {
      place.parent = holder;
      return place;
    }
    place.children.push_back({holder, other});
    place.run = run_at(std::min(mine, beside), 2 * size);
  }
  return place;
}

std::vector<int> largest_first(const std::vector<Branch>& children) {
  std::vector<int> ranks;
  for (auto child = children.rbegin(); child != children.rend(); ++child) ranks.push_back(child->rank);
  return ranks;
}

// The longest way from the root, in messages: whatever merges into the other half of a full block is one further away.
int depth(int rank_count, int root) {
  const int rounds = log2_ceil(rank_count);
  const bool full = rank_count == 1 << rounds;
  return full || root >= 1 << (rounds - 1) ? rounds : rounds - 1;
}

// The most messages that one rank sends in a broadcast or scatter: the root, or who holds the full half without it.
int most_children(const Request& request) {
  const int root_has = int(place_of(request.root, request.rank_count, request.root).children.size());
  return std::max(root_has, log2_ceil(request.rank_count) - 1);
}

Schedule binomial_broadcast(const Request& request, int rank) {
  const Place place = place_of(rank, request.rank_count, request.root);
  Schedule out;
  if (place.parent >= 0) out.steps.push_back(recv(output(0), place.parent));
  if (!place.children.empty()) {
    out.steps.push_back(send(place.parent < 0 ? input(0) : output(0), largest_first(place.children)));
  }
  if (place.parent < 0 && !request.in_place) out.steps.push_back(copy(output(0), input(0)));
  return out;
}

Schedule binomial_reduce(const Request& request, int rank) {
  const Place place = place_of(rank, request.rank_count, request.root);
  const bool top = place.parent < 0;
  Schedule out;
  Chunks sum = input(0);
  for (std::size_t i = 0; i < place.children.size(); ++i) {
    const Chunks target = top ? output(0) : scratch(0);
    out.steps.push_back(recv_reduce(target, sum, {place.children[i].rank}, top && i + 1 == place.children.size()));
    sum = target;
  }
  if (sum.space == Space::scratch) out.scratch = {0};
  if (!top) out.steps.push_back(send(sum, place.parent));
  return out;
}

// The blocks of the ranks in a run, in scratch of a rank between root and leaves.
void scratch_for(const Run& run, Schedule& out) {
  for (int i = 0; i < run.count; ++i) out.scratch.push_back(std::uint32_t(run.first + i));
}

Schedule binomial_gather(const Request& request, int rank) {
  const Place place = place_of(rank, request.rank_count, request.root);
  Schedule out;
  if (place.children.empty()) {
    out.steps.push_back(send(input(0), place.parent));
    return out;
  }
  const bool top = place.parent < 0;
  if (!top) scratch_for(place.run, out);
  const auto at = [&](int first, int count) {
    return top ? output(first, count) : scratch(first - place.run.first, count);
  };
  for (const Branch& child : place.children)
    out.steps.push_back(recv(at(child.run.first, child.run.count), child.rank));
  if (!top || !request.in_place) out.steps.push_back(copy(at(rank, 1), input(0)));
  if (!top) out.steps.push_back(send(scratch(0, place.run.count), place.parent));
  return out;
}

Schedule binomial_scatter(const Request& request, int rank) {
  const Place place = place_of(rank, request.rank_count, request.root);
  Schedule out;
  if (place.children.empty()) {
    out.steps.push_back(recv(output(0), place.parent));
    return out;
  }
  const bool top = place.parent < 0;
  if (!top) {
    scratch_for(place.run, out);
    out.steps.push_back(recv(scratch(0, place.run.count), place.parent));
  }
  const auto at = [&](int first, int count) {
    return top ? input(first, count) : scratch(first - place.run.first, count);
  };
  for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
    out.steps.push_back(send(at(child->run.first, child->run.count), child->rank));
  }
  if (!top || !request.in_place) out.steps.push_back(copy(output(0), at(rank, 1)));
  return out;
}

class Binomial final : public Family {
 public:
  std::string_view name() const override { return "binomial"; }
  std::string_view source() const override {
    return "folklore; Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH "
           "(2005), 4";
  }
  std::string_view best_when() const override {
    return "small vectors among many ranks, where one rank cannot serve all at once";
  }
  bool canonical(const Request&) const override { return true; }

  Cost cost(const Request& request) const override {
    const int p = request.rank_count, rounds = log2_ceil(p), children = most_children(request);
    const double part = double(p - 1) / p;
    switch (request.collective) {
      case Collective::broadcast: return {depth(p, request.root), double(children), 1, 0, children};
      case Collective::reduce: return {rounds, 1, 1, 2.0 * children, 1};
      case Collective::scatter: return {depth(p, request.root), part, part, 0, children};
      default: break;
    }
    int largest = 0;   // gather: of the blocks that the root is sent
    for (const Branch& child : place_of(request.root, p, request.root).children)
      largest = std::max(largest, child.run.count);
    return {depth(p, request.root), double(largest) / p, double(largest) / p, 0, 1};
  }

  Schedule generate(const Request& request, int rank) const override {
    switch (request.collective) {
      case Collective::broadcast: return binomial_broadcast(request, rank);
      case Collective::reduce: return binomial_reduce(request, rank);
      default: break;
    }
    Schedule out =
        request.collective == Collective::gather ? binomial_gather(request, rank) : binomial_scatter(request, rank);
    out.blocks = std::uint32_t(request.rank_count);
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    switch (request.collective) {
      case Collective::broadcast:
      case Collective::reduce:
      case Collective::gather:
      case Collective::scatter: return {};
      default: return "serves broadcast, reduce, gather and scatter";
    }
  }
};

// Broadcast of large vectors: the root deals out blocks, a ring gathers them. Ranks keep the runs that they were dealt
// in output.
class ScatterAllGather final : public Family {
 public:
  std::string_view name() const override { return "scatter_all_gather"; }
  std::string_view source() const override {
    return "van de Geijn; Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH "
           "(2005), 4.2";
  }
  std::string_view best_when() const override { return "broadcasts of large vectors without multicast"; }

  Cost cost(const Request& request) const override {
    const int p = request.rank_count;
    const double sent = 2.0 * (p - 1) / p;
    return {depth(p, request.root) + p - 1, sent, sent, 0, most_children(request) + p - 1};
  }

  std::vector<Border> borders(const Request& request) const override {
    const int p = request.rank_count;
    Traffic traffic(request);
    std::vector<Hops> edges;   // to the next rank
    std::vector<Place> places;
    Hops loop = 0;
    for (int rank = 0; rank < p; ++rank) {
      places.push_back(place_of(rank, p, request.root));
      for (const Branch& child : places.back().children)
        traffic.add(rank, border_between(request, rank, child.rank), double(child.run.count) / p);
      const int border = border_between(request, rank, wrap(rank + 1, p));
      traffic.add(rank, border, double(p - 1) / p, p - 1);
      edges.push_back(hop_over(border));
      loop += edges.back();
    }
    // A block goes around from where it was dealt to, along all edges but the last.
    Hops most = 0;
    for (int rank = 0; rank < p; ++rank) {
      Hops chain = loop - edges[std::size_t(wrap(rank - 1, p))];
      for (int at = rank; places[std::size_t(at)].parent >= 0; at = places[std::size_t(at)].parent)
        chain += hop_over(border_between(request, at, places[std::size_t(at)].parent));
      most = std::max(most, chain);
    }
    return traffic.borders(most);
  }

  Schedule generate(const Request& request, int rank) const override {
    const int p = request.rank_count;
    const Place place = place_of(rank, p, request.root);
    const bool top = place.parent < 0;
    Schedule out;
    out.blocks = std::uint32_t(p);
    if (!top) out.steps.push_back(recv(output(place.run.first, place.run.count), place.parent));
    for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
      const int first = child->run.first, count = child->run.count;
      out.steps.push_back(send(top ? input(first, count) : output(first, count), child->rank));
    }
    if (top && !request.in_place) out.steps.push_back(copy(output(rank), input(rank)));
    for (int k = 0; k < p - 1; ++k) {
      const int block = wrap(rank - k, p);
      out.steps.push_back(send(top && k == 0 ? input(block) : output(block), wrap(rank + 1, p)));
      out.steps.push_back(recv(output(wrap(block - 1, p)), wrap(rank - 1, p)));
    }
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    return request.collective == Collective::broadcast ? "" : "is a broadcast only";
  }
};

}  // namespace

const Generator& binomial() {
  static const Binomial generator;
  return generator;
}
const Generator& scatter_all_gather() {
  static const ScatterAllGather generator;
  return generator;
}

}  // namespace tutti::algorithms
