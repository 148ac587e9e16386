#pragma once
// Promises: what must hold of a reader of topologies whatever it is given. Shared
// by the fuzz targets and the seeded mutations.
#include <functional>
#include <string>

#include <tutti/status.h>

#include "topology/graph.h"

namespace tutti::topology::test {

using TextReader = std::function<Result<Graph>(const std::string& text, const std::string& name)>;

// "": all holds. A refusal is invalid_argument or unsupported and names what was read and, where it is one of a place,
// the line; a graph is well-formed, has answers, and what it is written as reads back, NCCL's form to the same answers.
std::string broken_promise(const TextReader& reader, const std::string& text);

// "": a root comes first and parents before children, links and relations end at
// vertices, figures are numbers, GPU numbers differ.
std::string malformed(const Graph& graph);

}  // namespace tutti::topology::test
