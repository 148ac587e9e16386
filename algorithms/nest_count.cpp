#include "algorithms/nest_count.h"

#include <algorithm>

namespace tutti::algorithms {
namespace {

bool in_blocks(const Request& request) {
  return request.collective != Collective::broadcast && request.collective != Collective::reduce;
}

// Where the shares of a group and of its parts begin and end: see Nest::pieces.
std::vector<int> cuts_of(const Nest& nest, const std::vector<int>& group,
                         const std::vector<const std::vector<int>*>& parts) {
  std::vector<int> cuts = {0};
  const auto cut_for = [&](const std::vector<int>& shared) {
    for (std::size_t i = 1; i <= shared.size(); ++i) cuts.push_back(nest.share_begin(int(i), shared.size()));
  };
  cut_for(group);
  for (const std::vector<int>* part : parts) cut_for(*part);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace

void NestCount::Longest::take(const Longest& other) {
  chain = std::max(chain, other.chain);
  messages = std::max(messages, other.messages);
}

bool NestCount::adds_up() const { return is_reduction(request_.collective); }
bool NestCount::spreads() const {
  return request_.collective != Collective::reduce_scatter && request_.collective != Collective::reduce;
}

NestCount::NestCount(const Request& request, const Nest& nest)
    : request_(request), nest_(nest), tops_(nest.parts(0, 0)), traffic_(request) {
  const std::size_t ranks = std::size_t(request.rank_count);
  sent_.assign(ranks, 0);
  written_ = reduced_ = sent_;
  messages_.assign(ranks, 0);
  for (int level = 0; level < nest.last_level(); ++level) {
    for (const std::vector<int>& group : nest.groups(level)) {
      const Groups parts = nest.parts(level, group.front());
      if (parts.size() == 1) continue;
      if (in_blocks(request)) count_blocks(level, group, parts);
      else count_vectors(group, parts);
    }
  }
  const Longest once = chain_of(0, nest.groups(0).front());
  const int ways = adds_up() && spreads() ? 2 : 1;
  chain_ = once.chain * Hops(ways);
  rounds_ = once.messages * ways;
}

Cost NestCount::cost() const {
  const auto most = [](const auto& of) { return *std::max_element(of.begin(), of.end()); };
  return {rounds_, most(sent_), most(written_), most(reduced_), most(messages_)};
}

void NestCount::sends(int rank, int border, double bytes, int messages) {
  traffic_.add(rank, border, bytes, messages);
  sent_[std::size_t(rank)] += bytes;
  messages_[std::size_t(rank)] += messages;
}

// As Blocks::holder in hierarchical.cpp.
int NestCount::holder(int level, const std::vector<int>& group, int block) const {
  const bool in_turns = level == 0 && request_.collective == Collective::all_reduce;
  return nest_.holder(in_turns ? *tops_[std::size_t(block) % tops_.size()] : group, block);
}

// Each piece has one holder in the group and one in every part. All but one of those in parts are across the parts'
// border from it; the one of its own part is itself, or another rank of that part.
void NestCount::count_blocks(int level, const std::vector<int>& group, const Groups& parts) {
  const double block = 1.0 / nest_.rank_count();
  const int border = border_between(request_, parts[0]->front(), parts[1]->front()), others = int(parts.size()) - 1;
  const std::vector<int> cuts = cuts_of(nest_, group, parts);
  const auto before = [&](int at) { return int(std::lower_bound(cuts.begin(), cuts.end(), at) - cuts.begin()); };
  for (const int rank : group) {   // sums to the holders, as if all were across; mended below
    const Nest::Run share = nest_.share(level + 1, rank);
    const int pieces = before(share.end) - before(share.first);
    if (!adds_up()) break;
    sends(rank, border, (share.end - share.first) * block, pieces);
    written_[std::size_t(rank)] += (share.end - share.first) * block;
  }
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int all = holder(level, group, cuts[i]), own = nest_.holder(nest_.group(level + 1, all), cuts[i]);
    const double bytes = (cuts[i + 1] - cuts[i]) * block;
    const bool inside = own != all;   // a message within the part
    const int inner = inside ? border_between(request_, all, own) : 0;
    if (adds_up()) {
      sends(own, border, -bytes, -1);
      if (inside) sends(own, inner, bytes, 1);
      else written_[std::size_t(own)] -= bytes;
      reduced_[std::size_t(all)] += bytes * double(parts.size());
    }
    if (spreads()) {
      sends(all, border, bytes * others, others);
      if (inside) sends(all, inner, bytes, 1);
      written_[std::size_t(all)] += bytes;
    }
  }
}

void NestCount::count_vectors(const std::vector<int>& group, const Groups& parts) {
  const int border = border_between(request_, parts[0]->front(), parts[1]->front()), others = int(parts.size()) - 1;
  const int speaker = nest_.speaker(group, request_.root);
  if (spreads()) {
    sends(speaker, border, others, others);
    written_[std::size_t(speaker)] += 1;
    return;
  }
  reduced_[std::size_t(speaker)] += double(parts.size());
  for (const std::vector<int>* part : parts) {
    const int from = nest_.speaker(*part, request_.root);
    if (from == speaker) continue;
    sends(from, border, 1, 1);
    written_[std::size_t(from)] += 1;
  }
}

// The longest chain that adds up a group's sum, or, backwards, that spreads what a group has: a message between its
// parts and the longest of a part. In a sum all operands meet, so that of the receiver's own part counts too. What is
// spread as a vector has been where it comes from: its own part saves the message.
NestCount::Longest NestCount::chain_of(int level, const std::vector<int>& group) const {
  if (level == nest_.last_level()) return {};
  const Groups parts = nest_.parts(level, group.front());
  if (parts.size() == 1) return chain_of(level + 1, group);
  const int border = border_between(request_, parts[0]->front(), parts[1]->front());
  const int speaker = request_.collective == Collective::broadcast ? nest_.speaker(group, request_.root) : -1;
  Longest most;
  for (const std::vector<int>* part : parts) {
    const Longest inner = chain_of(level + 1, *part);
    const bool is_there = speaker >= 0 && nest_.speaker(*part, request_.root) == speaker;
    most.take(is_there ? inner : inner.then(border));
  }
  return most;
}

}  // namespace tutti::algorithms
