#pragma once
// The matrix that people know from `nvidia-smi topo -m`, for any graph: GPUs and NICs, or NUMA nodes and NICs where
// there are no GPUs. It tells how near two devices are, never how fast.
#include <string>
#include <vector>

#include "topology/graph.h"

namespace tutti::tools {

// X, NV#, XGMI, PIX, PXB, PHB, NODE, SYS; PKG between NUMA nodes of one package; "?" where the source does not tell.
// A source that prints labels is repeated.
class MatrixLabels {
 public:
  explicit MatrixLabels(const topology::Graph& graph);
  std::string between(int a, int b) const;

 private:
  std::string of_links(int a, int b) const;
  std::string of_tree(int a, int b) const;
  int bridges_below(int vertex, int ancestor) const;

  struct Linked {
    int to = -1;  // -1: a GPU switch
    topology::LinkKind kind = topology::LinkKind::nvlink;
    int count = 0;
  };
  const topology::Graph& graph_;
  std::vector<std::vector<Linked>> links_;  // of each vertex
  bool host_bridges_ = false;
};

// In blocks of columns that fit on kTextColumns, with the names of NICs and the legend below. "": nothing to compare.
std::string matrix_text(const topology::Graph& graph);

inline constexpr std::size_t kMostMatrixGpus = 64, kMostMatrixNodes = 16, kMostMatrixNics = 16;

}  // namespace tutti::tools
