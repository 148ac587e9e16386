#include "comm/simulation.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::comm {
namespace {

Status check(const algorithms::Generator& generator, const algorithms::Request& request, const Placement& machine,
             const Load& load) {
  if (const auto why = generator.refusal(request); !why.empty())
    return Status(Code::unsupported, fmt::format("{} cannot serve {} among {} ranks: {}", generator.name(),
                                                 name_of(request.collective), request.rank_count, why));
  if (load.bytes == 0 || load.element_bytes == 0)
    return Status(Code::invalid_argument, "a simulation needs at least one byte");
  if (machine.prices.borders.size() != machine.levels.size() + 1)
    return Status(Code::invalid_argument, fmt::format("{} levels need {} prices, there are {}", machine.levels.size(),
                                                      machine.levels.size() + 1, machine.prices.borders.size()));
  for (const std::vector<int>& level : machine.levels)
    if (level.size() != std::size_t(request.rank_count) || *std::min_element(level.begin(), level.end()) < 0)
      return Status(Code::invalid_argument,
                    fmt::format("a level must name a group for each of {} ranks", request.rank_count));
  return {};
}

std::uint64_t messages_of(const Part& part) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < part.steps.size(); ++i)
    if (part.steps[i].kind == algorithms::StepKind::send && part.bytes[i] > 0) count += part.steps[i].peers.size();
  return count;
}

// Judged by two ranks, before anything large is made. A root alone sends more than its share.
bool too_many(const algorithms::Generator& generator, const algorithms::Request& request, const Load& load) {
  const int p = request.rank_count;
  const std::uint64_t limit = Score::kMaxMessages / std::uint64_t(p);
  return messages_of(make_part(request, p / 2, generator.generate(request, p / 2), load)) > limit &&
         messages_of(make_part(request, p - 1, generator.generate(request, p - 1), load)) > limit;
}

Status find_critical(Rehearsal& rehearsal, const Prices& prices, Simulation& out) {
  if (out.borders.size() == 1) return {};
  for (std::size_t i = 0; i < out.borders.size(); ++i) {
    Prices halved = prices;
    halved.borders[i].alpha /= 2;
    halved.borders[i].message /= 2;
    halved.borders[i].beta /= 2;
    if (Status status = rehearsal.play(halved); !status.ok()) return status;
    const double seconds = *std::max_element(rehearsal.finished().begin(), rehearsal.finished().end());
    out.borders[i].saving = out.seconds > 0 ? 1 - seconds / out.seconds : 0;
    if (out.borders[i].saving > out.borders[out.critical].saving) out.critical = i;
  }
  return {};
}

void report(const Rehearsal& rehearsal, const Score& score, const Prices& prices, Simulation& out) {
  const auto [first, last] = std::minmax_element(rehearsal.finished().begin(), rehearsal.finished().end());
  out.earliest = *first;
  out.seconds = *last;
  out.finished = rehearsal.finished();
  out.events = rehearsal.events();
  out.memory_bytes = score.memory_bytes() + rehearsal.memory_bytes();
  const double times = double(score.rank_count) / score.width;
  for (std::size_t i = 0; i < prices.borders.size(); ++i) {
    const Crossing& c = rehearsal.crossings()[i];
    out.borders.push_back({prices.borders[i].name, c.bytes * times, c.busiest_bytes, c.messages * std::uint64_t(times),
                           out.seconds > 0 ? c.busiest_seconds / out.seconds : 0, 0});
  }
}

}  // namespace

Result<Simulation> simulate(const algorithms::Generator& generator, const algorithms::Request& request,
                            const Placement& machine, const Load& load, const SimulationOptions& options) {
  if (Status status = check(generator, request, machine, load); !status.ok()) return status;
  Load played = load;
  int width = request.rank_count;
  if (options.folding == Folding::always ||
      (options.folding == Folding::when_needed && too_many(generator, request, load))) {
    const auto fold = find_fold(generator, request, load, machine.levels);
    if (!fold)
      return Status(Code::unsupported,
                    fmt::format("{} for {} among {} ranks {}cannot be folded: {}", generator.name(),
                                name_of(request.collective), request.rank_count,
                                options.folding == Folding::always ? "" : "has too many messages to simulate all, and ",
                                fold.status().text()));
    width = fold->width;
    played.bytes = fold->bytes;
  }
  const auto score = write_score(generator, request, played, machine.levels, width, options.go_on);
  if (!score)
    return Status(score.status().code(),
                  fmt::format("{} for {} among {} ranks: {}", generator.name(), name_of(request.collective),
                              request.rank_count, score.status().text()));
  Rehearsal rehearsal(*score);
  if (Status status = rehearsal.play(machine.prices); !status.ok()) return status;
  Simulation out;
  out.rank_count = request.rank_count;
  out.width = width;
  out.bytes = played.bytes;
  report(rehearsal, *score, machine.prices, out);
  if (options.find_critical)
    if (Status status = find_critical(rehearsal, machine.prices, out); !status.ok()) return status;
  return out;
}

}  // namespace tutti::comm
