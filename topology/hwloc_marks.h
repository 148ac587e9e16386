#pragma once
// HwlocMarks: what a Graph says and hwloc has no place for, as infos of its objects, so that a Graph of any source
// survives the way through hwloc's XML: numbers of vertices, kinds of devices without an address, figures with their
// origin, labels of pairs. Other tools show the infos and pass them on.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topology/graph.h"
#include "topology/hwloc_object.h"

namespace tutti::topology {

class HwlocMarks {
 public:
  using Infos = std::vector<std::pair<std::string, std::string>>;

  static Infos of_vertex(const Graph& graph, int vertex);
  static Infos of_graph(const Graph& graph);  // for the root, beside its own
  static Infos invented();                    // of an object that hwloc needs and the Graph lacks

  static std::optional<VertexKind> kind(const HwlocObject& object);
  static void drop_invented(HwlocObject& root);
  // The object outlives this.
  void remember(const HwlocObject& object, int vertex) { placed_.emplace_back(&object, vertex); }
  // False: the file was not written by this library. Links and relations become those of the marks; ends that are gone
  // are distrusted.
  bool apply(const HwlocObject& root, Graph& graph) const;

 private:
  std::vector<std::pair<const HwlocObject*, int>> placed_;
};

}  // namespace tutti::topology
