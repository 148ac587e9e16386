#include "comm/rehearsal.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/check.h"

namespace tutti::comm {

using algorithms::StepKind;

double Rehearsal::Link::take(double time, double seconds) {
  const double start = std::max(time, free);
  free = start + seconds;
  busy += seconds;
  return start;
}

Rehearsal::Rehearsal(const Score& score) : score_(score) {}

void Rehearsal::reset(const Prices& prices) {
  TUTTI_CHECK(prices.borders.size() == score_.levels.size() + 1);
  prices_ = prices;
  for (BorderPrice& border : prices_.borders) {
    border.alpha *= prices.crowding;
    border.message *= prices.crowding;
    border.beta *= prices.crowding;
  }
  prices_.gamma *= prices.crowding;
  now_ = 0;
  order_ = 0;
  events_.clear();
  states_.assign(score_.steps.size(), State{});
  for (std::size_t i = 0; i < states_.size(); ++i) states_[i].waits = score_.steps[i].waits;
  arrived_.assign(score_.slots, 0);
  processor_.assign(std::size_t(score_.width), 0);
  ranks_.assign(std::size_t(score_.width), {});
  groups_.clear();
  for (const std::vector<int>& level : score_.levels)
    groups_.emplace_back(std::size_t(*std::max_element(level.begin(), level.begin() + score_.width)) + 1);
  messages_.assign(prices.borders.size(), 0);
  finished_.assign(std::size_t(score_.width), 0);
}

Status Rehearsal::play(const Prices& prices) {
  reset(prices);
  const std::uint32_t count = std::uint32_t(score_.steps.size()) - 1;
  for (std::uint32_t i = 0; i < count; ++i) advance(i);
  while (!events_.empty()) {
    most_events_ = std::max(most_events_, events_.size());
    std::pop_heap(events_.begin(), events_.end(), std::greater<>());
    const Event event = events_.back();
    events_.pop_back();
    now_ = event.time;
    handle(event);
  }
  for (std::uint32_t i = 0; i < count; ++i)
    if (states_[i].done != score_.steps[i].segments)
      return Status(Code::internal,
                    fmt::format("a step of rank {} never ends: the schedule is stuck", score_.steps[i].rank),
                    int(score_.steps[i].rank));
  sum_up();
  return {};
}

void Rehearsal::post(Event event, double time, Kind kind) {
  event.time = time;
  event.kind = kind;
  event.order = order_++;
  events_.push_back(event);
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

void Rehearsal::handle(const Event& event) {
  const auto bytes = [&] { return double(score_.segment_of(score_.steps[event.step], event.segment)); };
  switch (event.kind) {
    case Kind::transmit: return transmit(event);
    case Kind::sent: complete(event.step, now_); return advance(event.step);
    case Kind::leave:
    case Kind::enter: {
      const ScoreMessage& message = score_.messages[event.message];
      const BorderPrice& price = prices_.borders[message.border];
      const bool leaves = event.kind == Kind::leave;
      Group& at = group(message.border, leaves ? score_.steps[event.step].rank : score_.steps[message.step].rank);
      Link& link = leaves ? at.out : at.in;
      const double seconds = bytes() * price.beta, head = link.take(now_, seconds), on_way = leaves ? price.alpha : 0;
      link.bytes += bytes();
      Event next = event;
      next.tail = std::max(event.tail, head + seconds) + on_way;
      return post(next, head + on_way, leaves ? Kind::enter : Kind::land);
    }
    case Kind::land: {
      const double seconds = bytes() * prices_.borders.back().beta;
      const double head = ranks_[score_.steps[score_.messages[event.message].step].rank].in.take(now_, seconds);
      return post(event, std::max(event.tail, head + seconds), Kind::arrive);
    }
    case Kind::arrive: return arrive(event);
    case Kind::reduced: complete(event.step, now_); return advance(event.step);
  }
}

// One segment leaves the rank, once a peer or once for all in the innermost group.
void Rehearsal::transmit(const Event& event) {
  const ScoreStep& step = score_.steps[event.step];
  const BorderPrice& inner = prices_.borders.back();
  const double bytes = double(score_.segment_of(step, event.segment)), seconds = bytes * inner.beta;
  Link& out = ranks_[step.rank].out;
  double written = -1, end = now_;
  for (std::uint32_t m = step.first; m < step.first + step.peers; ++m) {
    const bool inside = score_.messages[m].border == score_.levels.size();
    messages_[score_.messages[m].border] += event.segment == 0;
    const bool again = inside && prices_.shares_writes && written >= 0;
    const double head = again ? written : out.take(now_, seconds);
    if (inside) {
      written = head;
      out.bytes += bytes;
    }
    end = std::max(end, head + seconds);
    Event next = event;
    next.message = m;
    next.tail = head + seconds + (inside ? inner.alpha : 0);
    post(next, head + (inside ? inner.alpha : 0), inside ? Kind::land : Kind::leave);
  }
  const bool last = event.segment + 1 == step.segments;
  if (last && step.first_next == score_.steps[event.step + 1].first_next)
    return complete(event.step, end);  // nobody waits
  post(event, end, Kind::sent);
}

void Rehearsal::arrive(const Event& event) {
  const ScoreMessage& message = score_.messages[event.message];
  const ScoreStep& step = score_.steps[message.step];
  State& state = states_[message.step];
  std::uint32_t& here = arrived_[message.slot];
  TUTTI_CHECK(here == event.segment);
  ++here;
  if (here != state.ready + 1) return;
  if (++state.ahead < step.peers) return;
  while (state.ahead == step.peers) {
    ++state.ready;
    state.ahead = 0;
    for (std::uint32_t slot = step.first; slot < step.first + step.peers; ++slot)
      state.ahead += arrived_[slot] > state.ready;
  }
  advance(message.step);
}

// Whatever this step can do now, and then those that waited for it.
void Rehearsal::advance(std::uint32_t step) {
  work_.push_back(step);
  while (!work_.empty()) {
    const std::uint32_t next = work_.back();
    work_.pop_back();
    move(next);
  }
}

std::uint32_t Rehearsal::allowed(std::uint32_t step) const {
  if (states_[step].waits > 0) return 0;
  std::uint32_t limit = score_.steps[step].segments;
  for (std::uint32_t i = score_.steps[step].first_ahead; i < score_.steps[step + 1].first_ahead; ++i) {
    const Ahead& ahead = score_.ahead[i];
    const ScoreStep& earlier = score_.steps[ahead.step];
    const std::uint32_t done = states_[ahead.step].done;
    if (done == earlier.segments) continue;
    const std::int64_t reach = ahead.lead + std::int64_t(done * score_.segment_bytes);
    if (reach <= 0) return 0;
    limit = std::min(limit, score_.segments_in(score_.steps[step], std::uint64_t(reach)));
  }
  return limit;
}

void Rehearsal::move(std::uint32_t step) {
  switch (score_.steps[step].kind) {
    case StepKind::send: return move_send(step);
    case StepKind::recv:
    case StepKind::recv_reduce: return move_receive(step);
    case StepKind::copy:
    case StepKind::reduce: states_[step].ready = score_.steps[step].segments; return move_receive(step);
  }
}

void Rehearsal::move_send(std::uint32_t index) {
  const ScoreStep& step = score_.steps[index];
  State& state = states_[index];
  if (state.started > state.done || state.started >= allowed(index)) return;
  double time = now_;
  if (state.started == 0) {
    double seconds = 0;
    for (std::uint32_t m = step.first; m < step.first + step.peers; ++m)
      seconds += prices_.borders[score_.messages[m].border].message;
    time = compute(step.rank, seconds);
  }
  Event event;
  event.step = index;
  event.segment = state.started++;
  post(event, time, Kind::transmit);
  if (state.started == step.segments) release(index, Follower::When::submitted);
}

void Rehearsal::move_receive(std::uint32_t index) {
  const ScoreStep& step = score_.steps[index];
  State& state = states_[index];
  const std::uint32_t limit = std::min(state.ready, allowed(index));
  while (state.started < limit) {
    const double bytes = double(score_.segment_of(step, state.started++));
    if (step.operands == 0) {
      complete(index, now_);
      continue;
    }
    Event event;
    event.step = index;
    post(event, compute(step.rank, bytes * step.operands * prices_.gamma), Kind::reduced);
  }
}

double Rehearsal::compute(std::uint32_t rank, double seconds) {
  processor_[rank] = std::max(processor_[rank], now_) + seconds;
  return processor_[rank];
}

void Rehearsal::complete(std::uint32_t index, double time) {
  State& state = states_[index];
  double& finished = finished_[score_.steps[index].rank];
  finished = std::max(finished, time);
  ++state.done;
  release(index, Follower::When::progress);
}

void Rehearsal::release(std::uint32_t index, Follower::When when) {
  for (std::uint32_t i = score_.steps[index].first_next; i < score_.steps[index + 1].first_next; ++i) {
    const Follower follower = score_.next[i];
    if (follower.when != when) continue;
    if (when == Follower::When::progress || --states_[follower.step].waits == 0) work_.push_back(follower.step);
  }
}

void Rehearsal::sum_up() {
  crossings_.assign(prices_.borders.size(), {});
  for (std::size_t border = 0; border < crossings_.size(); ++border) {
    Crossing& crossing = crossings_[border];
    crossing.messages = messages_[border];
    for (const Group& g : border < groups_.size() ? groups_[border] : ranks_) {
      crossing.bytes += g.out.bytes;
      crossing.busiest_bytes = std::max(crossing.busiest_bytes, g.out.bytes);
      crossing.busiest_seconds = std::max({crossing.busiest_seconds, g.out.busy, g.in.busy});
    }
  }
}

std::size_t Rehearsal::memory_bytes() const {
  return most_events_ * sizeof(Event) + states_.capacity() * sizeof(State) +
         arrived_.capacity() * sizeof(std::uint32_t) + ranks_.capacity() * sizeof(Group);
}

}  // namespace tutti::comm
