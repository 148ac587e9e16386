#include "trainer/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tutti::trainer {

void Trace::add(Kind kind, std::string name, Time begin, Time end, std::size_t bytes) {
  if (!wanted_) return;
  const std::lock_guard lock(mutex_);
  events_.push_back({kind, std::move(name), begin, end, bytes});
}

std::string Trace::text() const {
  const std::lock_guard lock(mutex_);
  std::vector<Event> events = events_;
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.begin < b.begin; });
  const auto microseconds = [&](Time t) { return std::chrono::duration<double, std::micro>(t - events.front().begin).count(); };
  nlohmann::json list = nlohmann::json::array();
  std::vector<Time> lanes;      // when each exchange lane is free again
  for (const Event& event : events) {
    std::size_t lane = 0;
    if (event.kind == Kind::exchange) {
      while (lane < lanes.size() && lanes[lane] > event.begin) ++lane;
      lanes.resize(std::max(lanes.size(), lane + 1));
      lanes[lane++] = event.end;
    }
    list.push_back({{"name", event.name}, {"cat", event.kind == Kind::compute ? "compute" : "exchange"}, {"ph", "X"}, {"pid", rank_},
                    {"tid", lane}, {"ts", microseconds(event.begin)}, {"dur", microseconds(event.end) - microseconds(event.begin)},
                    {"args", {{"bytes", event.bytes}}}});
  }
  for (std::size_t lane = 0; lane <= lanes.size(); ++lane) {
    list.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", rank_}, {"tid", lane},
                    {"args", {{"name", lane == 0 ? std::string("compute") : "exchange " + std::to_string(lane)}}}});
  }
  return nlohmann::json{{"traceEvents", list}}.dump();
}

}  // namespace tutti::trainer
