#include "algorithms/checker.h"

#include <map>

#include "algorithms/borders.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include "algorithms/places.h"
#include "algorithms/steps.h"
#include "algorithms/sums.h"

namespace tutti::algorithms {
namespace {

constexpr std::uint32_t kNoStep = UINT32_MAX;

// All steps of all ranks are numbered through: step s of rank r is number first_[r] + s. The stages run in the order of
// proof(); each returns false after it has set error_.
class Proof {
 public:
  Proof(const Request& request, std::span<const Schedule> schedules, const std::vector<bool>& in_place)
      : request_(request), schedules_(schedules), ranks_(std::uint32_t(request.rank_count)), sums_(request.rank_count) {
    for (std::uint32_t rank = 0; rank < ranks_ && rank < schedules.size(); ++rank) {
      in_place_.push_back(in_place.empty() ? request.in_place : bool(in_place[rank]));
    }
  }

  Cost figures() {
    if (layout() && well_formed() && matched() && ordered()) counted();
    return verdict_.cost;
  }

  std::vector<Border> crossings() {
    if (!layout() || !well_formed() || !matched() || !ordered()) return {};
    return crossed();
  }

  Verdict proof() {
    verdict_.canonical = verdict_.same_bits = true;
    if (layout() && well_formed() && matched() && ordered() && evaluated() && meant()) counted();
    return std::move(verdict_);
  }

 private:
  bool layout();
  bool well_formed();
  bool step_is_well_formed(std::uint32_t rank, std::uint32_t step);
  bool in_range(std::uint32_t rank, std::uint32_t step, const Chunks& chunks);
  bool shapes_agree(std::uint32_t rank, std::uint32_t step);
  bool matched();
  bool meets(std::uint32_t sender, std::uint32_t receiver);
  void order_rank(std::uint32_t rank);
  bool ordered();
  int outermost(std::uint32_t node) const;
  bool no_cycle(const std::vector<std::uint32_t>& waiting);
  bool evaluated();
  bool read(std::uint32_t number, const Chunks& chunks, std::uint32_t index, std::uint32_t& value);
  bool write(std::uint32_t number, std::uint32_t index, std::uint32_t value);
  bool run(std::uint32_t number);
  bool meant();
  bool output_is_meant(std::uint32_t rank, std::uint32_t index);
  void counted();
  std::vector<Border> crossed();

  const Step& step(std::uint32_t number) const {
    return schedules_[rank_of_[number]].steps[number - first_[rank_of_[number]]];
  }
  std::uint32_t place(std::uint32_t rank, const Chunks& chunks, std::uint32_t i) const {
    return places_[rank].at(chunks.space, chunks.first + i);
  }
  std::uint32_t shape(std::uint32_t rank, const Chunks& chunks, std::uint32_t i) const {
    return places_[rank].shape(chunks.space, chunks.first + i);
  }
  std::uint32_t root_of(std::uint32_t number) {   // of the node that the step belongs to
    while (node_[number] != number) number = node_[number] = node_[node_[number]];
    return number;
  }
  std::string named(std::uint32_t number) const {
    const std::uint32_t rank = rank_of_[number];
    return fmt::format("rank {} step {} ({})", rank, number - first_[rank], to_string(step(number)));
  }
  bool fail(std::string why) {
    verdict_.error = std::move(why);
    return false;
  }

