#include "tools/topo_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tools/text_block.h"
#include "tools/topo_figures.h"
#include "tools/topo_tree.h"

namespace tutti::tools {
namespace {

using topology::Graph;
using topology::Vertex;
using topology::VertexKind;

constexpr double kDevice = 106;  // width of a box without boxes in it
constexpr double kLeastMachine = 420;
constexpr double kMostHeadWidth = 340,
                 kCrowdedHeadWidth = 170;  // what lines alone may widen a box to, with few members and many
constexpr std::size_t kCrowd = 12;
constexpr int kNowhere = -1;

void move(Box& box, double dx, double dy) {
  box.x += dx;
  box.y += dy;
  for (Box& child : box.children) move(child, dx, dy);
}

// Makes a box higher and wider. Each row of what is in it goes to the middle; a single box with boxes in it takes the
// whole width.
void stretch(Box& box, double width, double height) {
  box.width = width;
  box.height = height;
  const double side = kPadding + (box.split ? kGutter : 0);
  for (std::size_t first = 0, end = 0; first < box.children.size(); first = end) {
    while (end < box.children.size() && box.children[end].y == box.children[first].y) ++end;
    Box &left = box.children[first], &right = box.children[end - 1];
    if (end - first == 1 && !left.children.empty()) {
      move(left, box.x + side - left.x, 0);
      stretch(left, width - 2 * side, left.height);
      continue;
    }
    const double shift = box.x + (width - (right.x + right.width - left.x)) / 2 - left.x;
    for (std::size_t i = first; i < end; ++i) move(box.children[i], shift, 0);
  }
}

class Layout {
 public:
  Layout(const Graph& graph, const RingChoice& ring)
      : graph_(graph),
        place_(graph.vertices.size(), kNowhere),
        member_(place_),
        crowded_(ring.members.size() > kCrowd) {
    for (std::size_t i = 0; i < ring.chosen.order.size(); ++i) {
      const int position = ring.chosen.order[i];
      member_[std::size_t(ring.members[std::size_t(position)])] = position;
      place_[std::size_t(ring.members[std::size_t(position)])] = int(i);
    }
  }

  Box place(const OutlineNode& node, bool mirrored, bool split) const {
    Box box;
    box.vertex = node.vertex;
    box.member = member_[std::size_t(node.vertex)];
    describe(node, box);
    std::vector<const OutlineNode*> round, rest;
    for (const OutlineNode& child : node.children) (first_place(child) == kNowhere ? rest : round).push_back(&child);
    std::sort(round.begin(), round.end(), [&](const OutlineNode* a, const OutlineNode* b) {
      return mirrored ? first_place(*a) > first_place(*b) : first_place(*a) < first_place(*b);
    });
    double y = box.head + (box.member >= 0 ? kRingStrip : 0);
    double width = node.children.empty() ? kDevice : 0;
    box.split = split && round.size() > 1;
    if (box.split) {
      const std::size_t half = half_of(round);
      add_row(box, {round.begin(), round.begin() + std::ptrdiff_t(half)}, false, false, y, width);
      std::vector<const OutlineNode*> back(round.rbegin(), round.rend() - std::ptrdiff_t(half));
      y += kRowGap - kPadding;
      add_row(box, back, true, false, y, width);
    } else {
      add_row(box, round, mirrored, split, y, width);
    }
    add_rest(box, rest, y, width);
    finish(box, y, width);
    return box;
  }

 private:
  // Of the earliest member at or below a node, kNowhere: none.
  int first_place(const OutlineNode& node) const {
    int first = place_[std::size_t(node.vertex)];
    for (const OutlineNode& child : node.children) {
      const int other = first_place(child);
      if (other != kNowhere && (first == kNowhere || other < first)) first = other;
    }
    return first;
  }

  std::size_t members_of(const OutlineNode& node) const {
    std::size_t count = place_[std::size_t(node.vertex)] != kNowhere;
    for (const OutlineNode& child : node.children) count += members_of(child);
    return count;
  }

  // How many of the children hold about half of the members.
  std::size_t half_of(const std::vector<const OutlineNode*>& children) const {
    std::size_t all = 0, sum = 0, count = 0;
    for (const OutlineNode* child : children) all += members_of(*child);
    while (count + 1 < children.size() && (count == 0 || 2 * sum < all)) sum += members_of(*children[count++]);
    return count;
  }

