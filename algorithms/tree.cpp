// Two binary trees at once: every rank is an inner node in at most one of them and a leaf in the other, so that both
// halves of the vector use all links. Logarithmic rounds and full bandwidth for vectors large enough to be pipelined.
#include "algorithms/families.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {
namespace {

struct Node {
  int parent = -1;
  std::vector<int> children;   // in order
};

// In-order search tree over the positions [0, size): even positions are leaves, odd ones inner nodes. A left subtree is
// perfect.
Node place_in_tree(int position, int size) {
  Node node;
  int low = 0, high = size;
  const auto top = [](int from, int to) {
    int left = 1;
    while (2 * left <= to - from) left *= 2;
    return from + left - 1;
  };
  for (int root = top(low, high);; root = top(low, high)) {
    if (root == position) {
      if (low < root) node.children.push_back(top(low, root));
      if (root + 1 < high) node.children.push_back(top(root + 1, high));
      return node;
    }
    node.parent = root;
    (position < root ? high : low) = position < root ? root : root + 1;
  }
}

// Tree 0 as it is, tree 1 shifted by one position, over `size` members of which `member` is one.
Node place_of(int member, int size, int tree) {
  Node node = place_in_tree(wrap(member + tree, size), size);
  if (node.parent >= 0) node.parent = wrap(node.parent - tree, size);
  for (int& child : node.children) child = wrap(child - tree, size);
  return node;
}

int height(int size) {   // floor(log2 size)
  int h = 0;
  while ((2 << h) <= size) ++h;
  return h;
}

// All upward messages come before all downward ones on every lane, so that both ends see one order.
Schedule tree_all_reduce(int rank, int p) {
  Schedule out;
  const Node nodes[] = {place_of(rank, p, 0), place_of(rank, p, 1)};
  for (int t = 0; t < 2; ++t) {
    const Node& node = nodes[t];
    if (!node.children.empty()) out.steps.push_back(recv_reduce(output(t), input(t), node.children, node.parent < 0));
    if (node.parent >= 0) out.steps.push_back(send(node.children.empty() ? input(t) : output(t), node.parent));
  }
  for (int t = 0; t < 2; ++t) {
    if (nodes[t].parent >= 0) out.steps.push_back(recv(output(t), nodes[t].parent));
    if (!nodes[t].children.empty()) out.steps.push_back(send(output(t), nodes[t].children));
  }
  return out;
}

// The root stands outside: the trees are over the others, counted from the rank behind it.
struct Rooted {
  const Request& request;
  int others() const { return request.rank_count - 1; }
  int member(int rank) const { return wrap(rank - request.root - 1, request.rank_count); }
  int rank(int member) const { return wrap(member + request.root + 1, request.rank_count); }
  int top(int tree) const {
    for (int m = 0;; ++m) {
      if (place_of(m, others(), tree).parent < 0) return rank(m);
    }
  }
  Node node(int of, int tree) const {
    Node node = place_of(member(of), others(), tree);
    node.parent = node.parent < 0 ? request.root : rank(node.parent);
    for (int& child : node.children) child = rank(child);
    return node;
  }
};

Schedule tree_broadcast(const Request& request, int rank) {
  const Rooted rooted{request};
  Schedule out;
  for (int t = 0; t < 2; ++t) {
    if (rank == request.root) {
      out.steps.push_back(send(input(t), rooted.top(t)));
      continue;
    }
    const Node node = rooted.node(rank, t);
    out.steps.push_back(recv(output(t), node.parent));
    if (!node.children.empty()) out.steps.push_back(send(output(t), node.children));
  }
  if (rank == request.root && !request.in_place) out.steps.push_back(copy(output(0, 2), input(0, 2)));
  return out;
}

Schedule tree_reduce(const Request& request, int rank) {
  const Rooted rooted{request};
  Schedule out;
  for (int t = 0; t < 2; ++t) {
    if (rank == request.root) {
      out.steps.push_back(recv_reduce(output(t), input(t), {rooted.top(t)}, true));
      continue;
    }
    const Node node = rooted.node(rank, t);
    if (node.children.empty()) {
      out.steps.push_back(send(input(t), node.parent));
      continue;
    }
    const Chunks sum = scratch(int(out.scratch.size()));
    out.scratch.push_back(std::uint32_t(t));
    out.steps.push_back(recv_reduce(sum, input(t), node.children, false));
    out.steps.push_back(send(sum, node.parent));
  }
  return out;
}

class Tree final : public Family {
 public:
  std::string_view name() const override { return "tree"; }
  std::string_view source() const override {
    return "Sanders, Speck, Traeff: Two-tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan (2009)";
  }
  std::string_view best_when() const override {
    return "middle and large vectors among many ranks: few rounds, every link used";
  }
  bool canonical(const Request& request) const override {   // three operands in one pass, or the root last of three
    if (!is_reduction(request.collective) || request.rank_count == 2) return true;
    return request.rank_count == 3 && (request.collective == Collective::all_reduce || request.root == 2);
  }

  Cost cost(const Request& request) const override {
    const int p = request.rank_count;
    switch (request.collective) {
      case Collective::broadcast: return {1 + height(p - 1), 1, 1, 0, 2};
      case Collective::reduce: return {1 + height(p - 1), 1, 1, 2, 2};
      default: break;
    }
    if (p <= 3) return {2 * height(p), p == 2 ? 1 : 1.5, 1, p == 2 ? 1 : 1.5, p};
    return {2 * height(p), 2, 1.5, 1.5, 4};   // an inner node: up, down to two, and up once more as a leaf
  }

  Schedule generate(const Request& request, int rank) const override {
    Schedule out;
    switch (request.collective) {
      case Collective::broadcast: out = tree_broadcast(request, rank); break;
      case Collective::reduce: out = tree_reduce(request, rank); break;
      default: out = tree_all_reduce(rank, request.rank_count); break;
    }
    out.blocks = 2;
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    switch (request.collective) {
      case Collective::all_reduce: return {};
      case Collective::broadcast:
      case Collective::reduce: return request.rank_count == 2 ? "with two ranks both trees are one edge: chain" : "";
      default: return "serves all_reduce, broadcast and reduce";
    }
  }
};

}  // namespace

const Generator& tree() {
  static const Tree generator;
  return generator;
}

}  // namespace tutti::algorithms
