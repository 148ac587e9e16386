#include "transport/shm/shm_transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/check.h"
#include "core/copy.h"
#include "core/fork.h"
#include "transport/shm/shm_connection.h"

namespace tutti::transport::shm {

namespace {

void full_fence() {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer knows no fences. It sees the pages of two ranks as different memory anyway; here only the instruction counts.
  static std::atomic<int> somewhere;
  somewhere.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

// A connection whose descriptors are still under way.
struct ShmTransport::Setup {
  int peer = -1;
  std::unique_ptr<Stream> stream;
  SharedMemory lanes;
  bool opener = false, finished = false;
  OnReady on_ready;
};

ShmTransport::ShmTransport(Loop& loop, Listener& listener, ShmOptions options)
    : loop_(loop), listener_(listener), options_(options), stage_sums_(options.check ? kSlots : 0) {}

ShmTransport::~ShmTransport() = default;

Status ShmTransport::ensure_outbox() {
  if (outbox_memory_.data()) return {};
  auto memory = SharedMemory::create(kOutboxBytes);
  if (!memory) return memory.status();
  outbox_memory_ = std::move(*memory);
  keep_mapping_from_children(outbox_memory_.data(), outbox_memory_.bytes());
  outbox().process.store(::getpid(), std::memory_order_relaxed);
  outbox().address.store(reinterpret_cast<std::uint64_t>(outbox_memory_.data()), std::memory_order_relaxed);
  outbox().descriptor.store(outbox_memory_.descriptor(), std::memory_order_relaxed);
  for (std::uint32_t ticket = kTickets; ticket-- > 0;) tickets_.push_back(kSlots + ticket);
  return {};
}

void ShmTransport::connect(int peer, std::unique_ptr<Stream> stream, bool opener, OnReady on_ready) {
  auto setup = std::make_unique<Setup>();
  setup->peer = peer;
  setup->stream = std::move(stream);
  setup->opener = opener;
  setup->on_ready = std::move(on_ready);
  Status status = ensure_outbox();
  std::vector<int> descriptors{outbox_memory_.descriptor()};
  if (status.ok() && opener) {
    auto lanes = SharedMemory::create(sizeof(LanePair));
    if (lanes) {
      setup->lanes = std::move(*lanes);
      reinterpret_cast<LanePair*>(setup->lanes.data())->greeting[0] = kGreeting[0];
      descriptors.push_back(setup->lanes.descriptor());
    } else {
      status = lanes.status();
    }
  }
  if (const int bell = loop_.doorbell_descriptor(); bell >= 0) descriptors.push_back(bell);
  if (status.ok() && opener) status = setup->stream->send_descriptors(descriptors);
  if (!status.ok()) return loop_.post([ready = std::move(setup->on_ready), status] { ready(status); });
  Setup* raw = setup.get();
  setups_.push_back(std::move(setup));
  raw->stream->when_readable([this, raw] { set_up(*raw); });
}

// The peer's descriptors are there: the outbox; from the opener, the lanes; a doorbell where its loop has one.
void ShmTransport::set_up(Setup& setup) {
  auto got = setup.stream->receive_descriptors();
  if (got && got->empty()) return;
  const auto finish = [&](Result<Connection*> result) {
    OnReady ready = std::move(setup.on_ready);
    if (setup.stream) setup.stream->when_readable({});
    std::erase_if(setups_, [&](const auto& s) { return s.get() == &setup; });
    ready(std::move(result));
  };
  if (!got) return finish(got.status());
  std::vector<int>& fds = *got;
  const std::size_t memories = setup.opener ? 1 : 2;
  if (fds.size() != memories && fds.size() != memories + 1) {
    for (int fd : fds) close(fd);
    return finish(Status(Code::network, "shared memory: the peer passed no descriptors", setup.peer));
  }
  const int doorbell = fds.size() > memories ? fds.back() : -1;
  const auto fail = [&](const Status& status) {
    if (doorbell >= 0) close(doorbell);
    finish(status);
  };
  auto outbox = SharedMemory::open(fds[0], kOutboxBytes);
  auto lanes = setup.opener ? Result<SharedMemory>(std::move(setup.lanes)) : SharedMemory::open(fds[1], sizeof(LanePair));
  if (!outbox || !lanes) return fail(!outbox ? outbox.status() : lanes.status());
  lanes->populate(0, sizeof(LanePair));
  auto* pair = reinterpret_cast<LanePair*>(lanes->data());
  if (!setup.opener) pair->greeting[1] = kGreeting[1];
  if (pair->greeting[setup.opener ? 1 : 0] != kGreeting[setup.opener ? 1 : 0])
    return fail(Status(Code::network, "shared memory: what the peer wrote does not arrive", setup.peer));
  if (!setup.opener) {
    const int mine[] = {outbox_memory_.descriptor(), loop_.doorbell_descriptor()};
    const Status status = setup.stream->send_descriptors(std::span(mine, mine[1] >= 0 ? 2 : 1));
    if (!status.ok()) return fail(status);
  }
  auto connection = std::make_unique<ShmConnection>(*this, setup.peer, std::move(setup.stream), std::move(*lanes), setup.opener);
  connection->join(std::move(*outbox), doorbell);
  ShmConnection* raw = connection.get();
  raw->stream_->when_readable([this, raw] {
    std::byte ignored[64];
    const IoResult got_bytes = raw->stream_->read(ignored);
    if (got_bytes.closed || !got_bytes.status.ok()) lost(*raw, Status(Code::peer_lost, "its process ended", raw->peer_));
  });
  connections_.push_back(std::move(connection));
  finish(static_cast<Connection*>(raw));
}

void ShmTransport::lost(ShmConnection& connection, const Status& why) {
  if (connection.lost_) return;
  connection.lost_ = true;
  connection.stream_->when_readable({});
  while (connection.receive()) {   // what it had sent before its end
  }
  take_back();                     // what it had read
  const bool ended = why.code() == Code::peer_lost;
  std::erase_if(lent_, [&](Lent& l) {
    if (l.reader != &connection) return false;
    if (ended) return return_ticket(l.ticket), true;
    take_back(l);                  // it may be read, until the peer has heard of it
    return false;
  });
  std::erase_if(pushes_, [&](const Push& p) { return p.reader == &connection; });
  listener_.on_lost(connection.peer_, why);
}

std::size_t ShmTransport::segment_bytes(std::uint64_t message_bytes) const {
  const std::uint64_t largest = options_.segment_bytes ? std::min<std::uint64_t>(options_.segment_bytes, kSlotClasses[1].bytes)
                                                       : kSlotClasses[1].bytes;
  if (message_bytes <= kSlotClasses[0].bytes) return std::min(largest, std::max<std::uint64_t>(message_bytes, 1));
  // Pipelines want several segments under way; a multiple of a page keeps every element type whole.
  const std::uint64_t eighth = (message_bytes / 8 + 4095) / 4096 * 4096;
  return std::clamp<std::uint64_t>(eighth, std::min<std::uint64_t>(16384, largest), largest);
}

// Large slots that one peer (or all multicasts together) may hold, so that no lane starves the others.
std::uint32_t ShmTransport::fair_share(const ShmConnection* user) const {
  const std::uint32_t all = slots_of(1), lanes = std::uint32_t(std::max<std::size_t>(1, connections_.size()));
  if (lanes == 1) return all;
  return user ? std::max(1u, all / 2 / lanes) : all / 2;
}

std::uint32_t ShmTransport::take_slot(std::uint32_t bytes, ShmConnection* user) {
  TUTTI_CHECK(bytes <= kSlotClasses.back().bytes);
  std::uint32_t& held = user ? user->slots_ : staged_;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (std::size_t c = bytes <= kSlotClasses[0].bytes ? 0 : 1; c < kSlotClasses.size(); ++c) {
      if (c == 1 && held >= fair_share(user)) continue;
      if (free_[c].empty() && !(attempt == 1 && grow(c))) continue;
      const std::uint32_t slot = free_[c].back();   // the last one freed is the one in cache
      free_[c].pop_back();
      busy_.push_back({slot, user});
      held += c;
      return slot;
    }
    reclaim();
  }
  starved_ = true;
  return kNoSlot;
}

// How many slots a class may have, in whole groups.
std::uint32_t ShmTransport::slots_of(std::size_t slot_class) const {
  const SlotClass& c = kSlotClasses[slot_class];
  if (slot_class == 0) return c.count;
  return std::clamp(std::uint32_t(options_.large_slot_bytes / c.bytes) / kGroup * kGroup, kGroup, c.count);
}

// The next group of a class, as long as there are some.
bool ShmTransport::grow(std::size_t slot_class) {
  const std::uint32_t first = slot_class ? kSlotClasses[0].count : 0, made = made_[slot_class];
  if (made == slots_of(slot_class)) return false;
  for (std::uint32_t i = kGroup; i-- > 0;) free_[slot_class].push_back(first + made + i);
  outbox_memory_.populate(slot_offset(first + made), std::size_t(kGroup) * kSlotClasses[slot_class].bytes);
  made_[slot_class] += kGroup;
  return true;
}

// kNoSlot: all are out, or as many as this lane may have, so that it does not starve the others; and so is the one that is kept for a first segment
// that can go no other way.
std::uint32_t ShmTransport::take_ticket(ShmConnection& user, const SegmentHeader& header, const std::byte* data, std::uint64_t token) {
  const auto held = std::size_t(std::count_if(lent_.begin(), lent_.end(), [&](const Lent& l) { return l.reader == &user; }));
  std::uint32_t ticket = kNoSlot;
  if (!tickets_.empty() && held < std::max<std::size_t>(1, kTickets / std::max<std::size_t>(1, connections_.size()))) {
    ticket = tickets_.back();
    tickets_.pop_back();
  } else if (header.first && header.lend) {
    ticket = take_reserve(reserved_tickets_, user.peer_, header.key.communicator);
  }
  if (ticket == kNoSlot) {
    starved_ = true;
    return kNoSlot;
  }
  outbox().slots[ticket].readers.store(1, std::memory_order_relaxed);
  lent_.push_back({ticket, &user, token, header, data});
  return ticket;
}

void ShmTransport::return_ticket(std::uint32_t ticket) {
  outbox().slots[ticket].readers.store(0, std::memory_order_relaxed);
  if (ticket < kSlots + kTickets) tickets_.push_back(ticket);
}

// Tells of what has been read; not before all of it is free, since who is told may send more.
bool ShmTransport::take_back() {
  std::vector<Lent> read;
  const std::size_t before = lent_.size();
  std::erase_if(lent_, [&](const Lent& l) {
    const std::uint32_t state = outbox().slots[l.ticket].readers.load(std::memory_order_acquire);
    if ((state & ~(kTakenBack | kRefused)) != 0) return false;
    return_ticket(l.ticket);
    if (l.taken_back) return true;
    if (state & kRefused) {
      l.reader->refuses_ = true;
      pushes_.push_back({l.reader, l.header, l.data, l.token});
    } else {
      read.push_back(l);
    }
    return true;
  });
  const bool any = lent_.size() != before;
  for (const Lent& l : read) listener_.on_sent(l.reader->peer_, l.token);
  return any;
}

void ShmTransport::take_back(Lent& lent) {
  if (lent.data) outbox().slots[lent.ticket].readers.fetch_or(kTakenBack, std::memory_order_seq_cst);     // else of a region, which others map
  lent.taken_back = true;
}

// Lent segments that could not be read go in pieces like any others.
bool ShmTransport::push_on() {
  bool any = false;
  const auto push = [&](Push& p) {
    while (p.header.bytes > 0) {
      SegmentHeader piece = p.header;
      piece.bytes = std::min(p.header.bytes, kSlotClasses.back().bytes);
      piece.lend = false;
      piece.first = true;          // it may have become that
      if (p.reader->send(piece, p.data, p.token) == Sent::again) return false;
      p.header.bytes -= piece.bytes;
      p.header.offset += piece.bytes;
      p.data += piece.bytes;
      any = true;
    }
    return true;
  };
  std::vector<Push> done;
  std::erase_if(pushes_, [&](Push& p) {
    if (!push(p)) return false;
    done.push_back(p);
    return true;
  });
  for (const Push& p : done) listener_.on_sent(p.reader->peer_, p.token);
  return any;
}

// Who reads a lent segment now finds afterwards that it had been taken back.
void ShmTransport::abandon(std::uint32_t communicator) {
  for (Lent& l : lent_)
    if (l.header.key.communicator == communicator) take_back(l);
  std::erase_if(pushes_, [&](const Push& p) { return p.header.key.communicator == communicator; });
  for (Reserve* reserve : {&reserved_slots_, &reserved_tickets_})
    std::erase_if(reserve->of, [&](const auto& entry) {
      if (std::uint32_t(entry.first) != communicator) return false;
      reserve->free.push_back(entry.second);
      return true;
    });
}

bool ShmTransport::drained() const {
  return pushes_.empty() && std::all_of(lent_.begin(), lent_.end(), [](const Lent& l) { return l.taken_back; });
}

// Collects the slots that all readers have left.
bool ShmTransport::reclaim() {
  const std::size_t before = busy_.size();
  std::erase_if(busy_, [this](const Busy& b) {
    if (outbox().slots[b.slot].readers.load(std::memory_order_acquire) != 0) return false;
    const std::size_t c = b.slot < kSlotClasses[0].count ? 0 : 1;
    free_[c].push_back(b.slot);
    (b.user ? b.user->slots_ : staged_) -= std::uint32_t(c);
    return true;
  });
  return busy_.size() != before;
}

// The one set aside for a pair and communicator, when its reader has left it.
std::uint32_t ShmTransport::take_reserve(Reserve& reserve, int peer, std::uint32_t communicator) {
  const std::uint64_t whose = std::uint64_t(peer) << 32 | communicator;
  auto at = reserve.of.find(whose);
  if (at == reserve.of.end()) {
    if (reserve.free.empty() && reserve.made == kReserve) return kNoSlot;
    const std::uint32_t fresh = reserve.free.empty() ? reserve.made++ : reserve.free.back();
    if (!reserve.free.empty()) reserve.free.pop_back();
    at = reserve.of.emplace(whose, fresh).first;
  }
  const std::uint32_t own = reserve.first + at->second;
  const bool lent = std::any_of(lent_.begin(), lent_.end(), [own](const Lent& l) { return l.ticket == own; });
  if (!lent && outbox().slots[own].readers.load(std::memory_order_acquire) == 0) return own;
  reserve_waits_.push_back(own);
  return kNoSlot;
}

std::uint64_t ShmTransport::stage(const std::byte* data, std::uint32_t bytes, int readers) {
  if (bytes <= inline_bytes()) return kNoStage;
  const std::uint32_t slot = take_slot(bytes, nullptr);
  if (slot == kNoSlot) return 0;
  if (options_.check) stage_sums_[slot] = sum_of(data, bytes);
  copy_bytes(outbox_memory_.data() + slot_offset(slot), data, bytes);
  outbox().slots[slot].readers.store(std::uint32_t(readers), std::memory_order_relaxed);
  return slot + 1;
}

bool ShmTransport::in_place(const SegmentHeader& header, const std::byte* data) const {
  return header.message_bytes > kMostGlanced && header.bytes >= kLeastInPlace && region_part(data, header.bytes).has_value();
}

void ShmTransport::unstage(std::uint64_t staged, int readers) {
  outbox().slots[staged - 1].readers.fetch_sub(std::uint32_t(readers), std::memory_order_release);
}

ShmConnection* ShmTransport::to(int peer) const {
  for (const auto& c : connections_)
    if (c->peer_ == peer) return c.get();
  return nullptr;
}

void ShmTransport::release(std::uint64_t token) {
  ShmConnection* const c = to(int(token >> 32));
  if (!c) return;
  c->theirs().slots[token & 0xffffffffu].readers.fetch_sub(1, std::memory_order_acq_rel);
  c->news_ |= kWantsRoom;
  unsettled_ = true;
  if (std::uint32_t(token) >= kSlots) settle();      // its sender waits for this, and nobody may poll here soon
}

bool ShmTransport::fetch(std::uint64_t token, std::byte* into, std::uint32_t bytes) {
  ShmConnection* const c = to(int(token >> 32));
  return c && c->fetch(std::uint32_t(token), into, bytes);
}

// A publish is a plain store, with no fence on the way of the message. Before this rank waits, one fence orders all of them
// with the peers' sleeping flags: a peer either saw the news before it slept, or is rung.
void ShmTransport::settle() {
  unsettled_ = false;
  full_fence();
  for (const auto& c : connections_)
    if (c->news_) c->ring_if_sleeping();
}

bool ShmTransport::poll() {
  if (unsettled_) settle();
  starved_ = false;
  reserve_waits_.clear();
  bool any = false;
  for (std::size_t i = 0; i < connections_.size(); ++i)
    if (!connections_[i]->lost_) any |= connections_[i]->receive();
  if (!lent_.empty()) any |= take_back();
  if (!pushes_.empty()) any |= push_on();
  return any;
}

bool ShmTransport::prepare_sleep() {
  if (!outbox_memory_.data()) return true;
  if (unsettled_) settle();
  outbox().sleeping.store(kWantsData | (starved_ || !lent_.empty() ? kWantsRoom : 0), std::memory_order_seq_cst);
  bool something = false;
  for (const auto& c : connections_) {
    if (c->lost_) continue;
    something |= c->has_arrivals();
    something |= starved_ && c->sent_ == c->room_until_ &&
                 c->out_->consumed.load(std::memory_order_seq_cst) + kCells != c->room_until_;
  }
  for (const Lent& l : lent_) something |= (outbox().slots[l.ticket].readers.load(std::memory_order_seq_cst) & ~(kTakenBack | kRefused)) == 0;
  if (starved_) {
    something |= reclaim();
    for (const std::uint32_t slot : reserve_waits_) something |= outbox().slots[slot].readers.load(std::memory_order_seq_cst) == 0;
  }
  if (something) outbox().sleeping.store(0, std::memory_order_relaxed);
  return !something;
}

void ShmTransport::wake_done() {
  if (outbox_memory_.data()) outbox().sleeping.store(0, std::memory_order_relaxed);
}

std::string ShmTransport::debts() const {
  if (!outbox_memory_.data()) return "";
  const auto& slots = reinterpret_cast<const Outbox*>(outbox_memory_.data())->slots;
  std::string out;
  std::size_t busy[kSlotClasses.size()] = {}, multicasts = 0;
  std::unordered_map<const ShmConnection*, std::uint32_t> held;
  for (const Busy& b : busy_) {
    const bool large = b.slot >= kSlotClasses[0].count;
    ++busy[large];
    if (b.user) held[b.user] += large;
    else multicasts += large;
    if (slots[b.slot].readers.load(std::memory_order_acquire) != 0) out += fmt::format("slot {} is not read; ", b.slot);
  }
  for (std::size_t c = 0; c < kSlotClasses.size(); ++c)
    if (busy[c] + free_[c].size() != made_[c]) out += fmt::format("{} slots of {} bytes were made, {} are in use, {} free; ", made_[c], kSlotClasses[c].bytes, busy[c], free_[c].size());
  for (const auto& c : connections_)
    if (c->slots_ != held[c.get()]) out += fmt::format("peer {} is charged {} slots and holds {}; ", c->peer_, c->slots_, held[c.get()]);
  if (staged_ != multicasts) out += fmt::format("multicasts are charged {} slots and hold {}; ", staged_, multicasts);
  for (std::uint32_t slot = 0; slot < reserved_slots_.made; ++slot)
    if (slots[kShared + slot].readers.load(std::memory_order_acquire) != 0) out += fmt::format("reserved slot {} is not read; ", slot);
  if (!lent_.empty()) out += fmt::format("{} segments are lent; ", lent_.size());
  if (!pushes_.empty()) out += fmt::format("{} lent segments are still to be sent; ", pushes_.size());
  return out.empty() ? "" : "shm: " + out;
}

std::size_t ShmTransport::memory_bytes() const {
  if (!outbox_memory_.data()) return 0;
  std::size_t bytes = kOutboxHeader + connections_.size() * sizeof(LanePair) + reserved_slots_.made * kSlotClasses[1].bytes;
  for (std::size_t c = 0; c < kSlotClasses.size(); ++c) bytes += std::size_t(made_[c]) * kSlotClasses[c].bytes;
  return bytes;
}

}  // namespace tutti::transport::shm
