#include "record/story.h"

#include <tutti/types.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace tutti::record {
namespace {

using Key = std::pair<std::uint32_t, std::uint32_t>;          // communicator, sequence

template <class Number>
Number median(std::vector<Number> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool before(std::uint32_t a, std::uint32_t b) { return std::int32_t(a - b) < 0; }

// Nobody's ends before everybody's has begun.
bool gathers_all(std::uint64_t call) {
  switch (Collective(call & 31)) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::barrier: return true;
    default: return false;
  }
}

// What a rank has of one communicator. Sequences wrap.
struct Span {
  std::uint32_t oldest = 0, newest = 0;
  bool any = false;
};

class Teller {
 public:
  explicit Teller(Story& story) : story_(story) {
    for (std::size_t i = 0; i < story.ranks.size(); ++i) index(i);
  }

  void align();
  void chapters();
  void lateness();
  void links();
  void breaks();

 private:
  void index(std::size_t i);
  void align_host(std::size_t reference, std::uint64_t host);
  Chapter chapter(const Key& key, const std::map<std::size_t, const Operation*>& by_rank) const;
  static void find_starts(Chapter& chapter);
  void find_missing(Chapter& chapter) const;
  void judge(Chapter& chapter) const;
  void measure(Chapter& chapter) const;
  Recording::Life life(int rank) const {
    const Recording* found = story_.recording(rank);
    return found ? found->life : Recording::Life::unknown;
  }

