#pragma once
// Readers and writers of topologies: every form that a machine's description comes in. A reader never crashes on what
// it is given and never believes absurd values: those are left out and listed in Graph::distrusted.
#include <cstdint>
#include <string>
#include <tutti/status.h>

#include "topology/graph.h"

namespace tutti::topology {

// This machine, by hwloc, /sys and NVML where they are: what this process may use (cgroup, affinity).
// unsupported: hwloc could not load it, and what it said.
Result<Graph> read_live();

// Any of the forms below, told apart by content. A folder, or a tar archive (.tar, .tar.gz, .tar.bz2): a snapshot of
// /sys as hwloc-gather-topology makes it. A text that is no file's name but reads like "numa:2 pu:4", or a file of one
// such line: hwloc synthetic. invalid_argument: file, line and what was expected; unsupported: a version that cannot be
// read, and what to do.
Result<Graph> read_file(const std::string& path);

// `name` is what errors call it.
Result<Graph> read_hwloc_xml(const std::string& text, const std::string& name);
Result<Graph> read_nccl_xml(const std::string& text, const std::string& name);     // NCCL's and RCCL's
Result<Graph> read_matrix(const std::string& text, const std::string& name);  // nvidia-smi topo -m, rocm-smi --showtopo
Result<Graph> read_synthetic(const std::string& text, const std::string& name);    // hwloc's "package:2 numa:2 pu:4"
Result<Graph> read_sysfs(const std::string& folder);                               // an unpacked snapshot

// What another tool can read; unsupported where the graph lacks what the format needs.
Result<std::string> write_hwloc_xml(const Graph& graph);
Result<std::string> write_nccl_xml(const Graph& graph);

}  // namespace tutti::topology
