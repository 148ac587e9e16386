// What the engine does for a link over TCP that breaks or falls silent, or one by RDMA that breaks, while the peer's process lives: it has
// new sockets made, over which the connection goes on from the last acknowledged segment, or agrees upon new queue pairs. A handshake on
// them, which the peer's engine answers, is the proof that they work. Of two ranks the higher one dials, as always; the lower asks it to.
//
// A link without any socket has TUTTI_LINK_TIMEOUT; then the peer is lost. One that only falls silent costs nothing but the
// attempt, as long as the peer may be stopped, which is TUTTI_TIMEOUT's business; where it answers over the control plane, the link
// has TUTTI_LINK_TIMEOUT as well.
#include <fmt/format.h>

#include <algorithm>

#include "comm/engine.h"
#include "comm/member.h"
#include "core/log.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMendEvery{100};
constexpr milliseconds kAskAfter{200};      // the peer has most likely seen it itself, and dials
constexpr milliseconds kPingAfter{1000};    // something is unacknowledged for so long
constexpr milliseconds kRenewAfter{2500};   // and for so long in spite of pings: a peer that lives answers within half a second
constexpr milliseconds kUnbroken{6000};     // between words of a peer that is asked every kRenewAfter
constexpr milliseconds kNoteRepairsEvery{500};
constexpr int kMostFruitless = 8;           // breaks in a row without a frame between them

}  // namespace

bool Engine::by_rdma(int peer) const { return rdma_ && rdma_->connected(peer); }

bool Engine::link_broken(int peer) const { return by_rdma(peer) ? rdma_->broken(peer) : tcp_ && tcp_->broken(peer); }

std::uint64_t Engine::link_progress(int peer) const { return by_rdma(peer) ? rdma_->progress(peer) : tcp_->progress(peer); }

void Engine::on_broken(int peer, const Status& why) {
  Peer& p = peers_[std::size_t(peer)];
  if (p.state == Peer::lost) return;
  const std::uint64_t moved = link_progress(peer);
  const TimePoint now = loop_->now();
  p.fruitless = moved == p.moved_at_break && now - p.broken_since < settings_.link_timeout ? p.fruitless + 1 : 0;
  p.moved_at_break = moved;
  p.broken_since = now;
  p.broken_why = why;
  journal_.broken(peer, why);
  log::info("{}: {}; connecting again", describe(peer), why.text());
  mend(peer);
}

// Whatever it takes, as long as it is broken.
void Engine::mend(int peer) {
  Peer& p = peers_[std::size_t(peer)];
  p.reminder = nullptr;
  if (p.state == Peer::lost || !link_broken(peer)) return;
  const Nanoseconds since = loop_->now() - p.broken_since;
  if (directory_->gone(peer) || settings_.link_timeout.count() == 0) return on_lost(peer, p.broken_why);
  if (p.fruitless > kMostFruitless)
    return on_lost(peer, Status(p.broken_why.code(), fmt::format("{} (and {} connections after it, each before anything was moved)", p.broken_why.text(), p.fruitless), peer));
  if (since > settings_.link_timeout)
    return on_lost(peer, Status(Code::network,
                                fmt::format("{}; no new connection within {:.3g} s (TUTTI_LINK_TIMEOUT changes the limit)", p.broken_why.text(),
                                            std::chrono::duration<double>(settings_.link_timeout).count()),
                                peer));
  if (world_rank_ > peer) renew(peer);
  else if (since >= kAskAfter) directory_->say({.kind = Word::Kind::dial_me, .about = peer});
  p.reminder = loop_->at(loop_->now() + kMendEvery, [this, peer] { mend(peer); });
}

void Engine::renew(int peer) {
  Peer& p = peers_[std::size_t(peer)];
  if (std::exchange(p.renewing, true)) return;
  directory_->dial(peer, by_rdma(peer) ? Purpose::rdma : Purpose::tcp, std::max(1, settings_.sockets), settings_.link_timeout, [this, peer](auto streams) {
    Peer& now = peers_[std::size_t(peer)];
    now.renewing = false;
    if (streams) return resume(peer, true, std::move(*streams));
    log::debug("{}: no new connection: {}", describe(peer), streams.status().text());      // mend() tries again, if need be
  });
}