  Story& story_;
  std::map<Key, std::map<std::size_t, const Operation*>> operations_;       // by place in story_.ranks
  std::map<std::uint32_t, std::map<std::size_t, Span>> spans_;              // members, by communicator
};

void Teller::index(std::size_t i) {
  const Recording& recording = story_.ranks[i];
  spans_[0][i];                                                             // all are in the world
  for (const Event& event : recording.events)
    if (event.kind == EventKind::joined) spans_[event.communicator][i];
  for (const Operation& operation : recording.operations) {
    if (operation.communicator & kPairMark) continue;
    operations_[{operation.communicator, operation.sequence}][i] = &operation;
    Span& span = spans_[operation.communicator][i];
    if (!span.any || before(operation.sequence, span.oldest)) span.oldest = operation.sequence;
    if (!span.any || before(span.newest, operation.sequence)) span.newest = operation.sequence;
    span.any = true;
  }
}

// Hosts' clocks differ. That nobody is done before all have called bounds by how much; where the clocks agree with
// that, they are believed.
// Guessed times bound nothing.
void Teller::align() {
  story_.shift.assign(story_.ranks.size(), 0);
  std::set<std::uint64_t> hosts;
  for (const Recording& r : story_.ranks) hosts.insert(r.host_identity);
  for (const std::uint64_t host : hosts)
    if (host != story_.ranks[0].host_identity) align_host(0, host);
}

void Teller::align_host(std::size_t reference, std::uint64_t host) {
  std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
  const std::uint64_t home = story_.ranks[reference].host_identity;
  for (const auto& [key, by_rank] : operations_) {
    for (const auto& [i, there] : by_rank) {
      if (there->in_run || story_.ranks[i].host_identity != host || !gathers_all(there->call)) continue;
      for (const auto& [k, here] : by_rank) {
        if (here->in_run || story_.ranks[k].host_identity != home) continue;
        if (there->ended && there->code == 0) low = std::max(low, here->started - there->ended);
        if (here->ended && here->code == 0) high = std::min(high, here->ended - there->started);
      }
    }
  }
  std::int64_t shift = 0;
  if (low > 0 && low <= high) shift = high == std::numeric_limits<std::int64_t>::max() ? low : low + (high - low) / 2;
  if (high < 0 && low <= high) shift = low == std::numeric_limits<std::int64_t>::min() ? high : low + (high - low) / 2;
  for (std::size_t i = 0; i < story_.ranks.size(); ++i)
    if (story_.ranks[i].host_identity == host) story_.shift[i] = shift;
}

void Teller::chapters() {
  for (const auto& [key, by_rank] : operations_) story_.chapters.push_back(chapter(key, by_rank));
  const auto begin = [](const Chapter& c) {
    return std::min_element(c.parts.begin(), c.parts.end(),
                            [](const auto& x, const auto& y) { return x.started < y.started; })
        ->started;
  };
  std::stable_sort(story_.chapters.begin(), story_.chapters.end(),
                   [&](const Chapter& x, const Chapter& y) { return begin(x) < begin(y); });
}

Chapter Teller::chapter(const Key& key, const std::map<std::size_t, const Operation*>& by_rank) const {
  Chapter out;
  out.communicator = key.first;
  out.sequence = key.second;
  std::map<std::uint64_t, std::size_t> calls;
  for (const auto& [i, operation] : by_rank) {
    const std::int64_t shift = story_.shift[i];
    out.parts.push_back({story_.ranks[i].rank, *operation, operation->started + shift,
                         operation->ended ? operation->ended + shift : 0});
    ++calls[operation->call];
    if (!operation->ended) out.pending.push_back(story_.ranks[i].rank);
  }
  out.call = out.parts[0].operation.call;
  for (const auto& part : out.parts)
    if (calls[part.operation.call] > calls[out.call]) out.call = part.operation.call;
  for (const auto& part : out.parts)
    if (part.operation.call != out.call) out.other_call.push_back(part.rank);
  find_starts(out);
  find_missing(out);
  measure(out);
  judge(out);
  return out;
}

// Of one that was over within its call a peer knows the start that waited for it: its data came last.
void Teller::find_starts(Chapter& chapter) {
  for (auto& part : chapter.parts) {
    if (!part.operation.in_run) continue;
    part.timed = false;
    for (const auto& peer : chapter.parts) {
      if (peer.operation.in_run || peer.operation.last_peer != part.rank || peer.operation.last_after == 0) continue;
      part.started = peer.started + peer.operation.last_after;
      if (part.ended) part.ended = std::max(part.ended, part.started);
      part.timed = true;
    }
  }
}

void Teller::find_missing(Chapter& chapter) const {
  for (const auto& [i, span] : spans_.at(chapter.communicator))
    if (!span.any || before(span.newest, chapter.sequence)) chapter.not_called.push_back(story_.ranks[i].rank);
}

void Teller::measure(Chapter& chapter) const {
  std::vector<std::int64_t> starts;
  std::int64_t latest = std::numeric_limits<std::int64_t>::min();
  for (const auto& part : chapter.parts) {
    if (!part.timed) continue;
    starts.push_back(part.started);
    if (part.started <= latest) continue;
    latest = part.started;
    chapter.last = part.rank;
  }
  if (starts.empty()) return;
  const auto last = std::max_element(starts.begin(), starts.end());
  chapter.skew = latest - *std::min_element(starts.begin(), starts.end());
  starts.erase(last);
  if (!starts.empty()) chapter.lag = latest - median(starts);
}

// The first cause that explains it: different calls, a dead rank, a stopped one, one that has not called.
void Teller::judge(Chapter& c) const {
  using End = Chapter::End;
  const bool failed = std::any_of(c.parts.begin(), c.parts.end(),
                                  [](const auto& part) { return part.ended && part.operation.code != 0; });
  if (c.pending.empty() && !failed) return;
  std::vector<int> missing_or_pending = c.not_called;
  missing_or_pending.insert(missing_or_pending.end(), c.pending.begin(), c.pending.end());
  const auto those = [&](Recording::Life wanted) {
    std::vector<int> found;
    for (const int rank : missing_or_pending)
      if (life(rank) == wanted && story_.recording(rank)->end == record::End::running) found.push_back(rank);
    std::sort(found.begin(), found.end());
    return found;
  };
  const auto set = [&](End end, std::vector<int> culprits) {
    c.end = end;
    c.culprits = std::move(culprits);
  };
  if (!c.other_call.empty()) return set(End::mismatch, c.other_call);
  if (auto dead = those(Recording::Life::dead); !dead.empty()) return set(End::waits_for_dead, dead);
  if (auto stopped = those(Recording::Life::stopped); !stopped.empty()) return set(End::waits_for_stopped, stopped);
  if (!c.not_called.empty()) return set(End::waits_for_call, c.not_called);
  if (failed) return set(End::failed, {});
  set(c.pending.size() == c.parts.size() ? End::stuck : End::running, {});
}

// A rank that comes last because the operation before kept it longer is not
// late itself: what counts is its time outside.
void Teller::lateness() {
  std::map<int, std::vector<std::int64_t>> lags;
  std::map<int, std::int64_t> since;                 // by rank: when it was free to make the next call
  std::size_t of = 0;
  for (const Chapter& chapter : story_.chapters) {
    std::vector<std::int64_t> others;
    std::int64_t own = 0;
    for (const Chapter::Part& part : chapter.parts) {
      const auto before = since.find(part.rank);
      const std::int64_t outside = before == since.end() ? 0 : part.started - std::min(before->second, part.started);
      if (part.rank == chapter.last) own = outside;
      else if (part.timed) others.push_back(outside);
      since[part.rank] = part.ended ? part.ended : part.started;
    }
    if (!chapter.not_called.empty() || chapter.parts.size() < 2 ||
        chapter.parts.size() < spans_.at(chapter.communicator).size())
      continue;
    ++of;
    if (others.empty()) continue;      // nobody waited
    const std::int64_t lag = std::min(chapter.lag, own - median(others));
    if (lag >= kNotableLag) lags[chapter.last].push_back(lag);
  }
  for (const auto& [rank, values] : lags) {
    Late late{rank, values.size(), of, median(values), 0};
    for (const std::int64_t value : values) late.total += value;
    story_.late.push_back(late);
  }
  std::stable_sort(story_.late.begin(), story_.late.end(),
                   [](const Late& x, const Late& y) { return x.times > y.times; });
}

void Teller::links() {
  for (const Recording& r : story_.ranks)
    for (const Peer& peer : r.peers)
      if (peer.service_bytes >= kLeastServiceBytes && peer.service_nanoseconds > 0)
        story_.links.push_back({peer.rank, r.rank, peer.wire, peer.service_bytes,
                                double(peer.service_bytes) / double(peer.service_nanoseconds) * 1e9, 0});
  for (Link& link : story_.links) {
    std::vector<double> others;
    for (const Link& other : story_.links)
      if (&other != &link && other.wire == link.wire) others.push_back(other.rate);
    link.others = median(others);
  }
  std::stable_sort(story_.links.begin(), story_.links.end(),
                   [](const Link& x, const Link& y) { return x.rate < y.rate; });
}

void Teller::breaks() {
  for (std::size_t i = 0; i < story_.ranks.size(); ++i) {
    const Recording& r = story_.ranks[i];
    std::map<int, Break> open;
    for (const Event& event : r.events) {
      const std::int64_t at = event.at + story_.shift[i];
      if (event.kind == EventKind::broken)
        open[event.peer] = {r.rank, event.peer, false, int(std::min<std::uint64_t>(event.a, std::uint64_t(kLastCode))),
                            at};
      if (event.kind != EventKind::mended) continue;
      Break mended{r.rank, event.peer, event.c != 0, 0,
                   at - std::int64_t(std::min<std::uint64_t>(event.a, std::uint64_t(at)))};
      if (const auto begun = open.find(event.peer); begun != open.end() && !mended.silent)
        mended.code = begun->second.code;
      open.erase(event.peer);
      mended.mended_at = at;
      mended.resent = event.b;
      story_.breaks.push_back(mended);
    }
    for (const auto& [peer, broken] : open) story_.breaks.push_back(broken);
  }
  std::stable_sort(story_.breaks.begin(), story_.breaks.end(),
                   [](const Break& x, const Break& y) { return x.at < y.at; });
}

}  // namespace

