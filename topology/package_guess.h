#pragma once
// PackageGuess: which NUMA nodes share a package, where a source names only NUMA nodes (NCCL XML, nvidia-smi). A guess,
// with its reason; it never contradicts a source that names packages, and where nothing speaks for either side there is
// none.
#include <string>
#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

struct NumaFacts {
  int os_index = -1;
  CpuSet cpus;                  // empty: not known
  int family = -1, model = -1;  // of an AMD or Intel processor, as CPUID counts; -1: not known
  bool amd = false;
};

struct PackageGuess {
  std::vector<int> package;  // of each node, in the order given; empty: no guess
  int count = 0;
  std::string basis;  // "assumed: ...", "inferred: ..."
  bool operator==(const PackageGuess&) const = default;
};

// Nodes with distinct os_index.
PackageGuess guess_packages(const std::vector<NumaFacts>& nodes);

// NCCL writes AMD's extended family as (extension << 4) + 15: 143 is family 23.
int cpuid_family(int family_in_file, bool amd);

}  // namespace tutti::topology
