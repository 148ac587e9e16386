#include "comm/peer_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "comm/gpu_plan.h"
#include "comm/tell_all.h"
#include "core/finish.h"

namespace tutti::comm {
namespace {

constexpr std::size_t kHalf = kGpuPiece;
constexpr std::size_t kGoneAt = 2 * kHalf + SharedExchange::kFlagBytes;  // a word for each rank that has left
constexpr std::size_t kMost = SharedExchange::kMostRanks;
constexpr std::size_t kAreaBytes = kGoneAt + kMost * sizeof(std::uint32_t);
constexpr std::size_t kPattern = 32 << 10;  // what each rank writes to each other one
constexpr std::size_t kWordsBytes = 256;    // in pinned memory: the words, and a one
constexpr std::size_t kOneAt = 128;
constexpr std::size_t kPinnedBytes = kWordsBytes + 2 * kMost * kPattern;
static_assert(3 * kMost * kPattern <= kHalf);
static_assert(SharedExchange::kFlagBytes + kMost * sizeof(std::uint32_t) <= kMost * kPattern);

// Areas that no communicator of this process uses. Each waits for those ranks that may still read it.
struct Retired {
  std::weak_ptr<Device> device;
  std::byte* area;
  int ranks, self;
};
std::mutex retired_mutex;
std::vector<Retired>& retired() {
  static auto& all = *new std::vector<Retired>;
  return all;
}

template <std::size_t n>
void put(char (&to)[n], const std::string& text) {
  std::memset(to, 0, n);
  std::memcpy(to, text.data(), std::min(n - 1, text.size()));
}

struct Offer {
  char device[128] = {}, identity[64] = {}, refused[256] = {};  // refused: why there is no area
  std::uint64_t seed = 0;
  MemoryHandle area;
};
struct Finding {
  int peer = -1;  // with whom it does not work; -1: all is well
  char why[300] = {};
};

}  // namespace

// One rank's part in the test. First every rank writes a pattern into every other's area: half of it by copies, half by
// a kernel's stores. Then each looks what has come, and reads by a kernel what the others hold for it.
class PeerTrial {
 public:
  PeerTrial(PeerMemory& memory, const std::vector<Offer>& offers, std::chrono::milliseconds limit)
      : memory_(memory),
        device_(*memory.device_),
        offers_(offers),
        limit_(limit),
        self_(std::size_t(memory.rank_)),
        ranks_(offers.size()) {}

  Finding open() {
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (r == self_) continue;
      auto area = device_.open_shared(offers_[r].area);
      if (!area) return found(r, area.status().text());
      memory_.areas_[r] = *area;
    }
    return {};
  }
  Finding write() {
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (r == self_) continue;
      draw(self_, r, pinned(r));
      std::byte *const from = holds(self_, r), *const to = comes(r, self_);
      Status status = copy(from, pinned(r));
      if (status.ok()) status = device_.copy(memory_.stream_, to, from, {kPattern / 2});
      if (status.ok()) status = load_and_store(to + kPattern / 2, from + kPattern / 2, kPattern / 2);
      if (!status.ok()) return found(r, status.text());
    }
    return waited();
  }
  Finding read() {
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (r == self_) continue;
      Status status = load_and_store(taken(r), holds(r, self_), kPattern);
      if (status.ok()) status = copy(pinned(r), comes(self_, r));
      if (status.ok()) status = copy(pinned(kMost + r), taken(r));
      if (!status.ok()) return found(r, status.text());
    }
    if (Finding finding = waited(); finding.peer >= 0) return finding;
    std::vector<std::byte> expected(kPattern);
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (r == self_) continue;
      draw(r, self_, expected.data());
      if (std::memcmp(pinned(r), expected.data(), kPattern / 2) != 0)
        return found(r, "what copies of the latter wrote into the former's memory has not arrived");
      if (std::memcmp(pinned(r), expected.data(), kPattern) != 0)
        return found(r, "what a kernel of the latter wrote into the former's memory has not arrived");
      if (std::memcmp(pinned(kMost + r), expected.data(), kPattern) != 0)
        return found(r, "a kernel of the former reads something else in the latter's memory than is there");
    }
    return {};
  }

 private:
  static Finding found(std::size_t peer, const std::string& why) {
    Finding finding;
    finding.peer = int(peer);
    put(finding.why, why);
    return finding;
  }
  Finding waited() {
    const Status status = finish(device_, memory_.stream_, limit_);
    memory_.stuck_ |= !status.ok();
    return status.ok() ? Finding() : found(self_ == 0 ? 1 : 0, status.text());
  }
  // In an area: what comes from each rank, what it holds for each rank, what it has read of each.
  std::byte* comes(std::size_t area, std::size_t from) const { return memory_.areas_[area] + from * kPattern; }
  std::byte* holds(std::size_t area, std::size_t whom) const {
    return memory_.areas_[area] + (kMost + whom) * kPattern;
  }
  std::byte* taken(std::size_t from) const { return memory_.areas_[self_] + (2 * kMost + from) * kPattern; }
  std::byte* pinned(std::size_t at) const { return memory_.pinned_ + kWordsBytes + at * kPattern; }
  Status copy(std::byte* to, const std::byte* from) { return device_.copy(memory_.stream_, to, from, {kPattern}); }
  Status load_and_store(std::byte* to, const std::byte* from, std::size_t bytes) {
    return device_.cast(memory_.stream_, DataType::u8, to, DataType::u8, from, bytes);
  }
  void draw(std::size_t writer, std::size_t reader, std::byte* to) const {
    std::mt19937_64 random(offers_[writer].seed * (kMost + 1) + reader);
    for (std::size_t i = 0; i < kPattern; i += sizeof(std::uint64_t)) {
      const std::uint64_t word = random();
      std::memcpy(to + i, &word, sizeof word);
    }
  }

  PeerMemory& memory_;
  Device& device_;
  const std::vector<Offer>& offers_;
  std::chrono::milliseconds limit_;
  std::size_t self_, ranks_;
};

