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
  Places(const algorithms::Request& request, int rank, std::uint32_t slices) : in_place_(request.in_place) {
    const std::uint32_t own = std::uint32_t(rank) * slices;
    if (request.collective == Collective::all_gather || request.collective == Collective::gather) input_shift_ = own;
    if (request.collective == Collective::reduce_scatter || request.collective == Collective::scatter)
      output_shift_ = own;
  }
  Chunks operator()(Chunks c) const {
    if (!in_place_ || c.space == Space::scratch) return c;
    c.first += c.space == Space::input ? input_shift_ : output_shift_;
    c.space = Space::input;
    return c;
  }

 private:
  bool in_place_;
  std::uint32_t input_shift_ = 0, output_shift_ = 0;
};

struct Access {
  Chunks chunks;
  std::uint32_t step = 0;
  bool writes = false;
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
    if (reads && !(writes && step.kind == StepKind::recv_reduce && source == target)) out.push_back({source, i, false});
    if (writes) out.push_back({target, i, true});
  }
  return out;
}

}  // namespace

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
    for (const Access& other : open)
      if (other.step != access.step && (other.writes || access.writes))
        after[std::max(other.step, access.step)].push_back(
            {std::min(other.step, access.step), other.chunks == access.chunks});
    open.push_back(access);
  }
  // Two steps may meet at several places: they are pipelined where all of those are over the same chunks.
  for (std::vector<Dependency>& found : after) {
    std::sort(found.begin(), found.end(), [](const Dependency& a, const Dependency& b) {
      return std::pair(a.step, a.pipelined) < std::pair(b.step, b.pipelined);
    });
    found.erase(std::unique(found.begin(), found.end(),
                            [](const Dependency& a, const Dependency& b) { return a.step == b.step; }),
                found.end());
  }
  return after;
}

}  // namespace tutti::comm