  const Request& request_;
  std::span<const Schedule> schedules_;
  std::uint32_t ranks_;
  std::vector<bool> in_place_;
  std::vector<Places> places_;
  std::vector<std::uint32_t> first_, rank_of_;   // by rank; by step number
  std::vector<std::uint32_t> node_;              // union-find: steps that happen together
  std::vector<std::uint32_t> sent_by_;           // the sends that each receive takes, in the order of its peers
  std::vector<std::uint32_t> sent_at_;           // by step number: where its own begin in sent_by_
  struct Edge {                                  // step numbers
    std::uint32_t before, after;
    bool data;  // `after` needs what `before` has written; else it only may not come first
  };
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> lanes_;                  // for order_rank(): kNoStep between two ranks
  std::vector<std::uint32_t> order_;                  // nodes, topologically
  std::vector<std::uint32_t> depth_;                  // by node: messages on the longest chain to it, itself included
  std::vector<std::uint64_t> chain_;  // the same by border, of data alone: 16 bits each, the outermost on top
  std::vector<std::vector<std::uint32_t>> members_;   // by node
  Sums sums_;
  std::vector<std::vector<std::uint32_t>> values_;   // by rank and place
  std::vector<std::vector<bool>> written_;
  Verdict verdict_;
};

bool Proof::layout() {
  if (schedules_.size() != ranks_) return fail(fmt::format("{} schedules for {} ranks", schedules_.size(), ranks_));
  const bool vector = request_.collective == Collective::all_reduce || request_.collective == Collective::reduce ||
                      request_.collective == Collective::broadcast;
  const std::uint32_t wanted = request_.collective == Collective::all_to_all ? ranks_ * ranks_ : ranks_;
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const Schedule& mine = schedules_[rank];
    if (mine.blocks == 0 || mine.slices == 0) return fail(fmt::format("rank {}: no blocks or no slices", rank));
    if (!vector && mine.blocks != wanted)
      return fail(fmt::format("rank {}: {} blocks, must be {}", rank, mine.blocks, wanted));
    if (mine.blocks != schedules_[0].blocks || mine.slices != schedules_[0].slices) {
      return fail(fmt::format("rank {}: {} blocks of {} slices, but rank 0 has {} of {}", rank, mine.blocks,
                              mine.slices, schedules_[0].blocks, schedules_[0].slices));
    }
    for (std::uint32_t shape : mine.scratch) {
      if (shape >= mine.blocks * mine.slices)
        return fail(fmt::format("rank {}: scratch of unknown shape {}", rank, shape));
    }
    places_.emplace_back(request_, in_place_[rank], int(rank), mine);
    first_.push_back(std::uint32_t(rank_of_.size()));
    rank_of_.insert(rank_of_.end(), mine.steps.size(), rank);
  }
  first_.push_back(std::uint32_t(rank_of_.size()));
  return true;
}

bool Proof::in_range(std::uint32_t rank, std::uint32_t number, const Chunks& chunks) {
  for (std::uint32_t i = 0; i < chunks.count; ++i) {
    if (place(rank, chunks, i) == Places::kNone) return fail(fmt::format("{}: no such chunk", named(number)));
  }
  return true;
}

// Within one step: chunk i of source and target alike in shape, and never one chunk in two roles that would race.
bool Proof::shapes_agree(std::uint32_t rank, std::uint32_t number) {
  const Step& s = step(number);
  if (s.source.count == 0 || s.target.count == 0) return true;
  if (s.source.count != s.target.count)
    return fail(fmt::format("{}: source and target differ in count", named(number)));
  for (std::uint32_t i = 0; i < s.target.count; ++i) {
    const std::uint32_t target = place(rank, s.target, i);
    if (shape(rank, s.target, i) != shape(rank, s.source, i)) {
      return fail(fmt::format("{}: source and target differ in shape", named(number)));
    }
    for (std::uint32_t j = 0; j < s.source.count; ++j) {
      if (place(rank, s.source, j) == target && (i != j || s.kind != StepKind::recv_reduce)) {
        return fail(fmt::format("{}: source and target overlap", named(number)));
      }
    }
  }
  return true;
}

bool Proof::step_is_well_formed(std::uint32_t rank, std::uint32_t number) {
  const Step& s = step(number);
  const bool sends = s.kind == StepKind::send, local = s.kind == StepKind::copy || s.kind == StepKind::reduce;
  if (sends != (s.target.count == 0))
    return fail(fmt::format("{}: target must be {}", named(number), sends ? "empty" : "given"));
  if ((sends || local) && s.source.count == 0) return fail(fmt::format("{}: no source", named(number)));
  if (s.kind == StepKind::recv && s.source.count != 0)
    return fail(fmt::format("{}: a recv has no source", named(number)));
  if (local != s.peers.empty() || (s.kind == StepKind::recv && s.peers.size() != 1)) {
    return fail(fmt::format("{}: wrong number of peers", named(number)));
  }
  std::vector<int> peers = s.peers;
  std::sort(peers.begin(), peers.end());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (peers[i] < 0 || peers[i] >= int(ranks_) || peers[i] == int(rank) || (i > 0 && peers[i] == peers[i - 1])) {
      return fail(fmt::format("{}: peer {} is oneself, named twice or not a rank", named(number), peers[i]));
    }
  }
  if (s.kind == StepKind::recv_reduce && peers != s.peers)
    return fail(fmt::format("{}: senders must ascend", named(number)));
  if (s.completes && s.kind != StepKind::recv_reduce && s.kind != StepKind::reduce) {
    return fail(fmt::format("{}: only reductions complete", named(number)));
  }
  if (s.target.count != 0 && s.target.space == Space::input)
    return fail(fmt::format("{}: writes input", named(number)));
  return in_range(rank, number, s.source) && in_range(rank, number, s.target) && shapes_agree(rank, number);
}

