#include "tools/topo_trees.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "algorithms/generate.h"
#include "comm/explanation.h"
#include "comm/machine_placement.h"
#include "core/config.h"
#include "tools/text_block.h"

namespace tutti::tools {
namespace {

constexpr std::size_t kMostTold = 160;   // characters of edges

std::string hops_text(const comm::Explanation& explanation) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < explanation.borders.size(); ++i)
    if (const int hops = explanation.candidates[0].hops[i]; hops > 0)
      parts.push_back(fmt::format("{} between {}s", hops, explanation.borders[i]));
  return fmt::format("{}", fmt::join(parts, ", ")) + " on the longest way";
}

}  // namespace

std::optional<Trees> choose_trees(const topology::Graph& graph, const RingChoice& ring) {
  const std::size_t members = ring.members.size();
  if (members < 2 || members > kMostTreeMembers) return std::nullopt;
  const Settings settings;
  const auto placed = comm::place_on(graph, int(members), 1, settings);
  if (!placed) return std::nullopt;
  const auto explanation =
      comm::explain(Collective::all_reduce, kTreesBytes, int(members), placed->placement, settings);
  if (!explanation) return std::nullopt;
  Trees out;
  out.algorithm = explanation->candidates[0].algorithm;
  out.hops = hops_text(*explanation);
  const auto schedule_of =
      algorithms::find_generator(out.algorithm)
          ->schedules(comm::request_on(placed->placement, Collective::all_reduce, int(members), settings));
  std::set<Trees::Edge> edges;
  for (int rank = 0; rank < int(members); ++rank)
    for (const algorithms::Step& step : schedule_of(rank).steps)
      if (step.kind == algorithms::StepKind::recv_reduce)
        for (const int peer : step.peers) edges.insert({peer, rank});
  out.edges.assign(edges.begin(), edges.end());
  return out;
}

std::string trees_text(const RingChoice& ring, const Trees& trees) {
  std::vector<std::string> edges;
  for (const Trees::Edge& edge : trees.edges) {
    const bool both = std::binary_search(trees.edges.begin(), trees.edges.end(), Trees::Edge{edge.to, edge.from});
    if (!both || edge.from < edge.to)
      edges.push_back(fmt::format("{}{}{}", ring.number(edge.from), both ? "-" : ">", ring.number(edge.to)));
  }
  return fmt::format("{} for {}: {}; sums go {}", trees.algorithm, to_text(kTreesBytes), trees.hops,
                     shortened(fmt::format("{}", fmt::join(edges, " ")), kMostTold));
}

}  // namespace tutti::tools
