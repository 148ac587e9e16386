// Dependencies: against the words of algorithms/schedule.h taken literally, chunk by chunk, pair by pair.
#include "comm/dependencies.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <tuple>

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
  bool writes;
};

std::vector<Access> accesses(const Request& request, int rank, std::uint32_t slices, const Step& step) {
  const Cells source = cells(request, rank, slices, step.source), target = cells(request, rank, slices, step.target);
  switch (step.kind) {
    case StepKind::send: return {{source, false}};
    case StepKind::recv: return {{target, true}};
    case StepKind::recv_reduce:
      if (source == target) return {{target, true}};  // element by element in place
      return {{source, false}, {target, true}};
    default: return {{source, false}, {target, true}};
  }
}

// Nothing, all of it, or byte by byte.
std::optional<bool> waits(const std::vector<Access>& earlier, const std::vector<Access>& later) {
  std::optional<bool> pipelined;
  for (const Access& e : earlier)
    for (const Access& l : later) {
      bool meet = false;
      for (const auto& cell : e.cells) meet = meet || l.cells.contains(cell);
      if (meet && (e.writes || l.writes)) pipelined = pipelined.value_or(true) && e.cells == l.cells;
    }
  return pipelined;
}

TEST(Dependencies, AreTheConflictsOnChunks) {
  const Collective all[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                            Collective::broadcast,  Collective::reduce,         Collective::gather,
                            Collective::scatter,    Collective::all_to_all};
  int found = 0, pipelined = 0;
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
              std::vector<std::pair<std::uint32_t, bool>> expected, got;
              for (std::uint32_t earlier = 0; earlier < later; ++earlier)
                if (const auto how = waits(touched[earlier], touched[later])) expected.emplace_back(earlier, *how);
              for (const Dependency& d : answer[later]) got.emplace_back(d.step, d.pipelined);
              ASSERT_EQ(got, expected) << g->name() << " " << name_of(what) << " rank " << rank << " of " << p
                                       << " step " << later;
              found += int(got.size());
              for (const auto& [step, how] : got) pipelined += how;
            }
          }
        }
  EXPECT_GT(pipelined, 1000);
  EXPECT_GT(found, pipelined);
}

}  // namespace
}  // namespace tutti::comm