bool Proof::well_formed() {
  for (std::uint32_t number = 0; number < rank_of_.size(); ++number) {
    if (!step_is_well_formed(rank_of_[number], number)) return false;
  }
  return true;
}

bool Proof::meets(std::uint32_t sender, std::uint32_t receiver) {
  const Chunks& from = step(sender).source;
  const Chunks& to = step(receiver).target;
  if (from.count != to.count) return fail(fmt::format("{} meets {}: counts differ", named(sender), named(receiver)));
  for (std::uint32_t i = 0; i < from.count; ++i) {
    if (shape(rank_of_[sender], from, i) != shape(rank_of_[receiver], to, i)) {
      return fail(fmt::format("{} meets {}: shapes differ", named(sender), named(receiver)));
    }
  }
  node_[root_of(sender)] = root_of(receiver);
  return true;
}

// Pairs the k-th send with the k-th receive of every lane and joins them into nodes.
bool Proof::matched() {
  const std::uint32_t steps = std::uint32_t(rank_of_.size());
  node_.resize(steps);
  std::iota(node_.begin(), node_.end(), 0);
  sent_at_.assign(steps, 0);
  struct End {
    std::uint32_t from, to, number, slot;
  };
  std::vector<End> sends, receives;
  for (std::uint32_t number = 0; number < steps; ++number) {
    sent_at_[number] = std::uint32_t(receives.size());
    const std::uint32_t rank = rank_of_[number];
    for (int peer : step(number).peers) {
      if (step(number).kind == StepKind::send) sends.push_back({rank, std::uint32_t(peer), number, 0});
      else receives.push_back({std::uint32_t(peer), rank, number, std::uint32_t(receives.size())});
    }
  }
  sent_by_.assign(receives.size(), kNoStep);
  const auto by_lane = [](const End& a, const End& b) { return a.from != b.from ? a.from < b.from : a.to < b.to; };
  std::stable_sort(sends.begin(), sends.end(), by_lane);
  std::stable_sort(receives.begin(), receives.end(), by_lane);
  for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    const bool lone_send = i < sends.size() && (i >= receives.size() || by_lane(sends[i], receives[i]));
    const bool lone_receive = i < receives.size() && (i >= sends.size() || by_lane(receives[i], sends[i]));
    if (lone_send) return fail(fmt::format("{}: nobody receives it at rank {}", named(sends[i].number), sends[i].to));
    if (lone_receive)
      return fail(fmt::format("{}: rank {} sends nothing for it", named(receives[i].number), receives[i].from));
    sent_by_[receives[i].slot] = sends[i].number;
    if (!meets(sends[i].number, receives[i].number)) return false;
  }
  return true;
}

