// Control links of a rank that has joined: made where there is need, and made again where they were cut.
#include <fmt/format.h>

#include <algorithm>

#include "comm/bootstrap.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::milliseconds kMendEvery{100};

}  // namespace

void World::begin_control(std::map<int, std::unique_ptr<Stream>> links) {
  control_ = std::make_unique<Control>(rank_, ranks_, std::move(links));
  if (link_timeout_.count() > 0) control_->on_cut([this](int rank) { tasks_.spawn(mend_link(rank)); });
}

void World::link(int rank) {
  if (!control_->linked(rank)) dial_link(rank);
}

void World::dial_link(int rank) {
  if (opening_.insert(rank).second) tasks_.spawn(open_link(rank));
}

Task<void> World::open_link(int rank) {
  const Purpose purpose = rank_ > rank ? Purpose::control : Purpose::knock;
  auto connecting = connect_to(rank, purpose, 0, 1, 0, loop_.now() + kHandshakeLimit);
  auto stream = co_await connecting;
  opening_.erase(rank);
  if (!stream && stream.status().code() == Code::peer_lost) control_->lost(rank, stream.status().text());
  else if (stream && purpose == Purpose::control) control_->add_link(rank, std::move(*stream));
}

// Something between two ranks has cut their link, or the rank is gone: then nobody answers.
Task<void> World::mend_link(int rank) {
  const TimePoint limit = loop_.now() + link_timeout_;
  while (!control_->linked(rank) && !control_->gone(rank)) {
    if (loop_.now() >= limit) {
      control_->unreachable(rank,
                            fmt::format("no new connection within {:.3g} s (TUTTI_LINK_TIMEOUT changes the limit)",
                                        std::chrono::duration<double>(link_timeout_).count()));
      co_return;
    }
    link(rank);
    SleepUntil later(loop_, std::min(limit, loop_.now() + kMendEvery));
    co_await later;
  }
}

}  // namespace tutti::comm
