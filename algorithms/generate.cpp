#include "algorithms/generate.h"

#include <array>
#include "algorithms/borders.h"
#include "algorithms/families.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {

std::vector<Border> Generator::borders(const Request& request) const {
  std::vector<Schedule> all;
  const auto schedule_of = schedules(request);
  for (int rank = 0; rank < request.rank_count; ++rank) all.push_back(schedule_of(rank));
  return count_borders(request, all);
}

std::string_view Family::refusal(const Request& request) const {
  if (const auto why = common_refusal(request); !why.empty()) return why;
  if (request.rank_count == 1) return "one rank has nobody to talk to: direct";
  return refuses(request);
}

bool Family::sends_partials(const Request& request) const {
  return is_reduction(request.collective) && request.rank_count > 2;
}

bool Family::canonical(const Request& request) const { return !is_reduction(request.collective); }

std::span<const Generator* const> generators() {
  static const std::array all{
      &direct(),   &two_shot(),    &ring(), &bidirectional_ring(), &recursive_doubling(), &circulant(),
      &bruck(),    &pat(),         &tree(), &binomial(),           &scatter_all_gather(), &chain(),
      &pairwise(), &hierarchical()};
  return all;
}

const Generator* find_generator(std::string_view name) {
  for (const Generator* generator : generators()) {
    if (generator->name() == name) return generator;
  }
  return nullptr;
}

}  // namespace tutti::algorithms
