#include "topology/package_guess.h"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::topology {
namespace {

// The most cores that one package of a processor has.
struct Processor {
  bool amd;
  int family, model, cores;
  const char* name;
};
constexpr Processor kProcessors[] = {
    {true, 23, 1, 32, "EPYC Naples"},
    {true, 23, 49, 64, "EPYC Rome"},
    {true, 25, 1, 64, "EPYC Milan"},
    {true, 25, 17, 96, "EPYC Genoa"},
    {true, 25, 160, 128, "EPYC Bergamo"},
    {true, 26, 2, 128, "EPYC Turin"},
    {true, 26, 17, 192, "EPYC Turin"},
    {false, 6, 85, 28, "Xeon Cascade Lake"},
    {false, 6, 106, 40, "Xeon Ice Lake"},
    {false, 6, 143, 60, "Xeon Sapphire Rapids"},
    {false, 6, 207, 64, "Xeon Emerald Rapids"},
    {false, 6, 173, 128, "Xeon Granite Rapids"},
};
constexpr int kTrentoFamily = 25, kTrentoModel = 48;

// A package whose kind is not known: fewer cores than this in all are one package with NPS4, more than kCertainlyTwo
// are two.
constexpr int kLikelyOne = 64, kCertainlyTwo = 128;

const Processor* processor_of(const NumaFacts& node) {
  for (const Processor& p : kProcessors)
    if (p.amd == node.amd && p.family == node.family && p.model == node.model) return &p;
  return nullptr;
}

// Second threads are numbered behind all first ones: two ranges of one length.
int cores_of(const CpuSet& cpus) {
  const auto& ranges = cpus.ranges();
  const auto length = [&](std::size_t i) { return ranges[i].second - ranges[i].first; };
  return ranges.size() == 2 && length(0) == length(1) ? cpus.count() / 2 : cpus.count();
}

PackageGuess split(const std::vector<NumaFacts>& nodes, int nodes_per_package, int count, std::string basis) {
  PackageGuess guess;
  for (const NumaFacts& node : nodes) guess.package.push_back(node.os_index / nodes_per_package);
  guess.count = count;
  guess.basis = std::move(basis);
  return guess;
}

// Nodes 0..3: two packages of two, or one of four. Their cores tell, where their number is known.
PackageGuess guess_of_four(const std::vector<NumaFacts>& nodes) {
  const Processor* processor = processor_of(nodes.front());
  int cores = 0;
  for (const NumaFacts& node : nodes) cores = std::max(cores, cores_of(node.cpus));
  const int total = 4 * cores;
  if (cores == 0) return {};
  if (processor != nullptr && total > processor->cores)
    return split(nodes, 2, 2,
                 fmt::format("inferred: four NUMA nodes with {} cores in all need two packages of {} (0,1 | 2,3)",
                             total, processor->name));
  if (processor == nullptr && total > kCertainlyTwo)
    return split(nodes, 2, 2,
                 fmt::format("inferred: four NUMA nodes with {} cores in all need two packages (0,1 | 2,3)", total));
  if (processor == nullptr && total <= kLikelyOne)
    return split(nodes, 4, 1,
                 fmt::format("assumed: four NUMA nodes with {} cores in all are one package in four parts", total));
  return {};
}

}  // namespace

int cpuid_family(int family_in_file, bool amd) {
  return amd && family_in_file > 127 && (family_in_file & 15) == 15 ? 15 + (family_in_file >> 4) : family_in_file;
}

PackageGuess guess_packages(const std::vector<NumaFacts>& nodes) {
  if (nodes.empty()) return {};
  int lowest = nodes.front().os_index, highest = lowest;
  bool steps_of_8 = true;
  for (const NumaFacts& node : nodes) {
    lowest = std::min(lowest, node.os_index);
    highest = std::max(highest, node.os_index);
    steps_of_8 = steps_of_8 && node.os_index % 8 == 0;
  }
  if (lowest < 0) return {};
  if (nodes.front().amd && nodes.front().family == kTrentoFamily && nodes.front().model == kTrentoModel)
    return split(nodes, highest + 1, 1, "inferred: EPYC Trento (family 25 model 48) nodes have one package");
  if (highest == 0) return split(nodes, 1, 1, "assumed: NUMA node 0 is the one package");
  if (highest == 1 && lowest == 0) return split(nodes, 1, 2, "assumed: NUMA nodes 0 and 1 are the two packages");
  if (highest >= 8 && steps_of_8 && highest < 64)
    return split(nodes, 8, highest / 8 + 1, "inferred: NUMA nodes numbered in steps of 8, one for each POWER package");
  if (highest == 2 || highest == 3) return guess_of_four(nodes);
  if (highest >= 4 && highest <= 7) return split(nodes, 4, 2, "inferred: NPS4 numbering over two packages (0-3 | 4-7)");
  return {};
}

}  // namespace tutti::topology