  void add_row(Box& box, const std::vector<const OutlineNode*>& nodes, bool mirrored, bool split, double& y,
               double& width) const {
    std::vector<Box> row;
    for (const OutlineNode* node : nodes) row.push_back(place(*node, mirrored, split));
    add(box, row, y, width);
  }

  // Side by side, all of one height.
  void add(Box& box, std::vector<Box>& row, double& y, double& width) const {
    if (row.empty()) return;
    double x = kPadding, height = 0;
    for (const Box& child : row) height = std::max(height, child.height);
    for (Box& child : row) {
      if (!child.children.empty()) stretch(child, child.width, height);
      move(child, x, y);
      x += child.width + kPadding;
      box.children.push_back(std::move(child));
    }
    width = std::max(width, x);
    y += height + kPadding;
  }

  // What the ring does not pass, in as many rows as the width asks for.
  void add_rest(Box& box, const std::vector<const OutlineNode*>& nodes, double& y, double& width) const {
    const double most = std::max(width, kMostHeadWidth + 2 * kPadding);
    std::vector<Box> row;
    double x = kPadding;
    for (const OutlineNode* node : nodes) {
      Box child = place(*node, false, false);
      if (!row.empty() && x + child.width + kPadding > most) {
        add(box, row, y, width);
        row.clear();
        x = kPadding;
      }
      x += child.width + kPadding;
      row.push_back(std::move(child));
    }
    add(box, row, y, width);
  }

  void finish(Box& box, double y, double width) const {
    for (std::size_t i = 0; i < box.lines.size(); ++i)
      width = std::max(width, std::min(crowded_ ? kCrowdedHeadWidth : kMostHeadWidth,
                                       double(columns(box.lines[i])) * (i == 0 ? kTitleCharacter : kCharacter)) +
                                  2 * kPadding);
    if (box.vertex == 0) width = std::max(width, kLeastMachine);
    stretch(box, width + (box.split ? 2 * kGutter : 0), box.children.empty() ? y + 4 : y);
    fit(box);
  }

  // Cuts lines that do not fit.
  static void fit(Box& box) {
    for (std::size_t i = 0; i < box.lines.size(); ++i)
      box.lines[i] = shortened(box.lines[i], std::size_t((box.width - 12) / (i == 0 ? kTitleCharacter : kCharacter)));
  }

  void describe(const OutlineNode& node, Box& box) const {
    const Vertex& v = graph_.vertices[std::size_t(node.vertex)];
    const std::string name = v.kind == VertexKind::gpu_switch && !node.more.empty()
                                 ? counted(node.more.size() + 1, "GPU switch")
                                 : title(graph_, node.vertex);
    const std::string rate = node.speed.known() ? rate_text(node.speed.value) : "";
    box.lines.push_back(name);
    if (v.kind == VertexKind::machine) box.lines.push_back(machine_text(graph_, false));
    if (v.kind == VertexKind::package && !model(v).empty()) box.lines.push_back(model(v));
    if (v.kind == VertexKind::numa) box.lines.push_back(contents_text(graph_, node.vertex));
    if (v.kind == VertexKind::gpu || v.kind == VertexKind::accelerator)
      if (!bus_id(v).empty() && bus_id(v) != name) box.lines.push_back(bus_id(v));
    if (!rate.empty()) box.lines.push_back("PCI " + rate);
    if (v.kind == VertexKind::nic)
      if (const auto speed = port_speed(graph_, node.vertex); speed.known())
        box.lines.push_back("port " + rate_text(speed.value));
    if (!node.more.empty() && v.kind != VertexKind::gpu_switch)
      box.lines.push_back(fmt::format("and {} more", node.more.size()));
    if (box.lines.back().empty()) box.lines.pop_back();
    box.head = 6 + kTitleHeight + kLineHeight * double(box.lines.size() - 1) + 2;
    box.told = name;
    for (const std::string& text : {model(v), bus_id(v), rate, rate.empty() ? "" : printable(node.speed.source)})
      if (!text.empty()) box.told += ", " + text;
    for (const int bridge : node.via) box.told += ", via " + title(graph_, bridge);
  }

  const Graph& graph_;
  std::vector<int> place_;  // in the ring, of each vertex
  std::vector<int> member_;
  bool crowded_;
};

}  // namespace

Box layout(const Graph& graph, const OutlineNode& root, const RingChoice& ring) {
  return Layout(graph, ring).place(root, false, true);
}

}  // namespace tutti::tools
