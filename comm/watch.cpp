#include "comm/watch.h"

#include <algorithm>

namespace tutti::comm {

const Report* Watch::fresh(int rank, TimePoint since) const {
  const auto at = heard_.find(rank);
  return at != heard_.end() && at->second.at >= since ? &at->second.report : nullptr;
}

std::set<int> Watch::reached(const Question& question) const {
  std::set<int> seen;
  std::vector<int> work = question.awaited;
  while (!work.empty()) {
    const int rank = work.back();
    work.pop_back();
    if (!seen.insert(rank).second) continue;
    if (const Report* report = fresh(rank, question.fresh))
      work.insert(work.end(), report->waits_for.begin(), report->waits_for.end());
  }
  return seen;
}

Holdup Watch::find(const Question& question) const {
  Holdup absent;
  const std::set<int> seen = reached(question);
  for (const int rank : seen) {
    const Report* report = fresh(rank, question.fresh);
    if (!report) return {Holdup::Why::silent, rank};
    const bool called = question.collective && std::int32_t(report->started - question.sequence) > 0;
    if (absent.rank < 0 && !called && report->waits_for.empty()) absent = {Holdup::Why::absent, rank, report->started};
  }
  if (absent.rank >= 0) return absent;
  return {Holdup::Why::stuck,
          question.awaited.empty() ? -1 : *std::min_element(question.awaited.begin(), question.awaited.end())};
}

std::set<int> Watch::to_ask(const Question& question, TimePoint since) const {
  if (all_asked_ > since) return {};
  std::set<int> out = reached(question);
  std::erase_if(out, [&](int rank) {
    const auto at = asked_.find(rank);
    return at != asked_.end() && at->second > since;
  });
  return out;
}

}  // namespace tutti::comm