// What each step of one rank waits for: the step before on each of its lanes, readers and writers of its chunks.
void Proof::order_rank(std::uint32_t rank) {
  lanes_.resize(2 * std::size_t(ranks_), kNoStep);
  std::vector<std::uint32_t> writer(places_[rank].count(), kNoStep);
  std::vector<std::vector<std::uint32_t>> readers(places_[rank].count());
  const auto wait_for = [&](std::uint32_t before, std::uint32_t after, bool data = false) {
    if (before != kNoStep && before != after) edges_.push_back({before, after, data});
  };
  for (std::uint32_t number = first_[rank]; number < first_[rank + 1]; ++number) {
    const Step& s = step(number);
    for (int peer : s.peers) {
      std::uint32_t& last = lanes_[2 * std::size_t(peer) + (s.kind == StepKind::send)];
      wait_for(std::exchange(last, number), number);
    }
    for (std::uint32_t i = 0; i < s.source.count; ++i) {
      const std::uint32_t at = place(rank, s.source, i);
      wait_for(writer[at], number, true);
      readers[at].push_back(number);
    }
    for (std::uint32_t i = 0; i < s.target.count; ++i) {
      const std::uint32_t at = place(rank, s.target, i);
      wait_for(writer[at], number, true);
      for (std::uint32_t reader : readers[at]) wait_for(reader, number);
      readers[at].clear();
      writer[at] = number;
    }
  }
  for (std::uint32_t number = first_[rank]; number < first_[rank + 1]; ++number)
    for (const int peer : step(number).peers)
      lanes_[2 * std::size_t(peer)] = lanes_[2 * std::size_t(peer) + 1] = kNoStep;
}

