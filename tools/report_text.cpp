#include "tools/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "comm/call.h"

namespace tutti::tools {
namespace {

using nlohmann::ordered_json;
using record::Chapter;
using record::Recording;
using record::Story;

constexpr std::size_t kMostChapters = 12;      // told in text: all that are not complete, of the others the last ones
constexpr std::size_t kMostLinks = 8, kMostBreaks = 12, kMostWays = 12;

std::string ranks_text(const Story& story, const std::vector<int>& ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) out += (i == 0 ? "" : ", ") + rank_text(story, ranks[i]);
  return ranks.size() > 8 ? out + fmt::format(" and {} more", ranks.size() - 8) : out;
}

std::string name_of(const Chapter& chapter) {
  const std::string where = chapter.communicator == 0 ? "" : fmt::format(" of communicator {}", chapter.communicator);
  return fmt::format("operation {} {}{}", chapter.sequence, comm::to_string(comm::unpack(chapter.call)), where);
}

std::int64_t newest(const Story& story) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < story.ranks.size(); ++i) at = std::max(at, story.ranks[i].last_beat + story.shift[i]);
  return at;
}

// A recorder's last operation, and how long ago.
std::string last_of(const Story& story, const Recording& recording) {
  const record::Operation* last = nullptr;
  for (const auto& operation : recording.operations)
    if (!(operation.communicator & record::kPairMark)) last = &operation;
  if (!last) return "no operation";
  const std::int64_t at = last->ended ? last->ended : last->started;
  return fmt::format("operation {} {} {}, {} before the last sign of life of the job", last->sequence, comm::to_string(comm::unpack(last->call)),
                     !last->ended ? "pending" : last->code != 0 ? "failed" : "complete", span_text(std::max<std::int64_t>(newest(story) - at, 0)));
}

// Where a rank's last recorded wait stood.
std::string wait_of(const Recording& recording) {
  const auto at = std::find_if(recording.events.rbegin(), recording.events.rend(), [](const auto& e) { return e.kind == record::EventKind::waits; });
  if (at == recording.events.rend()) return "";
  const bool over = std::any_of(recording.operations.begin(), recording.operations.end(), [&](const auto& o) {
    return o.communicator == at->communicator && o.sequence == at->operation && o.ended != 0 && o.code == 0;
  });
  if (over) return "";
  return fmt::format("operation {} stood at step {} of {}: {} rank {}, {} of {} bytes", at->operation, at->a + 1, at->b, at->e ? "sends to" : "receives from",
                     at->peer, at->c, at->d);
}

std::string rank_lines(const Story& story) {
  std::string out;
  for (const Recording& r : story.ranks) {
    out += fmt::format("  {}: {}, {}\n", rank_text(story, r.rank), life_text(r), last_of(story, r));
    for (const auto& verdict : r.verdict) out += "      verdict: " + verdict.status.to_string() + "\n";
    if (const std::string wait = wait_of(r); !wait.empty() && r.end == record::End::running) out += "      " + wait + "\n";
    if (r.torn > 0) out += fmt::format("      {} entries could not be read\n", r.torn);
  }
  if (!story.missing.empty()) out += fmt::format("  no recorder of {} ranks: {}{}\n", story.missing.size(), ranks_text(story, story.missing),
                                                 " (on other hosts? Bring their folders together)");
  return out;
}

std::string chapter_lines(const Story& story) {
  std::vector<const Chapter*> told;
  for (const Chapter& c : story.chapters)
    if (c.end != Chapter::End::complete) told.push_back(&c);
  const std::size_t open = told.size();
  if (told.size() > kMostChapters) told.resize(kMostChapters);          // the first cause is among the first
  std::string out = open == 0 ? "" : fmt::format("not complete: {} operations{}\n", open, open > told.size() ? ", the first of them" : "");
  for (const Chapter* c : told) out += fmt::format("  {}: {}\n", name_of(*c), verdict_text(story, *c));
  std::size_t complete = 0;
  std::string last;
  for (auto c = story.chapters.rbegin(); c != story.chapters.rend(); ++c) {
    if (c->end != Chapter::End::complete || complete++ >= kMostChapters / 2) continue;
    last += fmt::format("  {}: complete, {}\n", name_of(*c), c->last < 0 ? "all came within microseconds" : fmt::format("rank {} came last, {} after the first", c->last, span_text(c->skew)));
  }
  return out + (complete == 0 ? "" : fmt::format("complete: {} operations, the last of them\n{}", complete, last));
}

std::string straggler_lines(const Story& story) {
  std::string out;
  for (const record::Late& late : story.late)
    if (late.notable())
      out += fmt::format("  {} arrives {} late (median) in {:.0f} % of {} operations\n", rank_text(story, late.rank), span_text(late.median),
                         100.0 * double(late.times) / double(late.of), late.of);
  for (const record::Link& link : story.links)
    if (link.slow())
      out += fmt::format("  the link {} -> {} runs at {} while it is busy, {:.2g} of the others' {}\n", rank_text(story, link.from), rank_text(story, link.to),
                         speed_text(link.rate), link.rate / link.others, speed_text(link.others));
  return out.empty() ? "" : "stragglers:\n" + out;
}

