#include "transport/sim/event_queue.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace tutti::sim {

EventTarget::EventTarget(EventQueue& queue) : id_(queue.new_id()) {}

void EventQueue::schedule(TimePoint when, std::shared_ptr<EventTarget> target, std::uint32_t what) {
  heap_.push_back({std::max(when, now_), ++last_sequence_, std::move(target), what});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

bool EventQueue::step() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), later);
  const Event event = std::move(heap_.back());
  heap_.pop_back();
  TUTTI_CHECK(event.time >= now_);
  now_ = event.time;
  ++count_;
  note(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  note(event.target->id() << 8 | event.what);
  if (observer_) observer_(now_, event.target->describe(event.what));
  event.target->fire(event.what);
  return true;
}

void EventQueue::advance(TimePoint when) {
  TUTTI_CHECK(when >= now_ && (heap_.empty() || next_time() >= when));
  now_ = when;
}

void EventQueue::clear() {
  // What dies with an event may schedule another one.
  while (!heap_.empty()) {
    std::vector<Event> dying;
    dying.swap(heap_);
  }
}

}  // namespace tutti::sim
