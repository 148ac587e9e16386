#include "comm/hang_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/call.h"
#include "comm/wire_bytes.h"

namespace tutti::comm {
namespace {

using State = HangReport::State;
using Row = HangReport::Row;
using Json = nlohmann::ordered_json;

constexpr const char* kStateNames[] = {"waits", "done", "behind", "not_called", "other_call", "silent", "gone"};

// Those that explain it stand first when not all can be told.
int weight(State state) {
  switch (state) {
    case State::gone: return 0;
    case State::silent: return 1;
    case State::other_call: return 2;
    case State::not_called: return 3;
    case State::behind: return 4;
    case State::waits: return 5;
    case State::done: return 6;
  }
  return 7;
}

State state_of(const HangReport& about, const Report& report) {
  const bool called = std::int32_t(report.started - about.sequence) > 0;
  if (!about.collective) return report.pending ? State::waits : State::not_called;
  if (!called) return report.pending ? State::behind : State::not_called;
  bool here = false;
  for (const Stand& stand : report.stands) {
    if (!stand.collective || stand.sequence != about.sequence) continue;
    here = true;
    if (stand.call != about.call) return State::other_call;
  }
  return here || report.stands.empty() ? (report.pending ? State::waits : State::done) : State::done;
}

bool sends_to(const Row& row, int peer, std::uint32_t sequence) {
  return std::any_of(row.stands.begin(), row.stands.end(),
                     [&](const Stand& s) { return s.sends && s.peer == peer && s.sequence == sequence; });
}

// The receiver lacks bytes that the sender has handed over: it is through with
// the operation, or keeps them unacknowledged.
std::vector<HangReport::Stalled> stalled_links(const HangReport& report, const std::map<int, Row>& rows) {
  std::vector<HangReport::Stalled> links;
  for (const auto& [rank, row] : rows) {
    for (const Stand& stand : row.stands) {
      if (stand.sends || stand.sequence != report.sequence || stand.collective != report.collective) continue;
      const auto sender = rows.find(stand.peer);
      if (sender == rows.end()) continue;
      const bool handed = sender->second.state == State::done ||
                          (sender->second.state == State::waits && sends_to(sender->second, rank, report.sequence));
      const HangReport::Stalled link{stand.peer, rank};
      if (handed && std::find(links.begin(), links.end(), link) == links.end() && links.size() < HangReport::kMostRows)
        links.push_back(link);
    }
  }
  return links;
}

std::string where(const HangReport& report, const Row& row, const std::map<int, std::string>& names) {
  std::string out;
  for (const Stand& s : row.stands) {
    const auto name = names.find(s.peer);
    const std::string peer = name == names.end() ? fmt::format("rank {}", s.peer) : name->second;
    out +=
        fmt::format("{}{}step {} of {}: {} chunk {} {} {}, {} of {} bytes", out.empty() ? "" : "; ",
                    s.sequence == report.sequence ? "" : fmt::format("operation {}, ", s.sequence), s.step + 1, s.steps,
                    s.sends ? "sends" : "receives", s.chunk, s.sends ? "to" : "from", peer, s.done, s.bytes);
  }
  return out;
}

std::string line_of(const HangReport& report, const Row& row, const std::map<int, std::string>& names) {
  const std::string stands = where(report, row, names);
  switch (row.state) {
    case State::gone: return "has left, or its process has ended";
    case State::silent: return "does not answer: is its process stopped, or its host out of reach or out of memory?";
    case State::not_called:
      return report.collective
                 ? fmt::format("has not made the call: it is alive, outside the library, and has made {} calls",
                               row.started)
                 : "is alive and has nothing pending";
    case State::behind:
      return fmt::format("is still in an earlier operation, it has made {} calls{}{}", row.started,
                         stands.empty() ? "" : ": ", stands);
    case State::other_call:
      for (const Stand& s : row.stands)
        if (s.sequence == report.sequence) return fmt::format("called {} instead", to_string(unpack(s.call)));
      return "called something else";
    case State::done: return "is through with it";
    case State::waits: return stands.empty() ? "waits" : "waits at " + stands;
  }
  return "";
}

void put(ByteWriter& out, const Row& row) {
  out.number(std::uint32_t(row.rank))
      .number(std::uint32_t(row.world_rank))
      .number(std::uint8_t(row.state))
      .number(row.started);
  encode(row.stands, out);
}

Json json_of(const Stand& s) {
  return {
      {"operation", s.sequence}, {"call", to_string(unpack(s.call))},         {"step", s.step + 1}, {"steps", s.steps},
      {"chunk", s.chunk},        {"direction", s.sends ? "send" : "receive"}, {"peer", s.peer},     {"done", s.done},
      {"bytes", s.bytes}};
}

}  // namespace

HangReport explain_hang(HangReport about, const std::map<int, HangKnowledge>& ranks) {
  std::map<int, Row> rows;
  for (const auto& [rank, known] : ranks) {
    Row row{rank, known.world_rank, State::silent, 0, {}};
    if (known.gone) row.state = State::gone;
    if (!known.gone && known.report) {
      row.state = state_of(about, *known.report);
      row.started = known.report->started;
      row.stands = known.report->stands;
    }
    rows[rank] = std::move(row);
  }
  about.stalled = stalled_links(about, rows);
  for (auto& [rank, row] : rows) about.rows.push_back(std::move(row));
  if (about.rows.size() > HangReport::kMostRows) {
    std::stable_sort(about.rows.begin(), about.rows.end(),
                     [](const Row& a, const Row& b) { return weight(a.state) < weight(b.state); });
    about.rows.resize(HangReport::kMostRows);
    std::sort(about.rows.begin(), about.rows.end(), [](const Row& a, const Row& b) { return a.rank < b.rank; });
  }
  return about;
}

std::string HangReport::encode() const {
  ByteWriter out;
  out.number(communicator)
      .number(sequence)
      .number(std::uint8_t(collective))
      .number(call)
      .number(quiet)
      .number(std::uint32_t(rank_count));
  out.number(std::uint8_t(rows.size()));
  for (const Row& row : rows) put(out, row);
  out.number(std::uint8_t(stalled.size()));
  for (const Stalled& link : stalled) out.number(std::uint32_t(link.from)).number(std::uint32_t(link.to));
  const auto& bytes = out.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<HangReport> HangReport::decode(const std::string& bytes) {
  ByteReader in(std::as_bytes(std::span(bytes.data(), bytes.size())));
  HangReport report;
  report.communicator = in.number<std::uint32_t>();
  report.sequence = in.number<std::uint32_t>();
  report.collective = in.number<std::uint8_t>() != 0;
  report.call = in.number<std::uint64_t>();
  report.quiet = in.number<std::uint32_t>();
  report.rank_count = int(in.number<std::uint32_t>());
  const auto rows = in.number<std::uint8_t>();
  for (unsigned i = 0; i < rows && in.good(); ++i) {
    Row row;
    row.rank = int(in.number<std::uint32_t>());
    row.world_rank = int(in.number<std::uint32_t>());
    const auto state = in.number<std::uint8_t>();
    if (state > std::uint8_t(State::gone)) return std::nullopt;
    row.state = State(state);
    row.started = in.number<std::uint32_t>();
    row.stands = decode_stands(in);
    report.rows.push_back(std::move(row));
  }
  const auto links = in.number<std::uint8_t>();
  for (unsigned i = 0; i < links && in.good(); ++i) {
    const int from = int(in.number<std::uint32_t>());
    report.stalled.push_back({from, int(in.number<std::uint32_t>())});
  }
  if (!in.good() || !in.at_end() || rows > kMostRows || links > kMostRows || report.rank_count < 0) return std::nullopt;
  return report;
}

std::string HangReport::text(const Describe& describe) const {
  std::map<int, std::string> names;
  for (const Row& row : rows) names[row.rank] = describe(row.world_rank);
  std::string out = fmt::format("operation {} {} of communicator {}: nothing moved for {:.3g} s", sequence,
                                to_string(unpack(call)), communicator & 0x7fffffffu, quiet / 1000.0);
  std::vector<const Row*> sorted;
  for (const Row& row : rows) sorted.push_back(&row);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Row* a, const Row* b) { return weight(a->state) < weight(b->state); });
  const auto name = [&](int rank) { return names.count(rank) ? names.at(rank) : fmt::format("rank {}", rank); };
  for (const Row* row : sorted)
    if (weight(row->state) <= weight(State::not_called))
      out += fmt::format("\n  {} {}", name(row->rank), line_of(*this, *row, names));
  for (const Stalled& link : stalled)
    out += fmt::format("\n  the link {} -> {} stalls", name(link.from), name(link.to));
  for (const Row* row : sorted)
    if (weight(row->state) > weight(State::not_called))
      out += fmt::format("\n  {} {}", name(row->rank), line_of(*this, *row, names));
  if (int(rows.size()) < rank_count) out += fmt::format("\n  and {} ranks more", rank_count - int(rows.size()));
  return out;
}

std::string HangReport::json(const Describe& describe) const {
  Json out = {{"communicator", communicator & 0x7fffffffu}, {"operation", sequence}, {"call", to_string(unpack(call))},
              {"seconds_without_progress", quiet / 1000.0}, {"rank_count", rank_count}};
  out["ranks"] = Json::array();
  for (const Row& row : rows) {
    Json item = {{"rank", row.rank}, {"world_rank", row.world_rank}, {"who", describe(row.world_rank)},
                 {"state", kStateNames[std::size_t(row.state)]}, {"calls", row.started}};
    item["waits_at"] = Json::array();
    for (const Stand& s : row.stands) item["waits_at"].push_back(json_of(s));
    out["ranks"].push_back(item);
  }
  out["stalled_links"] = Json::array();
  for (const Stalled& link : stalled) out["stalled_links"].push_back({{"from", link.from}, {"to", link.to}});
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::comm
