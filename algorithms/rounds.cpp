#include "algorithms/rounds.h"

#include <algorithm>

#include "algorithms/steps.h"

namespace tutti::algorithms {

Rounds::Receivers around_by(int distance, int rank_count) {
  return [=](int rank, std::vector<int>& out) { out.push_back(wrap(rank + distance, rank_count)); };
}

void Rounds::add(Receivers to, double part, int sent, int received, int count) {
  Round round{std::move(to), part, received, count};
  for (std::size_t j = 0; j < rounds_.size(); ++j) {
    const int first = rounds_[j].received, end = first + rounds_[j].count;
    const std::uint64_t bit = std::uint64_t(1) << j;
    if (first < sent + count && sent < end) round.carries |= bit;
    if (first < received + count && received < end) round.meets |= bit;
  }
  rounds_.push_back(std::move(round));
}

int Rounds::messages(const Round& round, int rank, int rank_count) {
  return round.first >= 0 && wrap(rank + round.first, rank_count) + round.count > rank_count ? 2 : 1;
}

int Rounds::longest_chain() const {
  std::vector<int> depth;
  for (const Round& round : rounds_) {
    int before = 0;
    for (std::size_t j = 0; j < depth.size(); ++j)
      if ((round.carries | round.meets) >> j & 1) before = std::max(before, depth[j]);
    depth.push_back(before + 1);
  }
  return depth.empty() ? 0 : *std::max_element(depth.begin(), depth.end());
}

int Rounds::most_messages(int rank_count) const {
  int most = 0;
  for (int rank = 0; rank < rank_count; ++rank) {
    int sent = 0;
    for (const Round& round : rounds_) sent += messages(round, rank, rank_count);
    most = std::max(most, sent);
  }
  return most;
}

std::vector<Border> Rounds::borders(const Request& request) const {
  const int p = request.rank_count;
  Traffic traffic(request);
  std::vector<std::vector<Hops>> came;   // by round, rank: the longest chain to what it was sent
  const auto longest = [&](std::uint64_t rounds, int rank) {
    Hops most = 0;
    for (std::size_t j = 0; rounds >> j; ++j)
      if (rounds >> j & 1) most = std::max(most, came[j][std::size_t(rank)]);
    return most;
  };
  Hops most = 0;
  std::vector<int> receivers;
  for (const Round& round : rounds_) {
    std::vector<Hops> coming(std::size_t(p), 0);
    for (int rank = 0; rank < p; ++rank) {
      receivers.clear();
      round.to(rank, receivers);
      Hops chain =
          longest(round.carries, rank);  // a multicast happens at once: for all receivers what the last one waits for
      int outermost = kMaxLevels;
      for (const int peer : receivers) {
        const int border = border_between(request, rank, peer);
        traffic.add(rank, border, round.part, messages(round, rank, p));
        outermost = std::min(outermost, border);
        chain = std::max(chain, longest(round.meets, peer));
      }
      if (receivers.empty()) continue;
      chain += hop_over(outermost);
      for (const int peer : receivers) coming[std::size_t(peer)] = chain;
      most = std::max(most, chain);
    }
    came.push_back(std::move(coming));
  }
  return traffic.borders(most);
}

}  // namespace tutti::algorithms
