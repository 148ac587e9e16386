#pragma once
// The requests that the tests of this folder go through: collectives, rank counts, roots, groupings, in place or not.
#include <string>
#include <vector>
#include "algorithms/generate.h"

namespace tutti::algorithms::test {

inline constexpr Collective kCollectives[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
    Collective::reduce,     Collective::gather,         Collective::scatter,    Collective::all_to_all};

inline bool has_root(Collective what) {
  return what == Collective::broadcast || what == Collective::reduce || what == Collective::gather ||
         what == Collective::scatter;
}

// All roots of small communicators; the ends, the middle and their neighbours of larger ones.
inline std::vector<int> roots(Collective what, int rank_count) {
  if (!has_root(what)) return {0};
  if (rank_count > 9) return {0, 1, rank_count / 2, rank_count - 1};
  std::vector<int> all;
  for (int root = 0; root < rank_count; ++root) all.push_back(root);
  return all;
}

using Levels = std::vector<std::vector<int>>;

// group_of for groups of the given sizes, in order; the last size repeats until all ranks have a group.
inline std::vector<int> grouped(int rank_count, const std::vector<int>& sizes) {
  std::vector<int> group_of;
  for (std::size_t group = 0; int(group_of.size()) < rank_count; ++group) {
    const int size = sizes[std::min(group, sizes.size() - 1)];
    for (int i = 0; i < size && int(group_of.size()) < rank_count; ++i) group_of.push_back(int(group));
  }
  return group_of;
}

// Neighbours together, unequal, dealt out in turn, one big and single ones, one group, and two and three levels.
inline std::vector<Levels> groupings(int rank_count) {
  std::vector<int> dealt, halves;
  for (int rank = 0; rank < rank_count; ++rank) dealt.push_back(rank % std::min(3, rank_count));
  std::vector<Levels> all = {
      {grouped(rank_count, {2})},
      {grouped(rank_count, {4})},
      {grouped(rank_count, {3, 1, 2, 5})},
      {grouped(rank_count, {1, 1, rank_count})},
      {grouped(rank_count, {rank_count})},
      {grouped(rank_count, {1})},
      {dealt},
      {grouped(rank_count, {8}), grouped(rank_count, {2})},
      {grouped(rank_count, {6, 5}), grouped(rank_count, {3, 3, 2, 3})},
      {grouped(rank_count, {16}), grouped(rank_count, {8}), grouped(rank_count, {4})},
  };
  return all;
}

inline std::string described(const Request& request) {
  std::string text = std::string(name_of(request.collective)) + " ranks " + std::to_string(request.rank_count) +
                     " root " + std::to_string(request.root) + (request.in_place ? " in place" : "");
  for (const auto& level : request.levels) {
    text += " [";
    for (int group : level) text += std::to_string(group) + " ";
    text += "]";
  }
  for (std::size_t i = 0; i < request.order.size(); ++i)
    text += (i == 0 ? " order " : ",") + std::to_string(request.order[i]);
  if (request.channels != 1) text += " channels " + std::to_string(request.channels);
  return text;
}

// Every request of `rank_count` ranks that the generator serves.
inline std::vector<Request> requests(const Generator& generator, int rank_count) {
  std::vector<Request> all;
  const auto add = [&](const Request& request) {
    if (generator.refusal(request).empty()) all.push_back(request);
  };
  for (Collective what : kCollectives) {
    for (int root : roots(what, rank_count)) {
      for (bool in_place : {false, true}) {
        Request request{.collective = what, .rank_count = rank_count, .root = root, .in_place = in_place, .levels = {}};
        const bool along = generator.name() == "ring" || generator.name() == "bidirectional_ring";
        if (generator.name() != "hierarchical") add(request);
        if (generator.name() != "hierarchical" && !along) continue;
        for (const Levels& levels : groupings(rank_count)) {
          request.levels = levels;
          add(request);
        }
        if (!along) continue;
        for (int rank = rank_count; rank > 0; --rank) request.order.push_back((rank * 7 + 3) % rank_count);
        for (request.channels = 2; request.channels < 6 && rank_count % 7 != 0 && rank_count <= 12;
             ++request.channels) {
          request.levels = groupings(rank_count)[std::size_t(request.channels)];
          add(request);
        }
      }
    }
  }
  return all;
}

}  // namespace tutti::algorithms::test
