#include "comm/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::comm {
namespace {

using algorithms::Step;
using algorithms::StepKind;

constexpr std::uint64_t kWhole = 8;  // bytes: segments hold whole elements of every type

std::uint32_t border_between(const std::vector<std::vector<int>>& levels, int a, int b) {
  std::uint32_t level = 0;
  while (level < levels.size() && levels[level][std::size_t(a)] == levels[level][std::size_t(b)]) ++level;
  return level;
}

// Puts parts one behind another, then matches the messages.
class Writer {
 public:
  Writer(const algorithms::Request& request, const Load& load, const std::vector<std::vector<int>>& levels, int width) {
    score_.rank_count = request.rank_count;
    score_.width = width;
    score_.levels = levels;
    if (load.segment_bytes) score_.segment_bytes = std::max(kWhole, load.segment_bytes / kWhole * kWhole);
    first_receive_.push_back(0);
  }

  Status add(const Part& part) {
    const std::uint32_t base = std::uint32_t(score_.steps.size());
    for (std::size_t i = 0; i < part.steps.size(); ++i) add_step(part, i);
    link(part, base);
    number_lanes(part, base);
    if (score_.messages.size() > Score::kMaxMessages)
      return Status(Code::unsupported, fmt::format("more than {} messages", Score::kMaxMessages));
    if (score_.segments > Score::kMaxSegments)
      return Status(Code::unsupported, fmt::format("more than {} segments: choose larger ones than {} bytes",
                                                   Score::kMaxSegments, score_.segment_bytes));
    return {};
  }

  Result<Score> finish() {
    score_.steps.push_back({});
    score_.steps.back().first_ahead = std::uint32_t(score_.ahead.size());
    score_.steps.back().first_next = std::uint32_t(score_.next.size());
    if (sent_.size() != received_.size())
      return Status(Code::internal,
                    fmt::format("the schedules send {} messages and receive {}", sent_.size(), received_.size()));
    for (std::size_t m = 0; m < sent_.size(); ++m)
      if (Status status = match(m); !status.ok()) return status;
    return std::move(score_);
  }

 private:
  struct Edge {
    std::uint32_t earlier;  // in its part
    Follower follower;
  };
  struct Sent {
    std::uint32_t step, to, from, number;  // `to` is inside, `from` is who it seems to come from there
  };
  struct Received {
    std::uint32_t from, number, step, slot;
  };

  void add_step(const Part& part, std::size_t index) {
    const Step& step = part.steps[index];
    ScoreStep out;
    out.bytes = part.bytes[index];
    out.rank = std::uint32_t(part.rank);
    out.kind = step.kind;
    out.operands = operands(step);
    if (out.bytes > 0) {
      out.segments =
          score_.segment_bytes ? std::uint32_t((out.bytes + score_.segment_bytes - 1) / score_.segment_bytes) : 1;
      out.peers = std::uint32_t(step.peers.size());
    }
    out.first = step.kind == StepKind::send ? std::uint32_t(score_.messages.size()) : score_.slots;
    if (step.kind == StepKind::send) {
      for (std::uint32_t k = 0; k < out.peers; ++k)
        score_.messages.push_back({0, 0, border_between(score_.levels, part.rank, step.peers[k])});
      score_.segments += std::uint64_t(out.peers) * out.segments;
    } else {
      score_.slots += out.peers;
    }
    score_.steps.push_back(out);
  }

  // Who waits for whom among this rank's steps, lanes included.
  void link(const Part& part, std::uint32_t base) {
    const std::uint32_t count = std::uint32_t(part.steps.size());
    edges_.clear();
    for (std::uint32_t later = 0; later < count; ++later) {
      ScoreStep& step = score_.steps[base + later];
      step.first_ahead = std::uint32_t(score_.ahead.size());
      if (step.bytes == 0) continue;
      for (const Dependency& d : part.after[later]) {
        if (part.bytes[d.step] == 0) continue;
        score_.ahead.push_back({base + d.step, part.lead(later, d)});
        edges_.push_back({d.step, {base + later, Follower::When::progress}});
      }
    }
    add_lanes(part, base);
    // Sorted by the earlier step, otherwise in the order found.
    std::uint32_t place = std::uint32_t(score_.next.size());
    places_.assign(count, 0);
    for (const Edge& edge : edges_) ++places_[edge.earlier];
    for (std::uint32_t i = 0; i < count; ++i) {
      score_.steps[base + i].first_next = place;
      place += std::exchange(places_[i], place);
    }
    score_.next.resize(place, {0, Follower::When::progress});
    for (const Edge& edge : edges_) score_.next[places_[edge.earlier]++] = edge.follower;
  }

