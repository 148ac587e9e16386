#pragma once
// Place: where on its host a process runs, as far as its CPU affinity tells.
// Few small files are read; hwloc is not loaded.
#include <optional>
#include <string>

#include "topology/graph.h"

namespace tutti::topology {

// Indices of the operating system; -1: not tied to one.
struct Place {
  int package = -1, numa = -1;
  bool operator==(const Place&) const = default;
};

// Of these CPUs, by the files under `root`/sys/devices/system.
Place place_of(const CpuSet& cpus, const std::string& root = "");
// Those that the calling thread may run on; empty: the kernel does not tell.
CpuSet cpus_of_this_thread();
// Of the calling thread.
Place place_of_this_thread();

// "1/3": package 1, NUMA node 3; either may be left out. nullopt: something else.
std::optional<Place> parse_place(const std::string& text);

}  // namespace tutti::topology
