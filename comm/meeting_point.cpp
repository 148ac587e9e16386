#include "comm/meeting_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "core/log.h"
#include "core/socket_address.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::seconds kReportEvery{5};
// When something is wrong already: how long the others may take to come and hear of it.
constexpr std::chrono::seconds kHearWithin{2};
constexpr std::size_t kMaxAnswerBytes = 64 * kMaxRankInfoBytes;

std::vector<std::byte> with_length(const ByteWriter& body) {
  ByteWriter out;
  out.number(std::uint32_t(body.bytes().size())).raw(body.bytes());
  return out.take();
}

Task<Result<std::vector<std::byte>>> read_with_length(Loop& loop, Stream& stream, std::size_t most,
                                                      TimePoint deadline) {
  std::array<std::byte, 4> head;
  auto reading = read_exact(loop, stream, head, deadline);
  Status status = co_await reading;
  if (!status) co_return status;
  std::size_t bytes = ByteReader(head).number<std::uint32_t>();
  if (bytes > most)
    co_return Status(Code::network, fmt::format("{} sent a message of {} bytes", stream.remote_address(), bytes));
  std::vector<std::byte> body(bytes);
  auto rest = read_exact(loop, stream, body, deadline);
  status = co_await rest;
  if (!status) co_return status;
  co_return std::move(body);
}

std::vector<std::byte> encode(const MeetingAnswer& answer) {
  ByteWriter out;
  out.number(std::uint8_t(answer.status.code()))
      .number(std::uint32_t(answer.status.culprit()))
      .text(answer.status.text());
  out.number(answer.epoch).number(std::uint16_t(answer.neighbours.size()));
  for (const RankInfo& info : answer.neighbours) encode(info, out);
  return with_length(out);
}

std::optional<MeetingAnswer> decode_answer(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  MeetingAnswer out;
  auto code = in.number<std::uint8_t>();
  int culprit = int(in.number<std::uint32_t>());
  std::string text = in.text();
  if (code > std::uint8_t(kLastCode)) return std::nullopt;
  if (code != 0) out.status = Status(Code(code), text, culprit);
  out.epoch = in.number<std::uint32_t>();
  int count = in.number<std::uint16_t>();
  for (int i = 0; i < count; ++i) {
    auto info = decode_rank_info(in);
    if (!info) return std::nullopt;
    out.neighbours.push_back(std::move(*info));
  }
  if (!in.good() || !in.at_end()) return std::nullopt;
  return out;
}

std::map<std::string, std::string> parse_settings(const std::string& text) {
  std::map<std::string, std::string> out;
  std::istringstream words(text);
  for (std::string word; words >> word;)
    out[word.substr(0, word.find('='))] = word.substr(std::min(word.find('='), word.size() - 1) + 1);
  return out;
}

}  // namespace

std::vector<int> control_neighbours(int rank, int rank_count) {
  std::set<int> out;
  for (long distance = 1; distance < rank_count; distance *= 2) {
    out.insert(int((rank + distance) % rank_count));
    out.insert(int((rank - distance + rank_count) % rank_count));
  }
  out.erase(rank);
  return {out.begin(), out.end()};
}

std::string difference(const RankInfo& a, const RankInfo& b) {
  auto left = parse_settings(a.shared_text), right = parse_settings(b.shared_text);
  auto value = [](const std::map<std::string, std::string>& of, const std::string& name) {
    auto at = of.find(name);
    return at == of.end() ? std::string("at its default") : at->second;
  };
  std::set<std::string> names;
  for (const auto& side : {left, right})
    for (const auto& [name, text] : side) names.insert(name);
  std::string out;
  for (const std::string& name : names) {
    if (value(left, name) == value(right, name)) continue;
    out += fmt::format("{}{} is {} on {} and {} on {}", out.empty() ? "" : "; ", name, value(left, name), a.describe(),
                       value(right, name), b.describe());
  }
  if (out.empty())
    out = fmt::format("the defaults of {} and {} differ: they run different builds", a.describe(), b.describe());
  return out;
}

Task<Result<MeetingAnswer>> ask_meeting_point(Loop& loop, Stream& stream, const RankInfo& own, Nanoseconds patience,
                                              TimePoint deadline) {
  ByteWriter body;
  body.number(std::uint64_t(std::max<std::int64_t>(patience.count(), 0)));
  encode(own, body);
  const std::vector<std::byte> message = with_length(body);
  auto writing = write_all(loop, stream, message, deadline);
  Status status = co_await writing;
  if (!status) co_return status;
  auto reading = read_with_length(loop, stream, kMaxAnswerBytes, deadline);
  auto bytes = co_await reading;
  if (!bytes) co_return bytes.status();
  auto answer = decode_answer(*bytes);
  if (!answer)
    co_return Status(Code::network, fmt::format("{} sent an answer that cannot be read", stream.remote_address()));
  co_return std::move(*answer);
}

