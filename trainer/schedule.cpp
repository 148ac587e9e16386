#include "trainer/schedule.h"

#include <algorithm>
#include <cmath>

namespace tutti::trainer {

std::optional<ScheduleKind> schedule_from(std::string_view name) {
  if (name == "constant") return ScheduleKind::constant;
  if (name == "linear") return ScheduleKind::linear;
  if (name == "cosine") return ScheduleKind::cosine;
  if (name == "wsd") return ScheduleKind::wsd;
  return std::nullopt;
}

double Schedule::at(long step) const {
  if (step <= warm_up) return rate * double(step) / double(warm_up);
  const double begin = kind == ScheduleKind::wsd ? std::max(double(warm_up), double(steps) * (1 - decay_share)) : double(warm_up);
  const double length = double(steps) - begin;
  const double way = length > 0 ? std::clamp((double(step) - begin) / length, 0.0, 1.0) : 1.0;      // of the fall
  const double left = kind == ScheduleKind::constant ? 1 : kind == ScheduleKind::cosine ? 0.5 * (1 + std::cos(3.141592653589793 * way)) : 1 - way;
  return rate * (final_share + (1 - final_share) * left);
}

}  // namespace tutti::trainer
