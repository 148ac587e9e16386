#pragma once
// The machine as a tree of lines, and the links that run across it. It draws what outline() gives and decides nothing.
#include <string>
#include <vector>

#include "tools/topo_figures.h"
#include "topology/graph.h"

namespace tutti::tools {

// "machine: 2 packages, ..." and below it packages, NUMA nodes, bridges and devices; speeds refer to `notes`.
std::string tree_text(const topology::Graph& graph, Footnotes& notes);

// Links that are not the tree's own: between GPUs, to GPU switches, between packages; alike ones in one text.
std::vector<std::string> link_texts(const topology::Graph& graph, Footnotes& notes);

// "2 packages, 2 NUMA nodes, 8 GPUs (Tesla T4)": a model where all of a kind have it, if wanted.
std::string machine_text(const topology::Graph& graph, bool models);

// Memory, cores, CPUs and caches of a package or NUMA node, with commas between.
std::string contents_text(const topology::Graph& graph, int vertex);

// "2 packages", "1 GPU": a count and its noun.
std::string counted(std::size_t count, const std::string& noun);

}  // namespace tutti::tools
