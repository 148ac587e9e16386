#include "comm/gpu_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/device.h"

namespace tutti::comm {
namespace {

double seconds_of(GpuWay way, const GpuQuestion& q, const GpuPrices& p) {
  const double n = double(q.bytes), ranks = q.ranks;
  const double pieces = std::max(1.0, double((q.bytes + kGpuPiece - 1) / kGpuPiece));
  switch (way) {
    case GpuWay::one_shot: return p.launch + pieces * p.meeting + n * ((ranks - 1) * p.beta_peer + 2 * p.beta_own);
    case GpuWay::two_shot:
      return p.launch + pieces * 2 * p.meeting + n * (2 * (ranks - 1) / ranks * p.beta_peer + 3 * p.beta_own);
    case GpuWay::staged: return p.slice + 2 * n * p.beta_host + q.host_seconds;
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
  const auto one = settings.one_shot_threshold, two = settings.two_shot_threshold;
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
  for (const GpuWay way : {GpuWay::one_shot, GpuWay::two_shot, GpuWay::staged})
    plans.push_back({way, seconds_of(way, question, prices), ""});
  const Wish wish = wish_of(question, settings);
  // Above its threshold the one-shot kernel is no candidate, and so on: what the user has not decided, the prices do.
  const auto barred = [&](GpuWay way) {
    return way == GpuWay::one_shot && settings.one_shot_threshold && question.bytes > *settings.one_shot_threshold;
  };
  const auto cost = [&](const GpuPlan& plan) {
    return std::pair(!wish.rule.empty() && plan.way != wish.way, std::pair(barred(plan.way), plan.seconds));
  };
  std::stable_sort(plans.begin(), plans.end(), [&](const GpuPlan& a, const GpuPlan& b) { return cost(a) < cost(b); });
  plans.front().reason = !wish.rule.empty() ? wish.rule : "lowest predicted time";
  return plans;
}

int gpu_blocks(std::uint64_t bytes) {
  constexpr std::uint64_t kBytesABlock = 16 << 10;  // four packs of 16 bytes for each of its 256 threads
  return int(std::clamp<std::uint64_t>((bytes + kBytesABlock - 1) / kBytesABlock, 1, SharedReduction::kMostBlocks));
}

}  // namespace tutti::comm
