#pragma once
// The learning rate as a function of the step.
#include <optional>
#include <string_view>

namespace tutti::trainer {

enum class ScheduleKind { constant, linear, cosine, wsd };
std::optional<ScheduleKind> schedule_from(std::string_view name);

struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double rate = 1e-3;                 // at the top
  double final_share = 0.1;           // of it, at the end
  long warm_up = 0;                   // steps of linear rise before
  long steps = 1;                     // in all
  double decay_share = 0.2;           // wsd (warm-up, stable, decay): of the steps, at the end, in which it falls linearly

  // step from 1 to `steps`; beyond, as at the end.
  double at(long step) const;
};

}  // namespace tutti::trainer
