#include "trainer/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/layout.h"

namespace tutti::trainer {

double activation_bytes(const PlanInput& input) {
  const ModelConfig& c = input.model;
  const double rows = double(input.batch * c.context), up = double(c.hidden * inputs_of(c.activation));
  const double block = 4 * double(c.width) + double(c.qkv_width()) + double(c.heads) + up + double(c.hidden) + 4;
  const double scratch = 3 * double(c.width) + double(c.qkv_width()) + up + double(c.hidden);
  const bool packs = input.precision != Precision::f32 && !input.recompute;
  const double blocks = input.recompute || packs ? 1 : double(c.layers);
  const double kept_wide = double(c.width) + double(c.heads) + 4;      // of a block, where the rest waits in 16 bits
  const double packed = packs ? rows * double(c.layers) * (4 * kept_wide + 2 * (block - kept_wide)) : 0;
  return packed + 4 * rows * (double(c.layers + 1) * double(c.width) + blocks * block + scratch + double(c.width) + double(c.vocabulary));
}

std::vector<PlanRow> plan(const PlanInput& input) {
  const Layout layout(input.model);
  const double bytes = 4 * double(layout.parameters()), n = input.ranks;
  // What is whole for a while where the rest is sharded: the embedding and two blocks.
  const auto& units = layout.units();
  const double whole = 4 * double(units.front().count + std::min<std::size_t>(2, units.size() - 1) * units.back().count);
  const double rounds = double((input.micro_batches + std::size_t(input.ranks) - 1) / std::size_t(input.ranks));
  const double tokens = rounds * double(input.batch * input.model.context);
  const double compute = tokens * input.model.flops_per_token() * (input.recompute ? 4.0 / 3 : 1) / input.flops;
  const double backward = compute / rounds * 2 / 3;       // of one micro-batch
  const double share = (n - 1) / n * bytes;
  const double sum = input.narrow_wire ? share / 2 : share;      // what a reduce_scatter of gradients sends
  std::vector<PlanRow> rows;
  for (int zero = 0; zero <= 3; ++zero) {
    PlanRow row{zero, bytes, bytes, 2 * bytes / (zero > 0 ? n : 1), activation_bytes(input), 0, 0};
    if (zero >= 2) row.gradients = bytes / n + whole;
    if (input.narrow_wire) row.gradients += (zero >= 2 ? whole : bytes) / 2;
    if (zero == 3) row.weights = bytes / n + whole;
    // DDP and ZeRO-1 exchange once a step; 2 and 3 at each micro-batch: gradients, and for 3 the weights for each pass.
    row.sent = zero == 0 ? 2 * sum : zero == 1 ? sum + share : zero == 2 ? rounds * sum + share : rounds * (sum + 2 * share);
    const double hidden = zero == 3 ? compute : zero == 2 ? backward * rounds : backward;      // time beside which it can go on
    const double beside = zero == 0 || zero == 3 ? row.sent : row.sent - share;                // the new weights come behind
    row.seconds = compute + std::max(0.0, beside / input.link_bytes - hidden) + (row.sent - beside) / input.link_bytes;
    rows.push_back(row);
  }
  return rows;
}

std::string plan_text(const PlanInput& input) {
  const Layout layout(input.model);
  std::string text = fmt::format("{:.1f} M parameters, {} ranks, {} micro-batches of {} x {} tokens a step, link {:.2f} GB/s, {:.0f} GFLOP/s a rank\n\n",
                                 double(layout.parameters()) / 1e6, input.ranks, input.micro_batches, input.batch, input.model.context,
                                 input.link_bytes / 1e9, input.flops / 1e9);
  text += fmt::format("{:8}{:>10}{:>11}{:>11}{:>13}{:>10}{:>12}{:>10}\n", "", "weights", "gradients", "optimizer", "activations", "all", "sent/step",
                      "step");
  const PlanRow* best = nullptr;
  const auto rows = plan(input);
  for (const PlanRow& row : rows) {
    const bool fits = input.memory_bytes == 0 || row.memory() <= input.memory_bytes;
    if (fits && (!best || row.seconds < best->seconds)) best = &row;
    text += fmt::format("{:8}{:>7.0f} MB{:>8.0f} MB{:>8.0f} MB{:>10.0f} MB{:>7.0f} MB{:>9.0f} MB{:>8.2f} s{}\n",
                        row.zero == 0 ? std::string("ddp") : fmt::format("zero {}", row.zero), row.weights / 1e6, row.gradients / 1e6,
                        row.optimizer / 1e6, row.activations / 1e6, row.memory() / 1e6, row.sent / 1e6, row.seconds,
                        fits ? "" : "  does not fit");
  }
  text += "\nsent by a rank: ddp and zero 1 2(N-1)/N P once a step; zero 2 (N-1)/N P for each micro-batch and once more; zero 3 3(N-1)/N P for each\n";
  if (!best) text += "none fits: more ranks, --recompute, or a smaller batch\n";
  else text += fmt::format("fastest that fits: {}\n", best->zero == 0 ? std::string("ddp (--zero 0)") : fmt::format("--zero {}", best->zero));
  return text;
}

}  // namespace tutti::trainer
