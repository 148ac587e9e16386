// Hierarchical collectives over groups in groups: what crosses a border between groups crosses it once a group.
//
// Blocks: at each level the members of a group share out all blocks (see nest.h). all_gather goes from level 0, where
// everybody has the own block, inwards: who has a run sends it to who shall have it in each part of the group. In the
// end everybody has all. reduce_scatter goes the same way outwards, adding up; all_reduce out and in again. So all
// members of a group work across its border, each for its share, whatever the sizes of the groups. Vectors: broadcast
// and reduce pass through one rank a group, the root or the first one.
#include "algorithms/families.h"
#include "algorithms/nest.h"
#include "algorithms/nest_count.h"
#include "algorithms/steps.h"
#include "algorithms/sums.h"

namespace tutti::algorithms {
namespace {

// One rank's steps for blocks. `sum_at(level, run)` names the chunks where this rank keeps its group's sum of a run.
class Blocks {
 public:
  Blocks(const Request& request, const Nest& nest, int rank, Schedule& out)
      : request_(request), nest_(nest), rank_(rank), out_(out), tops_(nest.parts(0, rank)) {}

  // From every rank alone to level 0.
  void add_up() {
    base_.assign(std::size_t(nest_.last_level()) + 1, 0);
    for (int level = nest_.last_level() - 1; level > 0 && !whole(); --level) {
      if (divided_from(level) != level) continue;
      base_[std::size_t(level)] = int(out_.scratch.size());
      const Nest::Run share = nest_.share(level, rank_);
      for (int block = share.first; block < share.end; ++block) out_.scratch.push_back(std::uint32_t(block));
    }
    for (int level = nest_.last_level() - 1; level >= 0; --level) add_up_to(level);
  }

  // From level 0 to every rank alone.
  void spread() {
    for (int level = 0; level < nest_.last_level(); ++level) {
      spread_from(level);
      if (level == 0 && !whole() && !request_.in_place) out_.steps.push_back(copy(output(rank_), input(0)));
    }
  }

 private:
  bool whole() const { return request_.collective == Collective::all_reduce; }   // the output has room for all blocks

  // Who has a block in the whole group of a level. Where the collective does not say who gets which block in the end,
  // the outermost groups take turns, and in each the one who has the block already: no hop inside a group.
  int holder(int level, int block) const {
    if (level > 0 || !whole()) return nest_.holder(nest_.group(level, rank_), block);
    return nest_.holder(*tops_[std::size_t(block) % tops_.size()], block);
  }

  // Pieces in the order of sending and receiving: everybody begins behind itself. What goes to one rank, or comes from
  // one, stays in order.
  std::vector<Nest::Run> turned(int level) const {
    std::vector<Nest::Run> pieces = nest_.pieces(level, rank_);
    const int groups = int(tops_.size()),
              mine = int(std::find(tops_.begin(), tops_.end(), &nest_.group(1, rank_)) - tops_.begin());
    if (level == 0 && whole()) {
      std::stable_sort(pieces.begin(), pieces.end(), [&](const Nest::Run& a, const Nest::Run& b) {
        return wrap(a.first - mine, groups) < wrap(b.first - mine, groups);
      });
    } else {
      const auto own = [&](const Nest::Run& run) { return holder(level, run.first) == rank_; };
      std::rotate(pieces.begin(), std::find_if(pieces.begin(), pieces.end(), own), pieces.end());
    }
    return pieces;
  }

  // The innermost level with this same group: groups beside it may be divided further than this rank's.
  int divided_from(int level) const {
    while (level < nest_.last_level() && nest_.group(level, rank_).size() == nest_.group(level + 1, rank_).size())
      ++level;
    return level;
  }

  Chunks sum_at(int level, const Nest::Run& run) const {
    const int count = run.end - run.first;
    level = divided_from(level);
    if (level == nest_.last_level()) return input(run.first, count);
    if (whole()) return output(run.first, count);
    if (level == 0) return output(0);
    return scratch(base_[std::size_t(level)] + run.first - nest_.share(level, rank_).first, count);
  }

