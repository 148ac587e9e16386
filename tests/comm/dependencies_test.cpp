// Dependencies: against the words of algorithms/schedule.h taken literally, chunk by chunk, pair by pair.
#include "comm/dependencies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "algorithms/generate.h"

namespace tutti::comm {
namespace {

using algorithms::Chunks;
using algorithms::Request;
using algorithms::Space;
using algorithms::Step;
using algorithms::StepKind;

using Cells = std::set<std::pair<int, std::uint32_t>>;  // memory: which buffer, which chunk of it

// In place there is one buffer besides scratch, the full one where the collective has a full one.
Cells cells(const Request& request, int rank, std::uint32_t slices, const Chunks& chunks) {
  const Collective c = request.collective;
  const bool own_input = c == Collective::all_gather || c == Collective::gather,
             own_output = c == Collective::reduce_scatter || c == Collective::scatter;
  Cells out;
  for (std::uint32_t i = chunks.first; i < chunks.first + chunks.count; ++i) {
    if (chunks.space == Space::scratch)
      out.emplace(2, i);
    else if (!request.in_place)
      out.emplace(chunks.space == Space::input ? 0 : 1, i);
    else
      out.emplace(0, i + ((chunks.space == Space::input ? own_input : own_output) ? std::uint32_t(rank) * slices : 0));
  }
  return out;
}

struct Access {
  Cells cells;
  Side side;
};

std::vector<Access> accesses(const Request& request, int rank, std::uint32_t slices, const Step& step) {
  const Cells source = cells(request, rank, slices, step.source), target = cells(request, rank, slices, step.target);
  switch (step.kind) {
    case StepKind::send: return {{source, Side::source}};
    case StepKind::recv: return {{target, Side::target}};
    case StepKind::recv_reduce:
      if (source == target) return {{target, Side::target}};  // element by element in place
      return {{source, Side::source}, {target, Side::target}};
    default: return {{source, Side::source}, {target, Side::target}};
  }
}

bool conflict(const Access& a, const Access& b) {
  if (a.side == Side::source && b.side == Side::source) return false;   // both read
  return std::any_of(a.cells.begin(), a.cells.end(), [&](const auto& cell) { return b.cells.contains(cell); });
}

TEST(Dependencies, AreTheConflictsOnChunks) {
  const Collective all[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                            Collective::broadcast,  Collective::reduce,         Collective::gather,
                            Collective::scatter,    Collective::all_to_all};
  int found = 0;
  for (const algorithms::Generator* g : algorithms::generators())
    for (const Collective what : all)
      for (const int p : {1, 2, 5, 8})
        for (const bool in_place : {false, true}) {
          Request request{.collective = what, .rank_count = p, .in_place = in_place};
          if (p > 2) request.levels = {std::vector<int>(std::size_t(p), 0)};
          for (int r = 3; p > 2 && r < p; ++r) request.levels[0][std::size_t(r)] = 1;
          if (!g->refusal(request).empty()) continue;
          for (int rank = 0; rank < p; ++rank) {
            const algorithms::Schedule schedule = g->generate(request, rank);
            const auto answer = find_dependencies(request, rank, schedule.slices, schedule.steps);
            ASSERT_EQ(answer.size(), schedule.steps.size());
            std::vector<std::vector<Access>> touched;
            for (const Step& step : schedule.steps) touched.push_back(accesses(request, rank, schedule.slices, step));
            for (std::size_t later = 0; later < touched.size(); ++later) {
              std::vector<Dependency> expected;
              for (std::uint32_t earlier = 0; earlier < later; ++earlier)
                for (const Access& e : touched[earlier])
                  for (const Access& l : touched[later])
                    if (conflict(e, l)) expected.push_back({earlier, e.side, l.side});
              std::sort(expected.begin(), expected.end());
              ASSERT_TRUE(answer[later] == expected) << g->name() << " " << name_of(what) << " rank " << rank << " of "
                                                     << p << " step " << later;
              found += int(expected.size());
            }
          }
        }
  EXPECT_GT(found, 1000);
}

}  // namespace
}  // namespace tutti::comm
