#pragma once
// The words that generators write schedules with. No algorithm lives here.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>
#include "algorithms/schedule.h"

namespace tutti::algorithms {

constexpr Chunks input(int first, int count = 1) { return {Space::input, std::uint32_t(first), std::uint32_t(count)}; }
constexpr Chunks output(int first, int count = 1) {
  return {Space::output, std::uint32_t(first), std::uint32_t(count)};
}
constexpr Chunks scratch(int first, int count = 1) {
  return {Space::scratch, std::uint32_t(first), std::uint32_t(count)};
}
constexpr Chunks nothing() { return {}; }

inline Step send(Chunks source, std::vector<int> receivers) {
  return {.kind = StepKind::send, .source = source, .target = {}, .peers = std::move(receivers)};
}
inline Step send(Chunks source, int receiver) { return send(source, std::vector<int>{receiver}); }
inline Step recv(Chunks target, int sender) {
  return {.kind = StepKind::recv, .source = {}, .target = target, .peers = {sender}};
}
inline Step recv_reduce(Chunks target, Chunks own, std::vector<int> senders, bool completes) {
  std::sort(senders.begin(), senders.end());
  return {.kind = StepKind::recv_reduce,
          .source = own,
          .target = target,
          .peers = std::move(senders),
          .completes = completes};
}
inline Step copy(Chunks target, Chunks source) {
  return {.kind = StepKind::copy, .source = source, .target = target, .peers = {}};
}
inline Step reduce(Chunks target, Chunks source, bool completes) {
  return {.kind = StepKind::reduce, .source = source, .target = target, .peers = {}, .completes = completes};
}

// i modulo n, in 0..n-1 for a negative i too.
constexpr int wrap(int i, int n) { return ((i % n) + n) % n; }

constexpr int log2_ceil(int n) {   // the rounds that n ranks need at least: the least k with 2^k >= n
  int k = 0;
  while ((1 << k) < n) ++k;
  return k;
}

// The longest chain among the ceil(log2 p) messages of one rank when distances double and the last round sends only
// what is still missing: with at most three quarters of 2^k ranks that is nothing of what the round before brought.
constexpr int doubling_chain(int n) {
  const int rounds = log2_ceil(n);
  return 4 * n <= (3 << rounds) && n > 2 ? rounds - 1 : rounds;
}

// rank+1, rank+2, ... around to rank-1: every rank begins with another peer, so that nobody is everybody's first.
inline std::vector<int> peers_after(int rank, int rank_count) {
  std::vector<int> peers;
  for (int k = 1; k < rank_count; ++k) peers.push_back(wrap(rank + k, rank_count));
  return peers;
}
// rank-1, rank-2, ...: the order in which peers_after() of the others reaches this rank.
inline std::vector<int> peers_before(int rank, int rank_count) {
  std::vector<int> peers;
  for (int k = 1; k < rank_count; ++k) peers.push_back(wrap(rank - k, rank_count));
  return peers;
}

// Why no generator at all could serve this request; empty when one could.
inline std::string_view common_refusal(const Request& request) {
  switch (request.collective) {
    case Collective::barrier: return "a barrier has no data: it runs as an all_reduce of nothing";
    case Collective::send:
    case Collective::recv: return "send and recv are single messages and need no schedule";
    default: break;
  }
  if (request.rank_count < 1) return "needs at least one rank";
  if (request.root < 0 || request.root >= request.rank_count) return "root is not a rank";
  if (request.channels < 1) return "needs at least one channel";
  if (!request.order.empty() && int(request.order.size()) != request.rank_count) return "the order is not of all ranks";
  return {};
}

}  // namespace tutti::algorithms