MeetingPoint::MeetingPoint(Loop& loop, const JobKey& key, int own_rank)
    : loop_(loop),
      reception_(loop, key, own_rank,
                 [this](const PeerHello& hello, std::unique_ptr<Stream> stream) {
                   if (hello.purpose == Purpose::meeting) tasks_.spawn(serve(std::move(stream)));
                 }),
      epoch_(std::uint32_t(loop.random())),
      finish_(loop) {
  report_ = loop_.at(loop.now() + kReportEvery, [this] { report(); });
}

Status MeetingPoint::listen(const std::vector<std::string>& hosts, int port, int ports) {
  Status first;
  for (int p = port; p < port + ports && p <= 65535; ++p) {
    int actual = p;
    bool any = false;
    for (const std::string& host : hosts) {
      Status status = reception_.listen(!host.empty() && host[0] == '@' ? host : join_address(host, actual));
      if (status && actual == 0) actual = reception_.port();  // the same on all hosts
      any |= status.ok();
      if (!status && first.ok()) first = status;
    }
    if (any) return {};
  }
  if (ports > 1)
    return Status(first.code(), fmt::format("{}; nor is any of the {} ports behind it free", first.text(), ports - 1));
  return first;
}

Task<void> MeetingPoint::serve(std::unique_ptr<Stream> stream) {
  auto reading = read_with_length(loop_, *stream, kMaxRankInfoBytes, loop_.now() + kHandshakeLimit);
  auto bytes = co_await reading;
  if (!bytes) co_return;
  ByteReader in(*bytes);
  Nanoseconds patience(std::int64_t(std::min<std::uint64_t>(in.number<std::uint64_t>(), 1ull << 60)));
  auto info = decode_rank_info(in);
  if (!info || !in.at_end()) co_return;
  Entry entry{std::move(*info), std::move(stream), nullptr, loop_.now() + patience};
  enter(std::move(entry));
}

void MeetingPoint::add(const RankInfo& info, Nanoseconds patience, std::function<void(const MeetingAnswer&)> answer) {
  enter({info, nullptr, std::move(answer), loop_.now() + patience});
}

void MeetingPoint::enter(Entry entry) {
  if (!started_) started_ = loop_.now();
  if (verdict_ && !verdict_->ok()) return answer(entry, *verdict_);
  if (verdict_)
    return answer(
        entry, Status(Code::mismatch,
                      fmt::format("the {} ranks have met already, without {}", entries_.size(), entry.info.describe()),
                      entry.info.rank));
  // The same process, trying again: its first connection broke.
  std::erase_if(entries_, [&](const Entry& e) {
    return e.info.rank == entry.info.rank && e.info.instance == entry.info.instance;
  });
  inspect(entry.info);
  entries_.push_back(std::move(entry));
  watch(std::prev(entries_.end()));
  consider();
}

// Before its answer a rank has nothing to say; what comes is its end.
void MeetingPoint::watch(std::list<Entry>::iterator entry) {
  if (!entry->stream) return;
  entry->stream->when_readable([this, entry] {
    departed_ += fmt::format("{}{} had joined and left again", departed_.empty() ? "; " : ", ", entry->info.describe());
    entries_.erase(entry);
    set_timer();
  });
}

const RankInfo* MeetingPoint::find(int rank) const {
  for (const Entry& entry : entries_)
    if (entry.info.rank == rank) return &entry.info;
  return nullptr;
}

void MeetingPoint::inspect(const RankInfo& info) {
  if (problem_ || entries_.empty()) return;
  const RankInfo& first = entries_.front().info;
  auto found = [&](Code code, std::string text) {
    problem_ = Status(code, std::move(text), info.rank);
    problem_until_ = loop_.now() + kHearWithin;
  };
  if (info.rank_count != first.rank_count)
    return found(Code::mismatch, fmt::format("{} was started with {} ranks, {} with {}", info.describe(),
                                             info.rank_count, first.describe(), first.rank_count));
  if (info.rank >= first.rank_count)
    return found(Code::invalid_argument, fmt::format("{} is none of 0 to {}", info.describe(), first.rank_count - 1));
  if (const RankInfo* other = find(info.rank))
    return found(Code::mismatch, fmt::format("rank {} was started twice: pid {} on {} and pid {} on {}", info.rank,
                                             other->pid, other->host, info.pid, info.host));
  if (info.version != first.version)
    return found(Code::mismatch, fmt::format("{} runs tutti {}, {} runs {}", info.describe(), info.version,
                                             first.describe(), first.version));
  if (info.little_endian != first.little_endian)
    return found(Code::unsupported,
                 fmt::format("{} and {} have different byte orders", info.describe(), first.describe()));
  if (info.shared_hash != first.shared_hash)
    found(Code::mismatch, "settings that all ranks must share differ: " + difference(info, first));
}