  // Messages by peer, in the order of steps.
  struct OnLane {
    int peer;
    std::uint32_t step, position;
    auto operator<=>(const OnLane&) const = default;
  };
  void collect(const Part& part, bool receiving) {
    lanes_.clear();
    for (std::uint32_t i = 0; i < part.steps.size(); ++i) {
      if (part.bytes[i] == 0 || (receiving ? !receives(part.steps[i]) : part.steps[i].kind != StepKind::send)) continue;
      for (std::uint32_t k = 0; k < part.steps[i].peers.size(); ++k) lanes_.push_back({part.steps[i].peers[k], i, k});
    }
    std::sort(lanes_.begin(), lanes_.end());
  }

  void add_lanes(const Part& part, std::uint32_t base) {
    collect(part, false);
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      if (lanes_[i].peer != lanes_[i - 1].peer) continue;
      edges_.push_back({lanes_[i - 1].step, {base + lanes_[i].step, Follower::When::submitted}});
      ++score_.steps[base + lanes_[i].step].waits;
    }
  }

  // After link(): lanes_ holds the sends.
  void number_lanes(const Part& part, std::uint32_t base) {
    const int p = score_.rank_count;
    sent_.resize(score_.messages.size());
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const OnLane& lane = lanes_[i];
      number = i > 0 && lane.peer == lanes_[i - 1].peer ? number + 1 : 0;
      const int inside = lane.peer % score_.width, shift = lane.peer - inside;
      const int from = ((part.rank - shift) % p + p) % p;
      sent_[score_.steps[base + lane.step].first + lane.position] = {base + lane.step, std::uint32_t(inside),
                                                                     std::uint32_t(from), number};
    }
    collect(part, true);
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const OnLane& lane = lanes_[i];
      number = i > 0 && lane.peer == lanes_[i - 1].peer ? number + 1 : 0;
      received_.push_back(
          {std::uint32_t(lane.peer), number, base + lane.step, score_.steps[base + lane.step].first + lane.position});
    }
    first_receive_.push_back(received_.size());
    expected_.push_back(first_receive_[first_receive_.size() - 2]);
  }

  // Most messages meet the receive behind the one that was met last at that rank.
  std::size_t receive_of(const Sent& sent) const {
    const auto is = [&](std::size_t i) {
      return i < first_receive_[sent.to + 1] && received_[i].from == sent.from && received_[i].number == sent.number;
    };
    if (is(expected_[sent.to])) return expected_[sent.to];
    const auto begin = received_.begin() + std::ptrdiff_t(first_receive_[sent.to]),
               end = received_.begin() + std::ptrdiff_t(first_receive_[sent.to + 1]);
    const auto at = std::lower_bound(begin, end, sent, [](const Received& r, const Sent& s) {
      return std::pair(r.from, r.number) < std::pair(s.from, s.number);
    });
    const std::size_t found = std::size_t(at - received_.begin());
    return is(found) ? found : received_.size();
  }

  Status match(std::size_t message) {
    const Sent& sent = sent_[message];
    const std::size_t at = receive_of(sent);
    if (at == received_.size() || score_.steps[received_[at].step].bytes != score_.steps[sent.step].bytes)
      return Status(Code::internal,
                    fmt::format("message {} from rank {} to rank {} ({} bytes) meets no receive of that size",
                                sent.number, sent.from, sent.to, score_.steps[sent.step].bytes));
    expected_[sent.to] = at + 1;
    score_.messages[message].step = received_[at].step;
    score_.messages[message].slot = received_[at].slot;
    return {};
  }

  Score score_;
  std::vector<Edge> edges_;  // of the current part
  std::vector<std::uint32_t> places_;
  std::vector<OnLane> lanes_;
  std::vector<Sent> sent_;          // by message
  std::vector<Received> received_;  // by rank, peer, number
  std::vector<std::size_t> first_receive_, expected_;
};