namespace {

// One that was retired here and that nobody reads any more, else a new one; flags and the words behind them are zero.
Result<std::byte*> take_area(Device& device, StreamHandle stream, std::byte* pinned, std::chrono::milliseconds limit) {
  std::vector<Retired> candidates;
  {
    const std::lock_guard held(retired_mutex);
    auto& all = retired();
    const auto ours = std::stable_partition(all.begin(), all.end(),
                                            [&](const Retired& r) { return r.device.lock().get() != &device; });
    candidates.assign(ours, all.end());
    all.erase(ours, all.end());
  }
  std::byte* found = nullptr;
  std::vector<Retired> kept;
  const std::size_t behind = kAreaBytes - 2 * kHalf;
  for (const Retired& r : candidates) {
    std::uint32_t gone[kMost] = {};
    bool free = !found && device.copy(stream, pinned, r.area + kGoneAt, {sizeof gone}).ok() &&
                finish(device, stream, limit).ok();
    std::memcpy(gone, pinned, sizeof gone);
    for (int rank = 0; rank < r.ranks; ++rank) free = free && (rank == r.self || gone[rank] != 0);
    if (free)
      found = r.area;
    else
      kept.push_back(r);
  }
  {
    const std::lock_guard held(retired_mutex);
    retired().insert(retired().end(), kept.begin(), kept.end());
  }
  if (!found) return device.allocate_shared(kAreaBytes);
  std::memset(pinned, 0, behind);
  if (Status status = device.copy(stream, found + 2 * kHalf, pinned, {behind}); !status.ok()) return status;
  if (Status status = finish(device, stream, limit); !status.ok()) return status;
  return found;
}

// Why the ranks do not come so far as to try it; "": they do.
std::string obstacle(const std::vector<Offer>& offers, const Settings& settings) {
  for (std::size_t r = 0; r < offers.size(); ++r)
    if (offers[r].refused[0]) return fmt::format("rank {} has no GPU memory for it: {}", r, offers[r].refused);
  for (std::size_t r = 0; r < offers.size() && settings.p2p == "auto"; ++r)
    for (std::size_t s = r + 1; s < offers.size(); ++s)
      if (std::strcmp(offers[r].identity, offers[s].identity) == 0)
        return fmt::format(
            "ranks {} and {} share one GPU ({}), where kernels that wait for each other may not run at once "
            "(TUTTI_P2P=1 tries it all the same)",
            r, s, offers[r].device);
  return "";
}

// All ranks tell what they found: the first that is wrong.
Result<std::string> agree(Member& member, const Finding& mine, const std::vector<Offer>& offers) {
  auto findings = tell_all(member, mine);
  if (!findings) return findings.status();
  for (std::size_t r = 0; r < findings->size(); ++r)
    if (const Finding& f = (*findings)[r]; f.peer >= 0)
      return fmt::format("the GPUs of rank {} ({}) and rank {} ({}) do not reach each other's memory: {}", r,
                         offers[r].device, f.peer, offers[std::size_t(f.peer)].device, f.why);
  return std::string();
}

}  // namespace

