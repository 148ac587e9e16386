#include "comm/dependencies.h"

#include <algorithm>
#include <tuple>

namespace tutti::comm {
namespace {

using algorithms::Chunks;
using algorithms::Space;
using algorithms::Step;
using algorithms::StepKind;

// Chunks that share memory get one place: in place, the own block of one space lies inside the full vector of the
// other.
class Places {
 public:
  Places(const algorithms::Request& request, int rank, std::uint32_t slices)
      : in_place_(request.in_place), own_(own_block(request.collective)), shift_(std::uint32_t(rank) * slices) {}
  Chunks operator()(Chunks c) const {
    if (!in_place_ || c.space == Space::scratch) return c;
    if (c.space == own_) c.first += shift_;
    c.space = Space::input;
    return c;
  }

 private:
  bool in_place_;
  std::optional<Space> own_;
  std::uint32_t shift_;
};

struct Access {
  Chunks chunks;
  std::uint32_t step = 0;
  Side side = Side::source;
  bool writes() const { return side == Side::target; }
  std::uint32_t end() const { return chunks.first + chunks.count; }
};

std::vector<Access> accesses(std::span<const Step> steps, const Places& place) {
  std::vector<Access> out;
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const bool reads = step.source.count && step.kind != StepKind::recv;
    const bool writes = step.target.count && step.kind != StepKind::send;
    const Chunks source = place(step.source), target = place(step.target);
    // recv_reduce into its own operand: target op= received, one access.
    if (reads && !(writes && step.kind == StepKind::recv_reduce && source == target))
      out.push_back({source, i, Side::source});
    if (writes) out.push_back({target, i, Side::target});
  }
  return out;
}

}  // namespace

std::optional<Space> own_block(Collective collective) {
  switch (collective) {
    case Collective::all_gather: case Collective::gather: return Space::input;
    case Collective::reduce_scatter: case Collective::scatter: return Space::output;
    default: return std::nullopt;
  }
}

std::vector<std::vector<Dependency>> find_dependencies(const algorithms::Request& request, int rank,
                                                       std::uint32_t slices, std::span<const Step> steps) {
  std::vector<Access> all = accesses(steps, Places(request, rank, slices));
  std::sort(all.begin(), all.end(), [](const Access& a, const Access& b) {
    return std::tuple(a.chunks.space, a.chunks.first, a.step) < std::tuple(b.chunks.space, b.chunks.first, b.step);
  });
  std::vector<std::vector<Dependency>> after(steps.size());
  std::vector<Access> open;  // those that reach as far as the current one's begin
  for (const Access& access : all) {
    std::erase_if(
        open, [&](const Access& o) { return o.chunks.space != access.chunks.space || o.end() <= access.chunks.first; });
    for (const Access& other : open) {
      if (other.step == access.step || !(other.writes() || access.writes())) continue;
      const auto& [earlier, later] =
          std::minmax(other, access, [](const Access& a, const Access& b) { return a.step < b.step; });
      after[later.step].push_back({earlier.step, earlier.side, later.side});
    }
    open.push_back(access);
  }
  for (std::vector<Dependency>& found : after) std::sort(found.begin(), found.end());
  return after;
}

}  // namespace tutti::comm