std::string break_lines(const Story& story) {
  std::string out;
  const std::size_t count = story.breaks.size(), first = count > kMostBreaks ? count - kMostBreaks : 0;
  for (std::size_t i = first; i < count; ++i) {
    const record::Break& b = story.breaks[i];
    const std::string what = b.silent ? "fell silent" : fmt::format("broke ({})", code_name(Code(b.code)));
    const std::string then = b.mended_at == 0 ? "and was not made again"
                                              : fmt::format("was made again after {}, {} frames sent again so far", span_text(b.mended_at - b.at), b.resent);
    out += fmt::format("  {}: its link with {} {}, {}; {} before the last sign of life of the job\n", rank_text(story, b.rank), rank_text(story, b.peer), what, then,
                       span_text(std::max<std::int64_t>(newest(story) - b.at, 0)));
  }
  return out.empty() ? "" : fmt::format("links that broke: {} times{}\n{}", count, first ? ", the last of them" : "", out);
}

std::string repair_lines(const Story& story) {
  std::string out;
  for (const Recording& r : story.ranks)
    for (const record::Peer& peer : r.peers)
      if (peer.resent || peer.retransmitted)
        out += fmt::format("  rank {} -> rank {} ({}): {} frames by tutti, {} segments by the kernel\n", r.rank, peer.rank, way_text(peer), peer.resent, peer.retransmitted);
  return out.empty() ? "" : "sent again:\n" + out;
}

// Addresses, devices and rails; those that broke most often first.
std::string way_lines(const Story& story) {
  std::vector<std::pair<int, const record::Peer*>> links;
  for (const Recording& r : story.ranks)
    for (const record::Peer& peer : r.peers)
      if (!peer.way.empty()) links.emplace_back(r.rank, &peer);
  std::stable_sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.second->mended > b.second->mended; });
  std::string out;
  for (std::size_t i = 0; i < links.size() && i < kMostWays; ++i) {
    const auto& [rank, peer] = links[i];
    const std::string again = peer->mended ? fmt::format("; made again {} times", peer->mended) : "";
    out += fmt::format("  rank {} -> rank {}: {}{}{}\n", rank, peer->rank, way_text(*peer), again, peer->state == 2 ? "; lost" : "");
  }
  return out.empty() ? "" : fmt::format("links over networks{}:\n{}", links.size() > kMostWays ? fmt::format(", {} of {}", kMostWays, links.size()) : "", out);
}

std::string link_lines(const Story& story) {
  std::string out;
  for (std::size_t i = 0; i < story.links.size() && i < kMostLinks; ++i) {
    const record::Link& link = story.links[i];
    out += fmt::format("  rank {} -> rank {} ({}): {}, {} bytes\n", link.from, link.to, link.wire, speed_text(link.rate), link.bytes);
  }
  return out.empty() ? "" : fmt::format("links while they were busy, slowest first{}:\n{}", story.links.size() > kMostLinks ? " (of many)" : "", out);
}

ordered_json json_of(const Chapter& c, const Story& story) {
  ordered_json item = {{"communicator", c.communicator}, {"operation", c.sequence}, {"call", comm::to_string(comm::unpack(c.call))}, {"end", end_name(c.end)}};
  if (c.end != Chapter::End::complete) item["verdict"] = verdict_text(story, c);
  item["culprits"] = c.culprits;
  item["not_called"] = c.not_called;
  item["pending"] = c.pending;
  item["last"] = c.last;
  item["skew_ns"] = c.skew;
  item["ranks"] = ordered_json::array();
  for (const Chapter::Part& part : c.parts)
    item["ranks"].push_back({{"rank", part.rank}, {"started_ns", part.started}, {"timed", part.timed}, {"ended_ns", part.ended}, {"first_data_after_ns", part.operation.first_after},
                             {"last_data_after_ns", part.operation.last_after}, {"last_peer", part.operation.last_peer}, {"code", code_name(Code(part.operation.code))},
                             {"call", comm::to_string(comm::unpack(part.operation.call))}, {"bytes_moved", part.operation.moved}});
  return item;
}

ordered_json json_of(const Recording& r) {
  ordered_json item = {{"rank", r.rank}, {"host", r.host}, {"pid", r.pid}, {"state", life_text(r)}, {"library", r.library}, {"file", record::printable(r.path)},
                       {"begun_ns", r.begun}, {"last_sign_of_life_ns", r.last_beat}, {"unreadable_entries", r.torn}};
  item["verdict"] = r.verdict.empty() ? ordered_json() : ordered_json(r.verdict[0].status.to_string());
  return item;
}

}  // namespace

std::string span_text(std::int64_t ns) {
  const double value = double(ns);
  if (std::abs(value) < 1e6) return fmt::format("{:.3g} us", value / 1e3);
  if (std::abs(value) < 1e9) return fmt::format("{:.3g} ms", value / 1e6);
  return fmt::format("{:.4g} s", value / 1e9);
}