bool Proof::ordered() {
  const std::uint32_t steps = std::uint32_t(rank_of_.size());
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) order_rank(rank);
  std::vector<std::uint32_t> waiting(steps, 0), begin(steps + 1, 0);
  for (const Edge& edge : edges_) {
    if (root_of(edge.before) == root_of(edge.after)) {
      return fail(fmt::format("deadlock: {} waits for {}, but both belong to one exchange", named(edge.after),
                              named(edge.before)));
    }
    ++waiting[root_of(edge.after)];
    ++begin[root_of(edge.before) + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<std::uint32_t> next(edges_.size()), fill(begin.begin(), begin.end() - 1);
  std::vector<bool> data(edges_.size());
  for (const Edge& edge : edges_) {
    const std::uint32_t at = fill[root_of(edge.before)]++;
    next[at] = root_of(edge.after);
    data[at] = edge.data;
  }
  members_.resize(steps);
  for (std::uint32_t number = 0; number < steps; ++number) members_[root_of(number)].push_back(number);
  depth_.assign(steps, 0);
  chain_.assign(steps, 0);
  for (std::uint32_t node = 0; node < steps; ++node) {
    if (node_[node] == node && waiting[node] == 0) order_.push_back(node);
  }
  for (std::size_t done = 0; done < order_.size(); ++done) {
    const std::uint32_t node = order_[done];
    if (!step(node).peers.empty()) {
      ++depth_[node];
      chain_[node] += std::uint64_t(1) << 16 * (kMaxLevels - outermost(node));
    }
    for (std::uint32_t i = begin[node]; i < begin[node + 1]; ++i) {
      if (data[i]) {
        depth_[next[i]] = std::max(depth_[next[i]], depth_[node]);
        chain_[next[i]] = std::max(chain_[next[i]], chain_[node]);
      }
      if (--waiting[next[i]] == 0) order_.push_back(next[i]);
    }
  }
  return no_cycle(waiting);
}

// The outermost border that a message of the node crosses.
int Proof::outermost(std::uint32_t node) const {
  int level = int(request_.levels.size());
  for (const std::uint32_t number : members_[node])
    for (const int peer : step(number).peers)
      level = std::min(level, border_between(request_, int(rank_of_[number]), peer));
  return level;
}

// Nodes that still wait lie on a cycle or behind one: walk backwards until a node comes again, then tell the cycle.
bool Proof::no_cycle(const std::vector<std::uint32_t>& waiting) {
  std::vector<std::uint32_t> cause(waiting.size(), kNoStep);   // by node: an edge from another waiting node
  std::uint32_t at = kNoStep;
  for (std::uint32_t i = 0; i < edges_.size(); ++i) {
    if (waiting[root_of(edges_[i].before)] == 0 || waiting[root_of(edges_[i].after)] == 0) continue;
    cause[root_of(edges_[i].after)] = i;
    at = root_of(edges_[i].after);
  }
  if (at == kNoStep) return true;
  std::vector<bool> seen(waiting.size(), false);
  while (!seen[at]) {
    seen[at] = true;
    at = root_of(edges_[cause[at]].before);
  }
  std::string text = "deadlock:";
  const std::uint32_t start = at;
  for (int shown = 0; shown < 8 && (shown == 0 || at != start); ++shown) {
    const Edge& edge = edges_[cause[at]];
    text += fmt::format("{} {} waits for {}", shown == 0 ? "" : ", which happens with a step where", named(edge.after),
                        named(edge.before));
    at = root_of(edge.before);
  }
  return fail(text);
}

bool Proof::read(std::uint32_t number, const Chunks& chunks, std::uint32_t index, std::uint32_t& value) {
  const std::uint32_t rank = rank_of_[number], at = place(rank, chunks, index);
  value = values_[rank][at];
  if (value == Sums::kNothing) return fail(fmt::format("{}: reads what nobody has written", named(number)));
  const bool own = chunks.space == Space::input;
  if (own && written_[rank][at]) return fail(fmt::format("{}: this input was overwritten before", named(number)));
  const bool by_name = is_reduction(request_.collective) || request_.collective == Collective::all_to_all;
  if (by_name && !own && !written_[rank][at]) {
    return fail(fmt::format("{}: the own data must be named as input", named(number)));
  }
  return true;
}

bool Proof::write(std::uint32_t number, std::uint32_t index, std::uint32_t value) {
  const Step& s = step(number);
  const std::uint32_t rank = rank_of_[number], at = place(rank, s.target, index);
  values_[rank][at] = value;
  written_[rank][at] = true;
  if (s.kind != StepKind::recv_reduce && s.kind != StepKind::reduce) return true;
  if (sums_.complete(value) == s.completes) return true;
  return fail(fmt::format("{}: {}", named(number),
                          s.completes ? "marked complete, but is not the sum of all ranks"
                                      : "is the sum of all ranks, but not marked complete"));
}

// The effect of one step that is not a send; the sends of its messages are read here.
bool Proof::run(std::uint32_t number) {
  const Step& s = step(number);
  std::vector<std::uint32_t> operands;
  for (std::uint32_t i = 0; i < s.target.count; ++i) {
    operands.clear();
    std::uint32_t own = Sums::kNothing, value = Sums::kNothing;
    if (s.source.count != 0 && !read(number, s.source, i, own)) return false;
    bool own_added = own == Sums::kNothing;
    for (std::size_t k = 0; k < s.peers.size(); ++k) {
      const std::uint32_t sender = sent_by_[sent_at_[number] + k];
      if (!own_added && s.peers[k] > int(rank_of_[number])) {
        operands.push_back(own);
        own_added = true;
      }
      if (!read(sender, step(sender).source, i, value)) return false;
      operands.push_back(value);
    }
    if (!own_added) operands.push_back(own);
    if (s.kind == StepKind::reduce) {
      if (!read(number, s.target, i, value)) return false;
      operands.push_back(value);
    }
    if (!write(number, i, sums_.tree(operands))) return false;
  }
  return true;
}

bool Proof::evaluated() {
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    values_.emplace_back(places_[rank].count(), Sums::kNothing);
    written_.emplace_back(places_[rank].count(), false);
    for (std::uint32_t i = 0; i < places_[rank].inputs(); ++i) {
      values_[rank][places_[rank].at(Space::input, i)] = sums_.leaf(rank, places_[rank].shape(Space::input, i));
    }
  }
  for (std::uint32_t node : order_) {
    for (std::uint32_t number : members_[node]) {
      if (step(number).kind != StepKind::send && !run(number)) return false;
    }
  }
  return true;
}

