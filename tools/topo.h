#pragma once
// `tutti topo`: this machine, or one that a file describes, as a page for people, JSON, a picture, or a file for other
// tools.
#include <tutti/status.h>
#include <CLI/CLI.hpp>
#include <string>

#include "topology/graph.h"

namespace tutti::tools {

void add_topo(CLI::App& app, int& status);

// What --file takes: any input of topology::read_file, "-" for standard input, "" for this machine.
Result<topology::Graph> read_topology(const std::string& file);

// describe() with source, format, distrusted and notes, always; one object, indented, ended.
std::string topo_json(const topology::Graph& graph);

// What TUTTI_TOPOLOGY_DUMP names: NCCL XML where the name ends in .nccl.xml, else hwloc XML.
Status dump_topology(const topology::Graph& graph, const std::string& file);

}  // namespace tutti::tools