const Recording* Story::recording(int rank) const {
  for (const Recording& r : ranks)
    if (r.rank == rank) return &r;
  return nullptr;
}

std::vector<Story> tell(std::vector<Recording> recordings) {
  std::map<std::uint64_t, std::map<int, Recording>> jobs;
  for (Recording& recording : recordings) {
    auto& place = jobs[recording.job];
    const auto at = place.find(recording.rank);
    if (at == place.end() || at->second.begun <= recording.begun) place[recording.rank] = std::move(recording);
  }
  std::vector<Story> stories;
  for (auto& [job, by_rank] : jobs) {
    Story story;
    story.job = job;
    const int count = by_rank.rbegin()->second.rank_count;
    for (int rank = 0; rank < count && story.missing.size() < kMostPeers; ++rank)
      if (!by_rank.count(rank)) story.missing.push_back(rank);
    for (auto& [rank, recording] : by_rank) story.ranks.push_back(std::move(recording));
    stories.push_back(std::move(story));
  }
  for (Story& story : stories) {
    Teller teller(story);
    teller.align();
    teller.chapters();
    teller.lateness();
    teller.links();
    teller.breaks();
  }
  const auto newest = [](const Story& s) {
    std::int64_t at = 0;
    for (const Recording& r : s.ranks) at = std::max(at, r.last_beat);
    return at;
  };
  std::stable_sort(stories.begin(), stories.end(),
                   [&](const Story& x, const Story& y) { return newest(x) > newest(y); });
  return stories;
}

}  // namespace tutti::record
