#include "tools/top.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "comm/call.h"
#include "tools/refusal.h"
#include "tools/report.h"
#include "tools/report_text.h"

namespace tutti::tools {
namespace {

using record::Chapter;
using record::Recording;
using record::Story;

struct Asked {
  std::vector<std::string> places;
  bool once = false;
  double every = 1;
};

const record::Operation* last_of(const Recording& recording) { return recording.operations.empty() ? nullptr : &recording.operations.back(); }

std::string doing(const Recording& r, std::int64_t now) {
  const record::Operation* last = last_of(r);
  if (!last) return "nothing yet";
  const bool pair = last->communicator & record::kPairMark;
  const std::string name = fmt::format("{}{} {}", pair ? "" : fmt::format("{} ", last->sequence), comm::to_string(comm::unpack(last->call)),
                                       pair ? fmt::format("with rank {}", last->last_peer) : "");
  if (last->ended == 0) return fmt::format("in {}for {}", name, span_text(std::max<std::int64_t>(now - last->started, 0)));
  return fmt::format("after {}{} ago", name, span_text(std::max<std::int64_t>(now - last->ended, 0)));
}

// Of the newest operations that all have called: by how much this rank was behind the first, median.
std::string skew_of(const Story& story, int rank) {
  std::vector<std::int64_t> behind;
  for (auto c = story.chapters.rbegin(); c != story.chapters.rend() && behind.size() < 64; ++c) {
    if (c->parts.size() < 2 || !c->not_called.empty()) continue;
    std::int64_t first = c->parts[0].started, own = -1;
    for (const Chapter::Part& part : c->parts) {
      first = std::min(first, part.started);
      if (part.rank == rank) own = part.started;
    }
    if (own >= 0) behind.push_back(own - first);
  }
  if (behind.empty()) return "-";
  std::nth_element(behind.begin(), behind.begin() + std::ptrdiff_t(behind.size() / 2), behind.end());
  return span_text(behind[behind.size() / 2]);
}

// Frames and segments that were sent again to a peer since `before`; where that recorder is a newer one, in all.
std::pair<std::uint64_t, std::uint64_t> repairs_since(const Recording* before, const record::Peer& now) {
  for (const record::Peer& then : before ? before->peers : std::vector<record::Peer>())
    if (then.rank == now.rank && then.resent <= now.resent && then.retransmitted <= now.retransmitted)
      return {now.resent - then.resent, now.retransmitted - then.retransmitted};
  return {now.resent, now.retransmitted};
}

// Its links over TCP and RDMA, together; "-": there are none.
std::string repairs_of(const Recording* before, const Recording& now) {
  std::uint64_t sum = 0;
  bool any = false;
  for (const record::Peer& peer : now.peers) {
    const auto [frames, segments] = repairs_since(before, peer);
    any |= peer.wire == "tcp" || peer.wire == "rdma";
    sum += frames + segments;
  }
  return any ? fmt::format("{}", sum) : "-";
}

// What a link that was made again goes by: rails may have been left out, or a socket may have taken over.
std::string now_by(const Story& story, const record::Break& last) {
  const Recording* r = story.recording(last.rank);
  for (const record::Peer& peer : r ? r->peers : std::vector<record::Peer>())
    if (peer.rank == last.peer) return ", now " + way_text(peer);
  return "";
}

std::string link_lines(const Story& before, const Story& now) {
  std::string out;
  for (const Recording& r : now.ranks)
    for (const record::Peer& peer : r.peers) {
      const auto [frames, segments] = repairs_since(before.recording(r.rank), peer);
      if (frames + segments) out += fmt::format("link rank {} -> rank {} ({}): sent again {} frames by tutti, {} segments by the kernel\n", r.rank, peer.rank, way_text(peer), frames, segments);
    }
  if (now.breaks.size() > before.breaks.size()) {
    const record::Break& last = now.breaks.back();
    out += fmt::format("link rank {} -> rank {} {}{}\n", last.rank, last.peer, last.silent ? "fell silent" : "broke",
                       last.mended_at ? ", was made again after " + span_text(last.mended_at - last.at) + now_by(now, last) : ", is not made again yet");
  }
  return out;
}

int top(const Asked& asked) {
  const bool terminal = ::isatty(1) != 0;
  const auto pause = std::chrono::duration<double>(asked.once ? std::min(asked.every, 0.2) : asked.every);
  std::vector<std::string> complaints;
  std::vector<Story> before = read_stories(asked.places, complaints);
  auto then = std::chrono::steady_clock::now();
  do {
    std::this_thread::sleep_for(pause);
    complaints.clear();
    std::vector<Story> now = read_stories(asked.places, complaints);
    const auto at = std::chrono::steady_clock::now();
    if (now.empty()) return refuse("top", {Code::invalid_argument, "no recorder found"}, kFailure);
    const auto same = std::find_if(before.begin(), before.end(), [&](const Story& s) { return s.job == now[0].job; });
    const double seconds = same == before.end() ? 0 : std::chrono::duration<double>(at - then).count();
    const std::string text = top_text(same == before.end() ? now[0] : *same, now[0], seconds);
    std::fputs(((terminal && !asked.once ? "\033[H\033[2J" : "") + text).c_str(), stdout);
    std::fflush(stdout);
    before = std::move(now);
    then = at;
  } while (!asked.once);
  return 0;
}

}  // namespace

std::string top_text(const Story& before, const Story& now, double seconds) {
  std::int64_t latest = 0;
  for (const Recording& r : now.ranks) {
    latest = std::max(latest, r.last_beat);
    if (const record::Operation* last = last_of(r)) latest = std::max({latest, last->started, last->ended});
  }
  std::string out = fmt::format("job {:016x}, {} of {} ranks here\n", now.job, now.ranks.size(), now.ranks[0].rank_count);
  out += fmt::format("{:>5} {:>8} {:<8} {:>11} {:>9} {:>9} {:>7}  {}\n", "rank", "pid", "state", "payload/s", "ops/s", "late by", "resent", "operation");
  for (const Recording& r : now.ranks) {
    const Recording* old = before.recording(r.rank);
    const record::Operation *last = last_of(r), *last_then = old ? last_of(*old) : nullptr;
    std::string rate = "-", count = "-";
    if (seconds > 0 && last) {
      const double bytes = double(last->total) - (last_then ? double(last_then->total) : 0);
      rate = speed_text(std::max(bytes, 0.0) / seconds);
      const std::uint32_t done = last->number - (last_then ? last_then->number : 0);
      count = fmt::format("{:.0f}", done / seconds);
    }
    out += fmt::format("{:>5} {:>8} {:<8} {:>11} {:>9} {:>9} {:>7}  {}\n", r.rank, r.pid, life_text(r), rate, count, skew_of(now, r.rank), repairs_of(old, r), doing(r, latest));
  }
  for (const record::Late& late : now.late)
    if (late.notable()) out += fmt::format("rank {} arrives {} late in {:.0f} % of operations\n", late.rank, span_text(late.median), 100.0 * double(late.times) / double(late.of));
  for (const record::Link& link : now.links)
    if (link.slow()) out += fmt::format("link rank {} -> rank {}: {}, the others {}\n", link.from, link.to, speed_text(link.rate), speed_text(link.others));
  return out + link_lines(before, now);
}

void add_top(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand("top", "show a running job live, from the flight recorders of this host");
  auto asked = std::make_shared<Asked>();
  verb->add_option("PLACE", asked->places, "as of tutti report");
  verb->add_flag("--once", asked->once, "print one table and end");
  verb->add_option("--every", asked->every, "seconds between two looks")->check(CLI::Range(0.1, 3600.0));
  verb->callback([&status, asked] { status = top(*asked); });
}

}  // namespace tutti::tools