  // Sums of the parts of this rank's group at `level`, held at level + 1, go to who has the block in the group.
  void add_up_to(int level) {
    const std::vector<int>& part = nest_.group(level + 1, rank_);
    const auto parts = nest_.parts(level, rank_);
    if (parts.size() == 1) return;
    const std::vector<Nest::Run> pieces = turned(level);
    for (const Nest::Run& run : pieces) {
      const int to = holder(level, run.first);
      if (to != rank_ && nest_.holder(part, run.first) == rank_) out_.steps.push_back(send(sum_at(level + 1, run), to));
    }
    for (const Nest::Run& run : pieces) {
      if (holder(level, run.first) != rank_) continue;
      std::vector<int> senders;
      for (const std::vector<int>* from : parts) senders.push_back(nest_.holder(*from, run.first));
      const auto self = std::find(senders.begin(), senders.end(), rank_);
      const bool has_own = self != senders.end();
      if (has_own) senders.erase(self);
      out_.steps.push_back(
          recv_reduce(sum_at(level, run), has_own ? sum_at(level + 1, run) : nothing(), senders, level == 0));
    }
  }

  void spread_from(int level) {
    const std::vector<int>& part = nest_.group(level + 1, rank_);
    const std::vector<Nest::Run> pieces = turned(level);
    for (const Nest::Run& run : pieces) {
      if (holder(level, run.first) != rank_) continue;
      std::vector<int> receivers;
      for (const std::vector<int>* to : nest_.parts(level, rank_)) {
        if (nest_.holder(*to, run.first) != rank_) receivers.push_back(nest_.holder(*to, run.first));
      }
      std::sort(receivers.begin(), receivers.end());
      std::rotate(receivers.begin(), std::upper_bound(receivers.begin(), receivers.end(), rank_), receivers.end());
      const bool from_input = level == 0 && !whole();
      const Chunks source = from_input ? input(0) : output(run.first, run.end - run.first);
      if (!receivers.empty()) out_.steps.push_back(send(source, receivers));
    }
    for (const Nest::Run& run : pieces) {
      const int from = holder(level, run.first);
      if (from != rank_ && nest_.holder(part, run.first) == rank_) {
        out_.steps.push_back(recv(output(run.first, run.end - run.first), from));
      }
    }
  }

