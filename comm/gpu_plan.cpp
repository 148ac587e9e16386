#include "comm/gpu_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/device.h"

namespace tutti::comm {
namespace {

// Of the busiest rank, a root where there is one: rows that it has, puts before the others, and passes in and out.
struct Rows {
  int all = 1, offered = 1, moved = 2;
};

Rows rows_of(Collective what, int ranks) {
  switch (what) {
    case Collective::all_gather:
    case Collective::gather: return {ranks, 1, ranks + 1};
    case Collective::reduce_scatter:
    case Collective::scatter: return {ranks, ranks, ranks + 1};
    case Collective::all_to_all: return {ranks, ranks, 2 * ranks};
    default: return {};
  }
}

// In all of them one rank at least reads, or is read, a row of each of the others.
double seconds_of(GpuWay way, const GpuQuestion& q, const GpuPrices& p) {
  const Rows rows = rows_of(q.collective, q.ranks);
  const double row = double(q.bytes) / rows.all, ranks = q.ranks, moved = rows.moved * row;
  const double pieces = std::max(1.0, std::ceil(row * rows.offered / double(kGpuPiece)));
  switch (way) {
    case GpuWay::one_shot: return p.launch + pieces * p.meeting + row * (ranks - 1) * p.beta_peer + moved * p.beta_own;
    case GpuWay::two_shot:
      return p.launch + pieces * 2 * p.meeting + row * 2 * (ranks - 1) / ranks * p.beta_peer + (moved + row) * p.beta_own;
    case GpuWay::staged: return p.slice + moved * p.beta_host + q.host_seconds;
  }
  return 0;
}

// What the user wants for so many bytes; empty text: nothing.
struct Wish {
  GpuWay way = GpuWay::staged;
  std::string rule;
};

Wish wish_of(const GpuQuestion& q, const Settings& settings) {
  const auto rule = [](const char* name, ByteCount bytes) { return fmt::format("{}={}", name, to_text(bytes)); };
  const bool all_reduce = q.collective == Collective::all_reduce;  // of which the thresholds are
  const auto one = all_reduce ? settings.one_shot_threshold : std::nullopt;
  const auto two = all_reduce ? settings.two_shot_threshold : std::nullopt;
  if (one && q.bytes <= *one) return {GpuWay::one_shot, rule("TUTTI_ONE_SHOT_THRESHOLD", *one)};
  if (two && q.bytes > *two) return {GpuWay::staged, rule("TUTTI_TWO_SHOT_THRESHOLD", *two)};
  if (one && two) return {GpuWay::two_shot, rule("TUTTI_TWO_SHOT_THRESHOLD", *two)};
  if (q.host_rule) return {GpuWay::staged, "an algorithm of the host's is set for it"};
  return {};
}

}  // namespace

const char* name_of(GpuWay way) {
  return way == GpuWay::one_shot ? "one-shot kernel" : way == GpuWay::two_shot ? "two-shot kernel" : "host memory";
}

std::vector<GpuPlan> gpu_plans(const GpuQuestion& question, const Settings& settings, const GpuPrices& prices) {
  std::vector<GpuPlan> plans;
  const bool all_reduce = question.collective == Collective::all_reduce;
  for (const GpuWay way : {GpuWay::one_shot, GpuWay::two_shot, GpuWay::staged})
    if (all_reduce || way != GpuWay::two_shot) plans.push_back({way, seconds_of(way, question, prices), ""});
  const Wish wish = wish_of(question, settings);
  // Above its threshold the one-shot kernel is no candidate, and so on: what the user has not decided, the prices do.
  const auto barred = [&](GpuWay way) {
    return all_reduce && way == GpuWay::one_shot && settings.one_shot_threshold && question.bytes > *settings.one_shot_threshold;
  };
  const auto cost = [&](const GpuPlan& plan) {
    return std::pair(!wish.rule.empty() && plan.way != wish.way, std::pair(barred(plan.way), plan.seconds));
  };
  std::stable_sort(plans.begin(), plans.end(), [&](const GpuPlan& a, const GpuPlan& b) { return cost(a) < cost(b); });
  plans.front().reason = !wish.rule.empty() ? wish.rule : "lowest predicted time";
  return plans;
}

std::uint64_t gpu_piece(Collective what, int ranks, std::size_t element) {
  constexpr std::uint64_t kWhole = 16;  // rows begin at multiples of 16 bytes
  return kGpuPiece / std::uint64_t(rows_of(what, ranks).offered) / element / kWhole * kWhole;
}

int gpu_blocks(std::uint64_t bytes) {
  constexpr std::uint64_t kBytesABlock = 16 << 10;  // four packs of 16 bytes for each of its 256 threads
  return int(std::clamp<std::uint64_t>((bytes + kBytesABlock - 1) / kBytesABlock, 1, SharedExchange::kMostBlocks));
}

}  // namespace tutti::comm
