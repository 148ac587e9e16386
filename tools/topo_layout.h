#pragma once
// Layout: boxes within boxes for an Outline, so placed that the ring runs round: what holds its first half stands
// above, the second half below it and mirrored. Pixels, y downwards. It knows no colours and writes nothing.
#include <string>
#include <vector>

#include "tools/topo_outline.h"
#include "tools/topo_ring.h"

namespace tutti::tools {

struct Box {
  int vertex = -1;
  int member = -1;  // position in RingChoice::members
  double x = 0, y = 0, width = 0, height = 0;
  std::vector<std::string> lines;  // the title first; they fit
  std::string told;                // all of it, for who points at the box
  std::vector<Box> children;

  bool split = false;  // its children stand in two rows for the ring, with a gutter at each side
  double head = 0;     // height of the lines
  double ring_x() const { return x + width / 2; }  // where the ring passes through a member
  double ring_y() const { return y + head + 11; }
};

Box layout(const topology::Graph& graph, const OutlineNode& root, const RingChoice& ring);

inline constexpr double kTitleHeight = 17, kLineHeight = 13, kRingStrip = 22, kPadding = 10, kRowGap = 34, kGutter = 22;
inline constexpr double kCharacter = 6.3, kTitleCharacter = 7.2;  // widths, generous

}  // namespace tutti::tools
