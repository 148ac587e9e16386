// Circulant graphs: reduce_scatter and all_gather in ceil(log2 p) rounds at any rank count p, each block sent once,
// nothing rotated or packed. Counting from its own, rank r numbers the blocks r, r+1, ... around; rounds move runs of
// that numbering. A run that passes the last block is two messages on one lane.
#include "algorithms/families.h"
#include "algorithms/rounds.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {
namespace {

// One round: the runs [skip, end) of the numbering, with end - skip <= skip, go to the rank `skip` away.
struct Round {
  int skip, end;
};

// Halving, rounded up, from p to 1: the order of reduce_scatter; all_gather goes backwards.
std::vector<Round> rounds_of(int rank_count) {
  std::vector<Round> rounds;
  for (int end = rank_count; end > 1; end = rounds.back().skip) rounds.push_back({(end + 1) / 2, end});
  return rounds;
}

// The run of `count` blocks from `first` (any integer) as pieces that do not pass the last block.
std::vector<std::pair<int, int>> pieces(int first, int count, int rank_count) {
  first = wrap(first, rank_count);
  const int head = std::min(count, rank_count - first);
  std::vector<std::pair<int, int>> out{{first, head}};
  if (head < count) out.push_back({0, count - head});
  return out;
}

// Sums of the numbering's first half wait in scratch; `target` takes this rank's own block at the end.
void append_reduce_scatter(int rank, int p, Chunks target, Schedule& out) {
  for (const Round& round : rounds_of(p)) {
    const int to = wrap(rank + round.skip, p), from = wrap(rank - round.skip, p), count = round.end - round.skip;
    const bool start = round.end == p, last = round.skip == 1;
    if (!start) {
      out.steps.push_back(send(scratch(round.skip, count), to));
      out.steps.push_back(recv_reduce(last ? target : scratch(0, count), scratch(0, count), {from}, last));
      continue;
    }
    for (const auto& [first, size] : pieces(rank + round.skip, count, p))
      out.steps.push_back(send(input(first, size), to));
    for (const auto& [first, size] : pieces(rank, count, p)) {
      const int at = wrap(first - rank, p);
      out.steps.push_back(recv_reduce(last ? target : scratch(at, size), input(first, size), {from}, last));
    }
    if (last) return;
    for (int i = 0; i < round.skip; ++i) out.scratch.push_back(std::uint32_t(wrap(rank + i, p)));
    if (count < round.skip)
      out.steps.push_back(copy(scratch(count), input(wrap(rank + count, p))));   // odd: one is left alone
  }
}

// `own` names this rank's block for the first message; afterwards it must be in output.
void append_all_gather(int rank, int p, Chunks own, bool copy_own, Schedule& out) {
  std::vector<Round> rounds = rounds_of(p);
  std::reverse(rounds.begin(), rounds.end());
  for (const Round& round : rounds) {
    const int to = wrap(rank - round.skip, p), from = wrap(rank + round.skip, p), count = round.end - round.skip;
    for (const auto& [first, size] : pieces(rank, count, p)) {
      out.steps.push_back(send(round.skip == 1 ? own : output(first, size), to));
    }
    for (const auto& [first, size] : pieces(rank + round.skip, count, p))
      out.steps.push_back(recv(output(first, size), from));
    if (round.skip == 1 && copy_own) out.steps.push_back(copy(output(rank), own));
  }
}

// A message in two parts is taken as one that carries what either does.
// Places: the own block is 0, those behind it in its numbering count up while they are gathered and down while sums are
// scattered, so that the two have nothing but the own block in common.
Rounds rounds_for(const Request& request) {
  const int p = request.rank_count;
  const std::vector<Round> halving = rounds_of(p);
  Rounds out;
  if (request.collective != Collective::all_gather) {
    for (const Round& round : halving) {
      const int count = round.end - round.skip;
      out.add(around_by(round.skip, p), double(count) / p, 1 - round.end, 1 - count, count);
      if (round.end == p) out.split_behind(round.skip);
    }
  }
  if (request.collective != Collective::reduce_scatter) {
    for (auto round = halving.rbegin(); round != halving.rend(); ++round) {
      const int count = round->end - round->skip;
      out.add(around_by(-round->skip, p), double(count) / p, 0, round->skip, count);
      out.split_behind(0);
    }
  }
  return out;
}

class Circulant final : public Family {
 public:
  std::string_view name() const override { return "circulant"; }
  std::string_view source() const override {
    return "Traeff: Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms (2024)";
  }
  std::string_view best_when() const override {
    return "middle vectors among many ranks, above all where p is no power of two";
  }
  bool canonical(const Request& request) const override {
    return Family::canonical(request) || request.rank_count == 2;
  }

  Cost cost(const Request& request) const override {
    const int p = request.rank_count;
    const double part = double(p - 1) / p;
    const double all = request.collective == Collective::all_reduce ? 2 * part : part;
    const double reduced = request.collective == Collective::all_gather ? 0 : 2 * part;
    const Rounds rounds = rounds_for(request);
    return {rounds.longest_chain(), all, all, reduced, rounds.most_messages(p)};
  }
  std::vector<Border> borders(const Request& request) const override { return rounds_for(request).borders(request); }

  Schedule generate(const Request& request, int rank) const override {
    const int p = request.rank_count;
    Schedule out;
    out.blocks = std::uint32_t(p);
    switch (request.collective) {
      case Collective::all_gather: append_all_gather(rank, p, input(0), !request.in_place, out); break;
      case Collective::reduce_scatter: append_reduce_scatter(rank, p, output(0), out); break;
      default: append_reduce_scatter(rank, p, output(rank), out); append_all_gather(rank, p, output(rank), false, out);
    }
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    switch (request.collective) {
      case Collective::all_reduce:
      case Collective::reduce_scatter:
      case Collective::all_gather: return {};
      default: return "serves all_reduce, reduce_scatter and all_gather";
    }
  }
};

}  // namespace

const Generator& circulant() {
  static const Circulant generator;
  return generator;
}

}  // namespace tutti::algorithms
