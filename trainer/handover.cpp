#include "trainer/handover.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tutti::trainer {

bool hand_over(Training* before, Training& now, double& loss, std::string& told) {
  Wire& wire = now.wire();
  const auto steps = wire.gather_now({before ? std::uint64_t(before->steps_done()) + 1 : 0});
  const auto most = std::max_element(steps.begin(), steps.end());
  if (*most == 0) return false;
  const int source = int(most - steps.begin());
  std::array<double, 4> facts{};
  if (wire.rank() == source) facts = {double(before->steps_done()), loss, before->scaler().scale(), double(before->scaler().calm())};
  Exchange exchange = wire.broadcast("step of the run", facts.data(), sizeof(facts), source);
  wire.wait(exchange);
  for (std::size_t unit = 0; unit < now.layout().units().size(); ++unit) {
    UnitState state;
    if (before) state = before->unit(unit);
    now.set_unit(unit, state, source);
  }
  now.set_steps_done(long(facts[0]));
  now.scaler().set(facts[2], long(facts[3]));
  loss = facts[1];
  if (wire.rank() == 0) told = fmt::format("after step {} with {} ranks, from the memory of rank {}\n", now.steps_done(), wire.rank_count(), source);
  return true;
}

}  // namespace tutti::trainer