void Engine::resume(int peer, bool dialler, std::vector<std::unique_ptr<Stream>> streams) {
  Peer& p = peers_[std::size_t(peer)];
  if (p.state != Peer::up) return;
  if (by_rdma(peer)) {
    p.renewing = true;
    return rdma_->resume(peer, std::move(streams), dialler, [this, peer](const Status& status) {
      Peer& mended = peers_[std::size_t(peer)];
      mended.renewing = false;
      if (status.ok()) {
        const std::string now = wire(peer).connection->describe();
        if (mended.broken_since != TimePoint{}) journal_.mended(peer, loop_->now() - mended.broken_since, rdma_->sent_again(peer), false);
        journal_.goes_by(peer, now);
        return log::info("{}: connected again: {}", describe(peer), now);
      }
      log::debug("{}: no new RDMA connection: {}", describe(peer), status.text());      // mend() tries again
    });
  }
  const bool broken = tcp_->broken(peer);
  if (!tcp_->resume(peer, std::move(streams))) return;
  if (const TimePoint since = broken ? p.broken_since : p.silent_since; since != TimePoint{})
    journal_.mended(peer, loop_->now() - since, tcp_->repairs(peer).frames, !broken);
  p.silent_since = {};
  log::info("{}: connected again", describe(peer));
}

// Cheap: every 50 ms. Of what is on its way to a peer, the oldest frame tells whether the link moves.
void Engine::look_after_links(TimePoint now) {
  if (!directory_ || settings_.link_timeout.count() == 0) return;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    const int peer = int(i);
    if (p.state != Peer::up || p.wire.transport != tcp_.get() || p.renewing || tcp_->broken(peer)) continue;
    const auto oldest = tcp_->oldest_unacknowledged(peer);
    const bool short_of_sockets = tcp_->socket_count(peer) < std::size_t(std::max(1, settings_.sockets));
    const bool moved = !oldest || !p.oldest || oldest->sequence != p.oldest->sequence || oldest->unsent < p.oldest->unsent;
    p.oldest = oldest;
    if (moved && !short_of_sockets) p.silent_since = {};
    if (!oldest && !short_of_sockets) continue;
    if (p.silent_since == TimePoint{}) p.silent_since = now, p.renew_at = now + kRenewAfter;
    const Nanoseconds quiet = now - p.silent_since;
    if (quiet >= kPingAfter && oldest) tcp_->ping(peer);
    if (now < p.renew_at) continue;
    p.renew_at = now + kRenewAfter;
    const bool answers = p.heard_at > p.silent_since && now - p.heard_at < kUnbroken && now - p.heard_since > settings_.link_timeout;
    if (!moved && quiet > settings_.link_timeout && answers)
      on_lost(peer, Status(Code::network,
                           fmt::format("nothing that was sent to it is acknowledged, and no new connection was made, although it answers by way of other "
                                       "connections, for {:.3g} s (TUTTI_LINK_TIMEOUT changes the limit)",
                                       std::chrono::duration<double>(quiet).count()),
                           peer));
    else if (world_rank_ > peer) renew(peer);
    else directory_->say({.kind = Word::Kind::dial_me, .about = peer});
    ask_for_life(peer);
  }
}

// For the flight recorder. The kernel is asked about each socket: seldom.
void Engine::note_repairs(TimePoint now) {
  if (now < next_repairs_note_) return;
  next_repairs_note_ = now + kNoteRepairsEvery;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].state != Peer::up) continue;
    if (by_rdma(int(i))) journal_.repaired(int(i), rdma_->sent_again(int(i)), 0);
    if (peers_[i].wire.transport != tcp_.get()) continue;
    const auto repairs = tcp_->repairs(int(i));
    journal_.repaired(int(i), repairs.frames, repairs.segments);
  }
}

void Engine::note_word_of(int peer) {
  Peer& p = peers_[std::size_t(peer)];
  const TimePoint now = loop_->now();
  if (now - p.heard_at > kUnbroken) p.heard_since = now;
  p.heard_at = now;
}

// Any word of it will do.
void Engine::ask_for_life(int peer) {
  for (const auto& [id, member] : members_) {
    if (member->rank_of(peer) < 0) continue;
    directory_->say({.kind = Word::Kind::ask, .communicator = id, .about = peer});
    return;
  }
}

}  // namespace tutti::comm
