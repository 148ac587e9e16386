// Chains and pairs: the plainest patterns. A chain passes the whole vector from neighbour to neighbour, segment by
// segment; pairs swap blocks.
#include "algorithms/borders.h"
#include "algorithms/families.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {
namespace {

// The chain begins at the root and goes up through the ranks; a reduction comes down to it.
class Chain final : public Family {
 public:
  std::string_view name() const override { return "chain"; }
  std::string_view source() const override { return "folklore: pipelined chain"; }
  std::string_view best_when() const override { return "very large vectors: each link carries the vector once"; }
  bool canonical(const Request& request) const override {
    const int p = request.rank_count;
    return Family::canonical(request) || p == 2 || (p == 3 && request.root == 2);
  }
  Cost cost(const Request& request) const override {
    return {request.rank_count - 1, 1, 1, request.collective == Collective::reduce ? 2.0 : 0.0, 1};
  }

  Schedule generate(const Request& request, int rank) const override {
    const int p = request.rank_count, up = wrap(rank + 1, p), down = wrap(rank - 1, p);
    const bool root = rank == request.root, end = up == request.root;
    Schedule out;
    if (request.collective == Collective::broadcast) {
      if (!root) out.steps.push_back(recv(output(0), down));
      if (!end) out.steps.push_back(send(root ? input(0) : output(0), up));
      if (root && !request.in_place) out.steps.push_back(copy(output(0), input(0)));
      return out;
    }
    if (root) {
      out.steps.push_back(recv_reduce(output(0), input(0), {up}, true));
    } else if (end) {
      out.steps.push_back(send(input(0), down));
    } else {
      out.scratch = {0};
      out.steps.push_back(recv_reduce(scratch(0), input(0), {up}, false));
      out.steps.push_back(send(scratch(0), down));
    }
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    const bool serves = request.collective == Collective::broadcast || request.collective == Collective::reduce;
    return serves ? "" : "serves broadcast and reduce";
  }
};

// In turn k, ranks whose sum is k around p swap blocks. In place only the upper one of a pair sets its block aside; the
// lower one sends it before it takes the other into its place. Half the scratch and half the copies of `direct`.
class Pairwise final : public Family {
 public:
  std::string_view name() const override { return "pairwise"; }
  std::string_view source() const override { return "folklore: pairwise exchange"; }
  std::string_view best_when() const override { return "large blocks, above all in place"; }
  Cost cost(const Request& request) const override {
    const int p = request.rank_count;
    const double part = double(p - 1) / p;
    return {1, part, part, 0, p - 1};
  }
  std::vector<Border> borders(const Request& request) const override {
    return all_pairs(request, 1.0 / request.rank_count, 1);
  }

  Schedule generate(const Request& request, int rank) const override {
    const int p = request.rank_count;
    Schedule out;
    out.blocks = std::uint32_t(p) * std::uint32_t(p);
    for (int k = 0; k < p; ++k) {
      const int peer = wrap(k - rank, p);
      if (peer == rank) continue;
      Chunks source = input(peer);
      if (request.in_place && rank > peer) {
        source = scratch(int(out.scratch.size()));
        out.scratch.push_back(std::uint32_t(rank) * std::uint32_t(p) + std::uint32_t(peer));
        out.steps.push_back(copy(source, input(peer)));
      }
      out.steps.push_back(send(source, peer));
      out.steps.push_back(recv(output(peer), peer));
    }
    if (!request.in_place) out.steps.push_back(copy(output(rank), input(rank)));
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    return request.collective == Collective::all_to_all ? "" : "is an all_to_all only";
  }
};

}  // namespace

const Generator& chain() {
  static const Chain generator;
  return generator;
}
const Generator& pairwise() {
  static const Pairwise generator;
  return generator;
}

}  // namespace tutti::algorithms
