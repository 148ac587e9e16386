// Member's part in groups: what one thread has called between begin_group and end_group, started together.
#include <algorithm>
#include <utility>

#include "comm/member.h"

namespace tutti::comm {

Member::Group* Member::group_of_this_thread() {
  for (Group& group : groups_)
    if (group.owner == std::this_thread::get_id()) return &group;
  return nullptr;
}

void Member::begin_group() {
  auto held = engine_->lock();
  if (Group* const group = group_of_this_thread())
    ++group->depth;
  else
    groups_.push_back({std::this_thread::get_id(), 1, {}, {}, {}});
}

Work Member::end_group() {
  Group group;
  std::vector<std::shared_ptr<Operation>> all;
  {
    auto held = engine_->lock();
    Group* const open = group_of_this_thread();
    if (!open) return Work(Status(Code::invalid_state, "end_group without begin_group on this thread"));
    if (--open->depth > 0) return Work();
    group = std::move(*open);
    groups_.erase(groups_.begin() + (open - groups_.data()));
    all = group.operations;
    for (const auto& call : group.on_streams) all.push_back(call->all);
    // Since it was bound, or by one of those before it, the communicator may have broken.
    for (const auto& operation : group.operations) {
      if (operation->complete()) continue;
      if (broken_.ok()) engine_->start(operation);
      else engine_->complete(*operation, broken_);
    }
    if (!group.operations.empty()) engine_->nudge();
  }
  if (!group.on_streams.empty()) launch(group.on_streams);
  if (all.size() == 1 && group.refused.ok()) return Work(all[0]);
  return joined(all, group.refused);
}

Work Member::joined(const std::vector<std::shared_ptr<Operation>>& operations, const Status& refused) {
  if (operations.empty()) return Work(refused);
  std::shared_ptr<Operation> all;
  auto failure = std::make_shared<Status>(refused);
  {
    auto held = engine_->lock();
    all = make_operation({Collective::barrier});
    all->sequence = ~0u;
    all->pending_parts = int(operations.size());
    engine_->track(all);
  }
  for (const auto& operation : operations)
    Work(operation).then([engine = std::weak_ptr(engine_), all, failure](const Status& status) {
      if (auto alive = engine.lock()) {
        auto held = alive->lock();
        if (failure->ok()) *failure = status;
        if (--all->pending_parts == 0) alive->complete(*all, *failure);
      }
    });
  return Work(all);
}

}  // namespace tutti::comm