std::string speed_text(double rate) {
  if (rate >= 1e9) return fmt::format("{:.3g} GB/s", rate / 1e9);
  if (rate >= 1e6) return fmt::format("{:.3g} MB/s", rate / 1e6);
  return fmt::format("{:.3g} KB/s", rate / 1e3);
}

std::string way_text(const record::Peer& peer) { return peer.wire + (peer.way.empty() ? "" : " " + peer.way); }

std::string rank_text(const Story& story, int rank) {
  const Recording* found = story.recording(rank);
  return found ? fmt::format("rank {} ({}, pid {})", rank, found->host, found->pid) : fmt::format("rank {}", rank);
}

std::string life_text(const Recording& r) {
  if (r.end == record::End::clean) return "ended well";
  if (r.end == record::End::failed) return "ended after a failure";
  switch (r.life) {
    case Recording::Life::running: return "alive";
    case Recording::Life::stopped: return "stopped";
    case Recording::Life::dead: return "dead";
    case Recording::Life::unknown: break;
  }
  return "of another host";
}

const char* end_name(Chapter::End end) {
  constexpr const char* kNames[] = {"complete", "running", "waits_for_call", "mismatch", "waits_for_dead", "waits_for_stopped", "failed", "stuck"};
  return kNames[std::size_t(end)];
}

std::string verdict_text(const Story& story, const Chapter& c) {
  const std::string who = ranks_text(story, c.culprits);
  const std::string pending = c.pending.empty() ? "" : fmt::format("{} of {} ranks wait", c.pending.size(), c.parts.size());
  const std::string head = pending.empty() ? "" : pending + "; ";
  switch (c.end) {
    case Chapter::End::complete: return "";
    case Chapter::End::running: return head + "under way";
    case Chapter::End::waits_for_call: return head + who + (c.culprits.size() > 1 ? " have" : " has") + " not made the call";
    case Chapter::End::waits_for_dead: return head + who + (c.culprits.size() > 1 ? " are" : " is") + " dead";
    case Chapter::End::waits_for_stopped: return head + who + (c.culprits.size() > 1 ? " are" : " is") + " stopped";
    case Chapter::End::stuck: return head + "all have called: a link stalls, or they wait for each other";
    case Chapter::End::failed: return head + "it failed";
    case Chapter::End::mismatch: break;
  }
  std::string calls;
  for (const Chapter::Part& part : c.parts)
    if (std::find(c.culprits.begin(), c.culprits.end(), part.rank) != c.culprits.end())
      calls += fmt::format("; {} called {}", rank_text(story, part.rank), comm::to_string(comm::unpack(part.operation.call)));
  return head + "the ranks called different things" + calls;
}

std::string report_text(const Story& story) {
  const int rank_count = story.ranks.empty() ? 0 : story.ranks[0].rank_count;
  return fmt::format("job {:016x}, {} ranks, {} recorders\n", story.job, rank_count, story.ranks.size()) + rank_lines(story) + chapter_lines(story) +
         straggler_lines(story) + break_lines(story) + repair_lines(story) + way_lines(story) + link_lines(story);
}

std::string report_json(const Story& story) {
  ordered_json out = {{"job", fmt::format("{:016x}", story.job)}, {"rank_count", story.ranks.empty() ? 0 : story.ranks[0].rank_count}};
  out["recorders"] = ordered_json::array();
  for (const Recording& r : story.ranks) out["recorders"].push_back(json_of(r));
  out["missing"] = story.missing;
  out["late"] = ordered_json::array();
  for (const record::Late& late : story.late)
    out["late"].push_back({{"rank", late.rank}, {"times", late.times}, {"of", late.of}, {"median_ns", late.median}, {"total_ns", late.total}, {"notable", late.notable()}});
  out["links"] = ordered_json::array();
  for (const record::Link& link : story.links)
    out["links"].push_back({{"from", link.from}, {"to", link.to}, {"wire", link.wire}, {"bytes", link.bytes}, {"bytes_per_second", link.rate}, {"slow", link.slow()}});
  out["breaks"] = ordered_json::array();
  for (const record::Break& b : story.breaks)
    out["breaks"].push_back({{"rank", b.rank}, {"peer", b.peer}, {"silent", b.silent}, {"code", code_name(Code(b.code))}, {"at_ns", b.at}, {"mended_ns", b.mended_at},
                             {"frames_sent_again", b.resent}});
  out["sent_again"] = ordered_json::array();
  for (const Recording& r : story.ranks)
    for (const record::Peer& peer : r.peers)
      if (peer.resent || peer.retransmitted)
        out["sent_again"].push_back({{"from", r.rank}, {"to", peer.rank}, {"wire", peer.wire}, {"frames", peer.resent}, {"segments", peer.retransmitted}});
  out["ways"] = ordered_json::array();
  for (const Recording& r : story.ranks)
    for (const record::Peer& peer : r.peers)
      if (peer.state > 0) out["ways"].push_back({{"from", r.rank}, {"to", peer.rank}, {"wire", peer.wire}, {"way", peer.way}, {"made_again", peer.mended}, {"lost", peer.state == 2}});
  out["operations"] = ordered_json::array();
  for (const Chapter& c : story.chapters) out["operations"].push_back(json_of(c, story));
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::tools