void MeetingPoint::consider() {
  bool all = entries_.size() >= std::size_t(entries_.front().info.rank_count);
  if (all) return decide(problem_.value_or(Status()));
  set_timer();
}

void MeetingPoint::set_timer() {
  timer_ = nullptr;
  TimePoint when = problem_until_;
  for (const Entry& entry : entries_) when = std::min(when, entry.gives_up);
  if (when == kNever) return;
  timer_ = loop_.at(when, [this] { decide(problem_ ? *problem_ : missing_ranks()); });
}

void MeetingPoint::decide(Status status) {
  timer_ = report_ = nullptr;
  verdict_ = std::move(status);
  ++unsent_;  // so that no answer finishes it before all have begun
  for (Entry& entry : entries_) answer(entry, *verdict_);
  if (--unsent_ == 0) finish_.set();
}

void MeetingPoint::answer(Entry& entry, const Status& status) {
  MeetingAnswer out;
  out.status = status;
  out.epoch = epoch_;
  if (out.status.ok())
    for (int rank : control_neighbours(entry.info.rank, entry.info.rank_count)) out.neighbours.push_back(*find(rank));
  ++unsent_;
  if (entry.stream) {
    entry.stream->when_readable({});
    tasks_.spawn(send_answer(std::move(entry.stream), encode(out)));
    return;
  }
  auto tell = [](MeetingPoint& self, std::function<void(const MeetingAnswer&)> callback,
                 MeetingAnswer what) -> Task<void> {
    SleepUntil soon(self.loop_, self.loop_.now());
    co_await soon;
    if (--self.unsent_ == 0) self.finish_.set();
    callback(what);
  };
  tasks_.spawn(tell(*this, entry.callback, std::move(out)));
}

Task<void> MeetingPoint::send_answer(std::unique_ptr<Stream> stream, std::vector<std::byte> bytes) {
  auto writing = write_all(loop_, *stream, bytes, loop_.now() + kHandshakeLimit);
  Status status = co_await writing;  // who does not take it has gone or will say so itself
  if (!status) log::debug("{}", status.text());
  if (--unsent_ == 0) finish_.set();
}

double MeetingPoint::waited() const {
  return std::chrono::duration<double>(started_ ? loop_.now() - *started_ : Nanoseconds(0)).count();
}

std::string MeetingPoint::list_missing() const {
  constexpr int kMostNamed = 16;
  std::set<int> there;
  for (const Entry& entry : entries_) there.insert(entry.info.rank);
  std::string out;
  int missing = 0;
  for (int rank = 0; rank < entries_.front().info.rank_count; ++rank) {
    if (there.count(rank)) continue;
    if (++missing <= kMostNamed) out += fmt::format("{}{}", missing == 1 ? "rank " : ", ", rank);
  }
  if (missing > kMostNamed) out += fmt::format(" and {} more", missing - kMostNamed);
  return out;
}

Status MeetingPoint::missing_ranks() const {
  int count = entries_.front().info.rank_count, culprit = -1;
  for (int rank = count - 1; rank >= 0 && count - int(entries_.size()) == 1; --rank)
    if (!find(rank)) culprit = rank;
  std::string strangers;
  if (reception_.strangers() > 0)
    strangers = fmt::format("; {} connections were turned away, the last one because: {}", reception_.strangers(),
                            reception_.last_stranger());
  std::string where;
  for (const std::string& address : addresses()) where += (where.empty() ? "" : ", ") + address;
  return Status(
      Code::timeout,
      fmt::format(
          "{} of {} ranks joined within {:.4g} s; missing: {}{}{}. Were they started, with the same address and job "
          "key, and can their hosts reach the meeting point at {}?",
          entries_.size(), count, waited(), list_missing(), departed_, strangers, where),
      culprit);
}

void MeetingPoint::report() {
  report_ = loop_.at(loop_.now() + kReportEvery, [this] { report(); });
  if (entries_.empty()) return;
  log::info("waiting for ranks: {} of {} have joined after {:.0f} s; missing: {}", entries_.size(),
            entries_.front().info.rank_count, waited(), list_missing());
}

}  // namespace tutti::comm