  const Request& request_;
  const Nest& nest_;
  int rank_;
  Schedule& out_;
  std::vector<const std::vector<int>*> tops_;   // the outermost groups
  std::vector<int> base_;                       // by level: the first scratch place of its sums
};

std::vector<int> other_speakers(const Nest& nest, int level, int rank, int root) {
  std::vector<int> out;
  for (const std::vector<int>* part : nest.parts(level, rank)) {
    if (Nest::speaker(*part, root) != rank) out.push_back(Nest::speaker(*part, root));
  }
  return out;
}

void append_broadcast(const Request& request, const Nest& nest, int rank, Schedule& out) {
  for (int level = 0; level < nest.last_level(); ++level) {
    const int source = Nest::speaker(nest.group(level, rank), request.root);
    if (source == rank) {
      const std::vector<int> receivers = other_speakers(nest, level, rank, request.root);
      if (!receivers.empty()) out.steps.push_back(send(rank == request.root ? input(0) : output(0), receivers));
    } else if (Nest::speaker(nest.group(level + 1, rank), request.root) == rank) {
      out.steps.push_back(recv(output(0), source));
    }
  }
  if (rank == request.root && !request.in_place) out.steps.push_back(copy(output(0), input(0)));
}

void append_reduce(const Request& request, const Nest& nest, int rank, Schedule& out) {
  Chunks sum = input(0);
  for (int level = nest.last_level() - 1; level >= 0; --level) {
    const int target = Nest::speaker(nest.group(level, rank), request.root);
    if (target != rank) {
      out.steps.push_back(send(sum, target));
      return;
    }
    const std::vector<int> senders = other_speakers(nest, level, rank, request.root);
    if (senders.empty()) continue;
    const Chunks next = rank == request.root ? output(0) : scratch(0);
    if (next.space == Space::scratch) out.scratch = {0};
    out.steps.push_back(recv_reduce(next, sum, senders, level == 0));
    sum = next;
  }
}

// The tree that a group's sum of one block gets; `of` says which member of a part brings it.
template <class Of>
std::uint32_t tree_of(const Nest& nest, int level, int rank, std::uint32_t block, Sums& sums, const Of& of) {
  if (level == nest.last_level()) return sums.leaf(std::uint32_t(rank), block);
  std::vector<std::pair<int, std::uint32_t>> operands;
  for (const std::vector<int>* part : nest.parts(level, rank)) {
    operands.emplace_back(of(*part, int(block)), tree_of(nest, level + 1, part->front(), block, sums, of));
  }
  std::sort(operands.begin(), operands.end());
  std::vector<std::uint32_t> values;
  for (const auto& operand : operands) values.push_back(operand.second);
  return sums.tree(values);
}

class Hierarchical final : public Family {
 public:
  std::string_view name() const override { return "hierarchical"; }
  std::string_view source() const override {
    return "Traeff, Hunold: Decomposing Collectives for Exploiting Multi-lane Communication (2020), for any groups";
  }
  std::string_view best_when() const override {
    return "several hosts or NUMA nodes: slow borders are crossed once a group";
  }

  bool canonical(const Request& request) const override {
    if (Family::canonical(request)) return true;
    const Nest nest(request);
    Sums sums(request.rank_count);
    const bool vector = request.collective == Collective::reduce;
    const int blocks = vector || nest.in_order() ? 1 : request.rank_count;
    for (int block = 0; block < blocks; ++block) {
      const std::uint32_t tree =
          tree_of(nest, 0, 0, std::uint32_t(block), sums, [&](const std::vector<int>& part, int of) {
            return vector ? Nest::speaker(part, request.root) : nest.holder(part, of);
          });
      if (tree != sums.canonical(std::uint32_t(block))) return false;
    }
    return true;
  }

  Cost cost(const Request& request) const override {
    const Nest nest(request);
    return NestCount(request, nest).cost();
  }
  std::vector<Border> borders(const Request& request) const override {
    const Nest nest(request);
    return NestCount(request, nest).borders();
  }

  Schedule generate(const Request& request, int rank) const override { return generate(request, Nest(request), rank); }
  std::function<Schedule(int)> schedules(const Request& request) const override {
    return [request, nest = Nest(request)](int rank) { return generate(request, nest, rank); };
  }

 private:
  static Schedule generate(const Request& request, const Nest& nest, int rank) {
    Schedule out;
    Blocks blocks(request, nest, rank, out);
    if (request.collective == Collective::broadcast) append_broadcast(request, nest, rank, out);
    else if (request.collective == Collective::reduce) append_reduce(request, nest, rank, out);
    else out.blocks = std::uint32_t(request.rank_count);
    if (request.collective == Collective::all_reduce || request.collective == Collective::reduce_scatter)
      blocks.add_up();
    if (request.collective == Collective::all_reduce || request.collective == Collective::all_gather) blocks.spread();
    return out;
  }

  std::string_view refuses(const Request& request) const override {
    switch (request.collective) {
      case Collective::gather:
      case Collective::scatter:
      case Collective::all_to_all: return "serves all_reduce, reduce_scatter, all_gather, broadcast and reduce";
      default: return Nest::refusal(request);
    }
  }
};

}  // namespace

const Generator& hierarchical() {
  static const Hierarchical generator;
  return generator;
}

}  // namespace tutti::algorithms
