#include "tests/topology/promises.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "topology/answers.h"
#include "topology/describe.h"
#include "topology/read.h"

namespace tutti::topology::test {
namespace {

constexpr char kName[] = "hostile";

nlohmann::json answers(const Graph& graph) {
  nlohmann::json all = describe(graph);
  for (const char* remark : {"notes", "distrusted", "xml_version"}) all.erase(remark);
  return all;
}

std::string broken_refusal(const Status& status) {
  if (status.code() != Code::invalid_argument && status.code() != Code::unsupported)
    return "refused as " + status.to_string();
  if (status.text().rfind("synthetic topology", 0) == 0) return "";      // named by its own text, with the position
  if (status.text().rfind(std::string(kName) + ":", 0) != 0) return "a refusal without the file: " + status.text();
  const bool place = status.text().size() > sizeof(kName) && status.text()[sizeof(kName)] >= '1' &&
                     status.text()[sizeof(kName)] <= '9';
  return place || status.code() == Code::unsupported || status.text().find("bytes; expected") != std::string::npos
             ? ""
             : "a refusal without a line: " + status.text();
}

std::string broken_hwloc_writing(const Graph& graph) {
  const Result<std::string> text = write_hwloc_xml(graph);
  if (!text.ok()) return text.status().code() == Code::unsupported ? "" : "not written: " + text.status().to_string();
  const Result<Graph> again = read_hwloc_xml(*text, kName);
  return again.ok() ? "" : "the hwloc XML that was written is refused: " + again.status().to_string();
}

// Written and read again: the same. Text that XML cannot carry (control characters) is the exception.
std::string broken_nccl_writing(const Graph& graph) {
  const Result<std::string> text = write_nccl_xml(graph);
  if (!text.ok()) return text.status().code() == Code::unsupported ? "" : "not written: " + text.status().to_string();
  const Result<Graph> again = read_nccl_xml(*text, kName);
  if (!again.ok()) return "what was written is refused: " + again.status().to_string();
  const nlohmann::json before = answers(graph), after = answers(*again);
  return before == after
             ? ""
             : "what was written reads differently: " +
                   nlohmann::json::diff(before, after).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string malformed(const Graph& graph) {
  const int count = int(graph.vertices.size());
  if (count == 0) return "no root";
  for (int v = 0; v < count; ++v)
    if (graph.vertices[std::size_t(v)].parent >= v || (v > 0 && graph.vertices[std::size_t(v)].parent < 0))
      return "a child before its parent";
  for (const Link& link : graph.links) {
    const bool out = link.kind == LinkKind::network && link.b == -1;
    if (link.a < 0 || link.a >= count || (!out && (link.b < 0 || link.b >= count)) || link.a == link.b ||
        link.count < 1)
      return "a link without two ends";
    for (const double figure : {link.bandwidth.value, link.latency.value})
      if (!std::isfinite(figure) || figure < 0) return "a figure that is none";
  }
  for (std::size_t r = 0; r < graph.relations.size(); ++r) {
    const Relation& relation = graph.relations[r];
    if (relation.a < 0 || relation.a >= relation.b || relation.b >= count) return "a relation without two ends";
    if (r > 0 && std::pair(graph.relations[r - 1].a, graph.relations[r - 1].b) >= std::pair(relation.a, relation.b))
      return "relations out of order";
  }
  std::set<int> numbers;
  for (const int gpu : graph.all(VertexKind::gpu))
    if (!numbers.insert(graph.vertices[std::size_t(gpu)].index).second) return "two GPUs of one number";
  return "";
}

std::string broken_promise(const TextReader& reader, const std::string& text) {
  const Result<Graph> graph = reader(text, kName);
  if (!graph.ok()) return broken_refusal(graph.status());
  if (std::string what = malformed(*graph); !what.empty()) return what;
  const nlohmann::json described = answers(*graph);
  std::vector<int> ring = best_ring(*graph).order;
  std::sort(ring.begin(), ring.end());
  for (std::size_t i = 0; i < ring.size(); ++i)
    if (ring[i] != int(i)) return "a ring that leaves out a GPU";
  if (std::string what = broken_hwloc_writing(*graph); !what.empty()) return what;
  return graph->format == "nccl-xml" ? broken_nccl_writing(*graph) : "";
}

}  // namespace tutti::topology::test