bool Proof::output_is_meant(std::uint32_t rank, std::uint32_t index) {
  const std::uint32_t shape = places_[rank].shape(Space::output, index), block = shape / schedules_[0].slices;
  const std::uint32_t value = values_[rank][places_[rank].at(Space::output, index)];
  if (value == Sums::kNothing) return fail(fmt::format("rank {}: output[{}] is never written", rank, index));
  if (is_reduction(request_.collective)) {
    if (!sums_.complete(value))
      return fail(fmt::format("rank {}: output[{}] is not the sum of all ranks", rank, index));
    if (value != sums_.canonical(shape)) verdict_.canonical = false;
    if (request_.collective == Collective::all_reduce && value != values_[0][places_[0].at(Space::output, index)]) {
      verdict_.same_bits = false;
    }
    return true;
  }
  std::uint32_t from = std::uint32_t(request_.root);   // broadcast, scatter
  if (request_.collective == Collective::all_gather || request_.collective == Collective::gather) from = block;
  if (request_.collective == Collective::all_to_all) from = block / ranks_;
  if (value != sums_.leaf(from, shape)) {
    return fail(fmt::format("rank {}: output[{}] is not the data of rank {} that belongs there", rank, index, from));
  }
  return true;
}

bool Proof::meant() {
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    for (std::uint32_t i = 0; i < places_[rank].outputs(); ++i) {
      if (!output_is_meant(rank, i)) return false;
    }
  }
  return true;
}

void Proof::counted() {
  Cost& most = verdict_.cost;
  for (std::uint32_t depth : depth_) most.rounds = std::max(most.rounds, int(depth));
  const double chunk = 1.0 / Places::chunks_of_n(request_, schedules_[0]);
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    std::uint64_t sent = 0, written = 0, reduced = 0, messages = 0;
    for (const Step& s : schedules_[rank].steps) {
      if (s.kind == StepKind::send) {
        sent += s.source.count * s.peers.size();
        written += s.source.count;
        messages += s.peers.size();
      }
      if (s.kind == StepKind::recv_reduce) reduced += s.target.count * (s.peers.size() + (s.source.count != 0));
      if (s.kind == StepKind::reduce) reduced += 2 * s.target.count;
    }
    most.sent = std::max(most.sent, double(sent) * chunk);
    most.written = std::max(most.written, double(written) * chunk);
    most.reduced = std::max(most.reduced, double(reduced) * chunk);
    most.messages = std::max(most.messages, int(messages));
  }
}

std::vector<Border> Proof::crossed() {
  const std::size_t levels = request_.levels.size();
  std::vector<Border> out(levels + 1);
  const double chunk = 1.0 / Places::chunks_of_n(request_, schedules_[0]);
  const std::uint64_t longest = chain_.empty() ? 0 : *std::max_element(chain_.begin(), chain_.end());
  for (std::size_t level = 0; level <= levels; ++level) {
    out[level].hops = int(longest >> 16 * (kMaxLevels - level) & 0xffff);
    std::map<int, double> leaving;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      int messages = 0;
      for (const Step& s : schedules_[rank].steps) {
        if (s.kind != StepKind::send) continue;
        const auto crossing = std::count_if(s.peers.begin(), s.peers.end(), [&](int peer) {
          return border_between(request_, int(rank), peer) == int(level);
        });
        messages += int(crossing);
        leaving[level < levels ? request_.levels[level][rank] : int(rank)] +=
            double(s.source.count) * double(crossing) * chunk;
      }
      out[level].messages = std::max(out[level].messages, messages);
    }
    for (const auto& [group, bytes] : leaving) out[level].bytes = std::max(out[level].bytes, bytes);
  }
  return out;
}

}  // namespace

Verdict check(const Request& request, std::span<const Schedule> schedules, const std::vector<bool>& in_place) {
  if (const auto why = common_refusal(request); !why.empty()) {
    Verdict verdict;
    verdict.error = why;
    return verdict;
  }
  return Proof(request, schedules, in_place).proof();
}

Verdict check(const Request& request, const std::function<Schedule(int rank)>& schedule_of) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < request.rank_count; ++rank) schedules.push_back(schedule_of(rank));
  return check(request, schedules);
}

Verdict check(const Request& request, const Generator& generator) {
  return check(request, generator.schedules(request));
}

std::vector<Border> count_borders(const Request& request, std::span<const Schedule> schedules) {
  return Proof(request, schedules, {}).crossings();
}

Cost count(const Request& request, std::span<const Schedule> schedules) {
  return Proof(request, schedules, {}).figures();
}

}  // namespace tutti::algorithms