bool moves_along(const std::vector<int>& group_of, int width) {
  const std::size_t p = group_of.size();
  std::vector<int> there(p, -1), back(p, -1);
  for (std::size_t r = 0; r < p; ++r) {
    const int from = group_of[r], to = group_of[(r + std::size_t(width)) % p];
    if (from < 0 || to < 0 || std::size_t(std::max(from, to)) >= p) return false;
    int& image = there[std::size_t(from)];
    int& origin = back[std::size_t(to)];
    if ((image >= 0 && image != to) || (origin >= 0 && origin != from)) return false;
    image = to;
    origin = from;
  }
  return true;
}

// Whether two ranks do the same, peers counted from each.
bool alike(const Part& a, const Part& b, int p) {
  if (a.steps.size() != b.steps.size() || a.bytes != b.bytes) return false;
  const auto away = [p](const Part& part, int peer) { return (peer - part.rank + p) % p; };
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const Step &s = a.steps[i], &t = b.steps[i];
    if (s.kind != t.kind || s.peers.size() != t.peers.size() || operands(s) != operands(t)) return false;
    std::vector<int> of_a, of_b;
    for (const int peer : s.peers) of_a.push_back(away(a, peer));
    for (const int peer : t.peers) of_b.push_back(away(b, peer));
    if (receives(s)) {  // senders are named in ascending order
      std::sort(of_a.begin(), of_a.end());
      std::sort(of_b.begin(), of_b.end());
    }
    if (of_a != of_b) return false;
    if (a.after[i] != b.after[i]) return false;
    for (const Dependency& d : a.after[i])
      if (a.lead(i, d) != b.lead(i, d)) return false;
  }
  return true;
}

}  // namespace

std::uint64_t Score::segment_of(const ScoreStep& step, std::uint32_t index) const {
  return step.segments == 1 ? step.bytes : std::min(segment_bytes, step.bytes - index * segment_bytes);
}

std::uint32_t Score::segments_in(const ScoreStep& step, std::uint64_t bytes) const {
  return bytes >= step.bytes ? step.segments : segment_bytes == 0 ? 0 : std::uint32_t(bytes / segment_bytes);
}

std::size_t Score::memory_bytes() const {
  return steps.capacity() * sizeof(ScoreStep) + messages.capacity() * sizeof(ScoreMessage) +
         ahead.capacity() * sizeof(Ahead) + next.capacity() * sizeof(Follower);
}

Result<Score> write_score(const algorithms::Generator& generator, const algorithms::Request& request, const Load& load,
                          const std::vector<std::vector<int>>& levels, int width, const GoOn& go_on) {
  Writer writer(request, load, levels, width);
  const auto schedule_of = generator.schedules(request);
  for (int rank = 0; rank < width; ++rank) {
    if (Status status = writer.add(make_part(request, rank, schedule_of(rank), load)); !status.ok()) return status;
    if (go_on && !go_on(rank + 1, width)) return Status(Code::aborted, "given up");
  }
  return writer.finish();
}

Result<Fold> find_fold(const algorithms::Generator& generator, const algorithms::Request& request, const Load& load,
                       const std::vector<std::vector<int>>& levels) {
  const int p = request.rank_count;
  int width = 1;
  if (!levels.empty()) width = int(std::count(levels[0].begin(), levels[0].end(), levels[0][0]));
  for (const auto* nest : {&levels, &request.levels})
    for (const std::vector<int>& level : *nest)
      if (p % width != 0 || !moves_along(level, width))
        return Status(Code::unsupported, "its groups are not alike, one behind another");
  // Whole cache lines for every chunk of both directions of a ring.
  const std::uint64_t unit = 2 * 64 * std::uint64_t(p), bytes = (load.bytes + unit - 1) / unit * unit;
  if (bytes - load.bytes > load.bytes / 20)
    return Status(Code::unsupported,
                  fmt::format("{} bytes cannot be cut into equal blocks: choose a multiple of {}", load.bytes, unit));
  Load whole = load;
  whole.bytes = bytes;
  const auto schedule_of = generator.schedules(request);
  for (int rank = 0; rank < width; ++rank) {
    const Part part = make_part(request, rank, schedule_of(rank), whole);
    for (const int shift : {width, p / width / 2 * width, p - width})
      if (const int other = (rank + shift) % p; !alike(part, make_part(request, other, schedule_of(other), whole), p))
        return Status(Code::unsupported, fmt::format("ranks {} and {} do not do the same", rank, other));
  }
  return Fold{width, bytes};
}

}  // namespace tutti::comm
