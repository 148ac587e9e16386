#include "tools/topo_svg.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tools/text_block.h"
#include "tools/topo_figures.h"
#include "tools/topo_layout.h"
#include "tools/topo_text.h"
#include "tools/topo_tree.h"
#include "tools/topo_trees.h"

namespace tutti::tools {
namespace {

using topology::Graph;
using topology::LinkKind;
using topology::VertexKind;

constexpr double kMargin = 16, kHeader = 30, kFootLine = 16;
constexpr int kTints = 8;

// Attributes of presentation for light; the second block for dark pages, where the viewer asks for it.
constexpr const char* kStyle = R"(<style>
text{font-family:"Helvetica Neue",Arial,"Liberation Sans",sans-serif;font-size:11px;fill:#5b6673}
.title{font-size:12px;font-weight:bold;fill:#1c2430}.big{font-size:15px;font-weight:bold;fill:#1c2430}
.page{fill:#ffffff}.machine{fill:#f6f7f9;stroke:#b8c0c9}.package{fill:#e9eef6;stroke:#93a6c1}.numa{fill:#dce6f2;stroke:#7d97b8}
.bridge{fill:#fbf6ea;stroke:#c9a964}.nic{fill:#e3f3ea;stroke:#4f9a73}.other{fill:#eeeeee;stroke:#8a8a8a}.gpu{fill:#ffffff;stroke:#56657a}
.ring{fill:none;stroke:#c2255c;stroke-width:3.5}.cross{stroke:#e8590c;stroke-dasharray:9 4}
.tree{fill:none;stroke:#1864ab;stroke-width:1.6;stroke-opacity:.75}.tree-cross{stroke-dasharray:6 3}.tree-tip{fill:#1864ab}
.dot,.tip{fill:#c2255c}.cross-tip{fill:#e8590c}.wire{fill:none;stroke:#2b8a3e;stroke-opacity:.5}.socket{stroke:#5b6673;stroke-width:5;stroke-opacity:.6}
.g0{fill:#d6e8ff}.g1{fill:#ffe3d1}.g2{fill:#dff3d8}.g3{fill:#efdcfa}.g4{fill:#fff0bf}.g5{fill:#d3f1f0}.g6{fill:#fbdbe6}.g7{fill:#e4e2d4}
.group{fill-opacity:.4;stroke:#8793a1;stroke-dasharray:2 3}
@media (prefers-color-scheme:dark){
text{fill:#a9b4bf}.title,.big{fill:#e8edf2}
.page{fill:#14181d}.machine{fill:#1a1f26;stroke:#48525e}.package{fill:#212a36;stroke:#506480}.numa{fill:#293646;stroke:#5d7797}
.bridge{fill:#332d20;stroke:#8c7747}.nic{fill:#1d382b;stroke:#4f9a73}.other{fill:#2c2c2c;stroke:#777777}.gpu{fill:#20262e;stroke:#8493a8}
.ring{stroke:#f06595}.cross{stroke:#ff922b}.dot,.tip{fill:#f06595}.cross-tip{fill:#ff922b}.wire{stroke:#69db7c}.socket{stroke:#a9b4bf}
.tree{stroke:#74c0fc}.tree-tip{fill:#74c0fc}
.g0{fill:#1f3f66}.g1{fill:#5f3620}.g2{fill:#2c4a24}.g3{fill:#46305a}.g4{fill:#54461a}.g5{fill:#1f4a49}.g6{fill:#5a2c3d}.g7{fill:#45433a}
.group{stroke:#77828e}
}
</style>
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

const char* class_of(VertexKind kind) {
  switch (kind) {
    case VertexKind::machine: return "machine";
    case VertexKind::package: return "package";
    case VertexKind::numa: return "numa";
    case VertexKind::host_bridge:
    case VertexKind::pci_bridge: return "bridge";
    case VertexKind::gpu: return "gpu";
    case VertexKind::nic: return "nic";
    default: return "other";
  }
}

struct Point {
  double x = 0, y = 0;
};

class Picture {
 public:
  explicit Picture(const Graph& graph)
      : graph_(graph),
        ring_(choose_ring(graph)),
        trees_(choose_trees(graph, ring_)),
        root_(layout(graph, outline(graph), ring_)),
        group_(ring_.members.size(), -1) {
    if (ring_.groups)
      for (std::size_t g = 0; g < ring_.groups->size(); ++g)
        for (const int position : (*ring_.groups)[g]) group_[std::size_t(position)] = int(g);
    boxes_.resize(ring_.members.size());
    below_.resize(ring_.members.size());
  }

  std::string text() {
    shift(root_, kMargin, kMargin + kHeader);
    find(root_);
    for (const int position : ring_.chosen.order)
      if (boxes_[std::size_t(position)]) drawn_.push_back(position);
    draw_box(root_);
    draw_groups();
    draw_wires();
    for (const Box* device : devices_) draw_one(*device);
    draw_trees();
    draw_ring();
    body_ += texts_;
    const double width = std::max(root_.width, 560.0) + 2 * kMargin;
    const double height = root_.y + root_.height + draw_foot(width) + kMargin;
    const std::string name =
        graph_.source == "live" ? "this machine" : graph_.source.substr(graph_.source.rfind('/') + 1);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" role=\"img\">\n"
        "<title>{2}</title>\n{3}<rect class=\"page\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n<text class=\"big\" "
        "x=\"{4:.0f}\" y=\"{5:.0f}\">{2}</text>\n{6}</svg>\n",
        width, height, escaped(shortened(printable(name), std::size_t((width - 2 * kMargin) / 9))), kStyle, kMargin,
        kMargin + 14, body_);
  }

 private:
  void shift(Box& box, double dx, double dy) {
    box.x += dx;
    box.y += dy;
    for (Box& child : box.children) shift(child, dx, dy);
  }

  void find(const Box& box, bool below = false) {
    if (box.split) split_ = &box;
    if (box.member >= 0) {
      boxes_[std::size_t(box.member)] = &box;
      below_[std::size_t(box.member)] = below;
    }
    for (const Box& child : box.children) {
      if (graph_.vertices[std::size_t(child.vertex)].kind == VertexKind::package) packages_.push_back(&child);
      find(child, below || (box.split && child.y > box.children[0].y));
    }
  }

  std::string tint(int member) const {
    const int group = member >= 0 ? group_[std::size_t(member)] : -1;
    return group < 0 || (*ring_.groups)[std::size_t(group)].size() < 2 ? "" : fmt::format(" g{}", group % kTints);
  }

  void draw_one(const Box& box) {
    const std::string kind = class_of(graph_.vertices[std::size_t(box.vertex)].kind);
    body_ += fmt::format(
        "<g><title>{}</title><rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "rx=\"5\"/>",
        escaped(box.told), kind + tint(box.member), box.x, box.y, box.width, box.height);
    double y = box.y + 4 + kTitleHeight - 4;
    for (std::size_t i = 0; i < box.lines.size(); ++i, y += kLineHeight)
      texts_ += fmt::format("<text{} x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", i == 0 ? " class=\"title\"" : "",
                            box.x + 7, y, escaped(box.lines[i]));
    body_ += "</g>\n";
  }

  // Devices come later, above the shades of their groups and above wires.
  void draw_box(const Box& box) {
    if (graph_.vertices[std::size_t(box.vertex)].kind >= VertexKind::gpu)
      devices_.push_back(&box);
    else
      draw_one(box);
    for (const Box& child : box.children) draw_box(child);
  }

  // A shade behind the neighbours of one group in one row.
  void draw_groups() {
    if (ring_.kind != VertexKind::gpu) return;
    const std::vector<int>& order = drawn_;
    for (std::size_t first = 0, end = 0; first < order.size(); first = end) {
      const Box& a = *boxes_[std::size_t(order[first])];
      double left = a.x, right = a.x + a.width;
      for (end = first + 1; end < order.size(); ++end) {
        const Box& b = *boxes_[std::size_t(order[end])];
        if (group_[std::size_t(order[end])] != group_[std::size_t(order[first])] || b.y != a.y) break;
        left = std::min(left, b.x);
        right = std::max(right, b.x + b.width);
      }
      if (group_[std::size_t(order[first])] >= 0 && end - first > 1)
        body_ += fmt::format(
            "<rect class=\"group{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"8\"/>\n",
            tint(order[first]), left - 4, a.y - 4, right - left + 8, a.height + 8);
    }
  }

  void draw_wires() {
    std::vector<std::pair<const Box*, const Box*>> ends;
    std::vector<int> counts;
    for (const topology::Link& link : graph_.links) {
      if (link.kind != LinkKind::nvlink && link.kind != LinkKind::xgmi) continue;
      const Box *a = member_box(link.a), *b = member_box(link.b);
      if (!a || !b || a == b) continue;
      ends.emplace_back(a, b);
      counts.push_back(link.count);
    }
    if (ends.size() <= kMostDrawnLinks)
      for (std::size_t i = 0; i < ends.size(); ++i) draw_wire(*ends[i].first, *ends[i].second, counts[i]);
    if (packages_.size() == 2) draw_socket(*packages_[0], *packages_[1]);
  }

  const Box* member_box(int vertex) const {
    const auto found = std::find(ring_.members.begin(), ring_.members.end(), vertex);
    return vertex < 0 || found == ring_.members.end() ? nullptr : boxes_[std::size_t(found - ring_.members.begin())];
  }

  // Within a row an arc above it, between rows a curve from edge to edge.
  void draw_wire(const Box& a, const Box& b, int count) {
    const double thick = std::min(1.2 + 0.8 * count, 6.0), ax = a.x + a.width / 2, bx = b.x + b.width / 2;
    if (std::abs(a.y - b.y) < a.height) {
      const double rise = 14 + std::abs(ax - bx) * 0.12, shift = bx > ax ? 12 : -12;
      body_ += fmt::format(
          "<path class=\"wire\" stroke-width=\"{:.1f}\" d=\"M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} "
          "{:.1f}\"/>\n",
          thick, ax + shift, a.y, ax + shift, a.y - rise, bx - shift, b.y - rise, bx - shift, b.y);
      return;
    }
    const Box &up = a.y < b.y ? a : b, &down = a.y < b.y ? b : a;
    const double x0 = up.x + up.width / 2, y0 = up.y + up.height, x1 = down.x + down.width / 2, y1 = down.y,
                 half = (y1 - y0) / 2;
    body_ += fmt::format(
        "<path class=\"wire\" stroke-width=\"{:.1f}\" d=\"M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} "
        "{:.1f}\"/>\n",
        thick, x0, y0, x0, y0 + half, x1, y1 - half, x1, y1);
  }

  void draw_socket(const Box& a, const Box& b) {
    for (const topology::Link& link : graph_.links) {
      if (link.kind != LinkKind::socket) continue;
      const bool stacked = b.y > a.y + a.height || a.y > b.y + b.height;
      const Box &first = a.x + a.y < b.x + b.y ? a : b, &second = a.x + a.y < b.x + b.y ? b : a;
      const Point p = stacked ? Point{first.x + first.width / 2, first.y + first.height}
                              : Point{first.x + first.width, first.y + first.height / 2};
      const Point q = stacked ? Point{p.x, second.y} : Point{second.x, p.y};
      body_ += fmt::format("<line class=\"socket\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", p.x,
                           p.y, q.x, q.y);
      if (stacked && link.bandwidth.known())
        texts_ +=
            fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">socket link {} ({})</text>\n", p.x + 9, (p.y + q.y) / 2 + 4,
                        escaped(rate_text(link.bandwidth.value)), origin_text(link.bandwidth.origin));
      return;
    }
  }

  // Arcs from the lower edge of the boxes; between rows straight ones. A pair
  // that adds up both ways has a tip at each end.
  void draw_trees() {
    if (!trees_ || trees_->edges.size() > kMostTreeEdges) return;
    const auto& edges = trees_->edges;
    for (const auto& [from, to] : edges) {
      const bool both = std::binary_search(edges.begin(), edges.end(), Trees::Edge{to, from});
      const Box *a = boxes_[std::size_t(from)], *b = boxes_[std::size_t(to)];
      if (!a || !b || (both && from > to)) continue;
      const bool cross = crosses(from, to), row = std::abs(a->y - b->y) < a->height, down = b->y > a->y;
      const Point p{a->ring_x(), row || down ? a->y + a->height : a->y},
          q{b->ring_x(), row || !down ? b->y + b->height : b->y};
      const double sag = row ? 10 + std::abs(p.x - q.x) * 0.08 : (q.y - p.y) / 2;
      const Point c{p.x, p.y + sag}, d{q.x, row ? q.y + sag : q.y - sag};
      body_ += fmt::format("<path class=\"tree{}\" d=\"M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\"/>\n",
                           cross ? " tree-cross" : "", p.x, p.y, c.x, c.y, d.x, d.y, q.x, q.y);
      body_ += tip(q, {q.x - d.x, q.y - d.y}, "tree-tip");
      if (both) body_ += tip(p, {p.x - c.x, p.y - c.y}, "tree-tip");
    }
  }

  void draw_ring() {
    const std::vector<int>& order = drawn_;
    if (order.size() < 2) return;
    std::string above;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const int from = order[i], to = order[(i + 1) % order.size()];
      const Box &a = *boxes_[std::size_t(from)], &b = *boxes_[std::size_t(to)];
      const Point p{a.ring_x(), a.ring_y()}, q{b.ring_x(), b.ring_y()};
      const bool closing = i + 1 == order.size();
      if (split_ && below_[std::size_t(from)] != below_[std::size_t(to)])
        draw_gutter(p, q, closing, crosses(from, to), above);
      else
        draw_hop(p, q, closing, crosses(from, to), above);
    }
    for (const int position : order)
      above += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\"/>\n",
                           boxes_[std::size_t(position)]->ring_x(), boxes_[std::size_t(position)]->ring_y());
    body_ += above;
  }

  // Along a row; the hop that closes a ring of one row goes back below it.
  void draw_hop(Point p, Point q, bool closing, bool cross, std::string& above) {
    const double sag = closing ? 34 : 0;
    const Point c{p.x + (q.x - p.x) / 3, p.y + sag}, d{q.x - (q.x - p.x) / 3, q.y + sag};
    body_ += fmt::format("<path class=\"ring{}\" d=\"M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\"/>\n",
                         cross ? " cross" : "", p.x, p.y, c.x, c.y, d.x, d.y, q.x, q.y);
    above += tip({(p.x + 3 * c.x + 3 * d.x + q.x) / 8, (p.y + 3 * c.y + 3 * d.y + q.y) / 8},
                 {q.x + d.x - c.x - p.x, q.y + d.y - c.y - p.y}, cross ? "cross-tip" : "tip");
  }

  // From row to row, outside of everything that stands in them: at the right forth, at the left back.
  void draw_gutter(Point p, Point q, bool left, bool cross, std::string& above) {
    const double x = left ? split_->x + kGutter / 2 + 3 : split_->x + split_->width - kGutter / 2 - 3;
    const double round = 14, h = left ? round : -round, v = q.y > p.y ? round : -round;
    body_ += fmt::format(
        "<path class=\"ring{}\" d=\"M{:.1f} {:.1f}H{:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}V{:.1f}Q{:.1f} {:.1f} {:.1f} "
        "{:.1f}H{:.1f}\"/>\n",
        cross ? " cross" : "", p.x, p.y, x + h, x, p.y, x, p.y + v, q.y - v, x, q.y, x + h, q.y, q.x);
    above += tip({x, (p.y + q.y) / 2}, {0, q.y - p.y}, cross ? "cross-tip" : "tip");
  }

  bool crosses(int from, int to) const {
    const int a = ring_.members[std::size_t(from)], b = ring_.members[std::size_t(to)];
    const auto place = [this](int v) {
      return ring_.packages_known ? topology::package_of(graph_, v) : topology::numa_of(graph_, v);
    };
    return place(a) >= 0 && place(b) >= 0 && place(a) != place(b);
  }

  // A triangle on the way.
  static std::string tip(Point at, Point direction, const char* kind) {
    return fmt::format(
        "<path class=\"{}\" d=\"M-6 -6L7 0L-6 6z\" transform=\"translate({:.1f} {:.1f}) rotate({:.0f})\"/>\n",
        kind, at.x, at.y, std::atan2(direction.y, direction.x) * 180 / M_PI);
  }

  // What the colours mean, and what is not drawn; its height.
  double draw_foot(double width) {
    Footnotes notes;
    std::string text;
    const auto columns_wide = std::size_t((width - 2 * kMargin) / kCharacter);
    const auto add = [&](const std::string& line) { text += wrapped(line, "", "    ", columns_wide); };
    if (ring_.members.size() > 1)
      add("ring (dashed: between " + std::string(ring_.packages_known ? "packages" : "NUMA nodes") +
          "): " + order_text(ring_, ring_.chosen));
    if (ring_.members.size() > 1) add("index order: " + order_text(ring_, ring_.by_index));
    if (trees_)
      add("trees (thin" + std::string(trees_->edges.size() > kMostTreeEdges ? ", too many to draw" : "") +
          "): " + trees_text(ring_, *trees_));
    if (drawn_.size() < ring_.members.size())
      add(fmt::format("drawn: {} of {} members", drawn_.size(), ring_.members.size()));
    if (const std::string groups = groups_text(ring_); !groups.empty()) add("groups (shaded): " + groups);
    for (const std::string& link : link_texts(graph_, notes)) add("links: " + link);
    if (!notes.notes().empty()) add("figures: " + numbered_line(notes.notes()));
    double height = 8;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line); height += kFootLine)
      body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kMargin, root_.y + root_.height + height + 12,
                           escaped(line));
    return height;
  }

  static std::string numbered_line(const std::vector<std::string>& notes) {
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < notes.size(); ++i) parts.push_back(fmt::format("[{}] {}", i + 1, notes[i]));
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  const Graph& graph_;
  RingChoice ring_;
  std::optional<Trees> trees_;
  Box root_;
  std::vector<int> group_;         // of each member, -1: none
  std::vector<const Box*> boxes_;  // of each member
  std::vector<int> drawn_;         // the ring's order, without members that stand in another's `more`
  std::vector<const Box*> packages_, devices_;
  const Box* split_ = nullptr;
  std::vector<bool> below_;  // of each member: in the second row of the split
  std::string body_, texts_;
};

}  // namespace

std::string topo_svg(const Graph& graph) { return Picture(graph).text(); }

}  // namespace tutti::tools