Result<PeerMemory::Outcome> PeerMemory::make(std::shared_ptr<Device> device, const std::string& no_device,
                                             Member& member) {
  const Settings& settings = member.engine()->settings();
  const int ranks = member.rank_count();
  if (settings.p2p == "0") return Outcome{nullptr, "TUTTI_P2P=0"};
  if (ranks == 1) return Outcome{nullptr, "there is one rank"};
  if (ranks > int(kMost)) return Outcome{nullptr, fmt::format("it serves {} ranks, these are {}", kMost, ranks)};
  if (member.local_rank_count() != ranks) return Outcome{nullptr, "the ranks are on several hosts"};
  std::unique_ptr<PeerMemory> memory(new PeerMemory(device));
  memory->rank_ = member.rank();
  memory->areas_.resize(std::size_t(ranks));
  std::byte*& own = memory->areas_[std::size_t(member.rank())];
  Offer offer;
  std::random_device random;
  offer.seed = std::uint64_t(random()) << 32 | random();
  const auto prepare_area = [&]() -> Status {
    if (!device) return Status(Code::unsupported, no_device);
    put(offer.device, device->describe());
    put(offer.identity, device->identity());
    auto pinned = device->allocate_pinned(kPinnedBytes);
    if (!pinned) return pinned.status();
    memory->pinned_ = *pinned;
    auto stream = device->open_stream();
    if (!stream) return stream.status();
    memory->stream_ = *stream;
    auto area = take_area(*device, *stream, *pinned + kWordsBytes, settings.init_timeout);
    if (!area) return area.status();
    own = *area;
    auto handle = device->share(own);
    if (!handle) return handle.status();
    offer.area = *handle;
    return {};
  };
  if (const Status status = prepare_area(); !status.ok()) put(offer.refused, status.text());
  auto offers = tell_all(member, offer);
  if (!offers) return offers.status();
  if (std::string why = obstacle(*offers, settings); !why.empty()) return Outcome{nullptr, std::move(why)};
  memory->tried_ = true;
  PeerTrial trial(*memory, *offers, settings.init_timeout);
  for (const auto step : {&PeerTrial::open, &PeerTrial::write, &PeerTrial::read}) {
    auto why = agree(member, (trial.*step)(), *offers);
    if (!why) return why.status();
    if (!why->empty()) return Outcome{nullptr, std::move(*why)};
  }
  memory->words_ = new (memory->pinned_) SharedWords;
  const std::uint32_t one = 1;
  std::memcpy(memory->pinned_ + kOneAt, &one, sizeof one);
  return Outcome{std::move(memory), ""};
}

PeerMemory::~PeerMemory() {
  if (!device_ || stuck_) return;
  for (std::size_t r = 0; r < areas_.size(); ++r)
    if (areas_[r] && int(r) != rank_) device_->close_shared(areas_[r]);
  if (std::byte* const own = areas_[std::size_t(rank_)]) {
    const std::lock_guard held(retired_mutex);
    retired().push_back({device_, own, tried_ ? rank_count() : 0, rank_});
  }
  if (stream_) device_->close_stream(stream_);
  if (pinned_) device_->release_pinned(pinned_);
}

std::size_t PeerMemory::memory_bytes() const { return kAreaBytes + kPinnedBytes; }

void PeerMemory::leave() {
  for (std::size_t r = 0; r < areas_.size(); ++r)
    if (int(r) != rank_)
      (void)device_->copy(stream_, areas_[r] + kGoneAt + std::size_t(rank_) * sizeof(std::uint32_t), pinned_ + kOneAt,
                          {sizeof(std::uint32_t)});
}

}  // namespace tutti::comm
