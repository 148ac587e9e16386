#include "algorithms/nest.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

namespace tutti::algorithms {

Nest::Level Nest::numbered(const std::vector<int>& group_of) {
  Level level;
  std::map<int, int> number;
  for (std::size_t rank = 0; rank < group_of.size(); ++rank) {
    const auto [at, fresh] = number.try_emplace(group_of[rank], int(level.members.size()));
    if (fresh) level.members.emplace_back();
    level.of.push_back(at->second);
    level.members[std::size_t(at->second)].push_back(int(rank));
  }
  return level;
}

std::string_view Nest::refusal(const Request& request) {
  const std::size_t p = std::size_t(request.rank_count);
  const std::vector<int>* outer = nullptr;
  bool divides = false;
  for (const std::vector<int>& level : request.levels) {
    if (level.size() != p) return "a level must name a group for every rank";
    std::map<int, int> outer_of;
    for (std::size_t rank = 0; outer != nullptr && rank < p; ++rank) {
      if (outer_of.try_emplace(level[rank], (*outer)[rank]).first->second != (*outer)[rank])
        return "groups must lie within groups";
    }
    const std::size_t groups = numbered(level).members.size();
    divides = divides || (groups > 1 && groups < p);
    outer = &level;
  }
  return divides ? "" : "needs groups of more than one rank and less than all";
}

Nest::Nest(const Request& request) {
  std::vector<int> alone(std::size_t(request.rank_count));
  levels_.push_back(numbered(alone));
  std::iota(alone.begin(), alone.end(), 0);
  const auto add = [&](const std::vector<int>& group_of) {
    Level level = numbered(group_of);
    if (level.members.size() > levels_.back().members.size()) levels_.push_back(std::move(level));
  };
  for (const std::vector<int>& group_of : request.levels) add(group_of);
  add(alone);
}

std::vector<const std::vector<int>*> Nest::parts(int level, int rank) const {
  std::vector<const std::vector<int>*> out;
  for (int member : group(level, rank)) {
    const std::vector<int>& part = group(level + 1, member);
    if (part.front() == member) out.push_back(&part);
  }
  return out;
}

// Products of two numbers up to the rank count: beyond 46,340 ranks they need 64 bits.
int Nest::share_begin(int index, std::size_t size) const {
  return int(std::int64_t(index) * rank_count() / std::int64_t(size));
}

Nest::Run Nest::share(int level, int rank) const {
  const std::vector<int>& mine = group(level, rank);
  const int index = int(std::lower_bound(mine.begin(), mine.end(), rank) - mine.begin());
  return {share_begin(index, mine.size()), share_begin(index + 1, mine.size())};
}

int Nest::holder(const std::vector<int>& group, int block) const {
  return group[std::size_t(((std::int64_t(block) + 1) * std::int64_t(group.size()) - 1) / rank_count())];
}

std::vector<Nest::Run> Nest::pieces(int level, int rank) const {
  std::vector<bool> cut(std::size_t(rank_count()) + 1, false);
  const auto cut_for = [&](const std::vector<int>& shared) {
    for (int i = 0; i <= int(shared.size()); ++i) cut[std::size_t(share_begin(i, shared.size()))] = true;
  };
  cut_for(group(level, rank));
  for (const std::vector<int>* part : parts(level, rank)) cut_for(*part);
  std::vector<Run> out;
  int first = 0;
  for (int block = 1; block <= rank_count(); ++block) {
    if (cut[std::size_t(block)]) out.push_back({std::exchange(first, block), block});
  }
  return out;
}

int Nest::speaker(const std::vector<int>& group, int root) {
  return std::binary_search(group.begin(), group.end(), root) ? root : group.front();
}

bool Nest::in_order() const {
  for (const Level& level : levels_) {
    for (const std::vector<int>& group : level.members) {
      if (group.back() - group.front() != int(group.size()) - 1) return false;
    }
  }
  return true;
}

}  // namespace tutti::algorithms
