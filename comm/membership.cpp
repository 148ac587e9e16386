#include "comm/membership.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <thread>

#include "comm/handshake.h"
#include "core/config.h"
#include "core/log.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLook{20};               // between looks at the roster
constexpr milliseconds kMeeting{10'000};  // of ranks that are known to wait; one that has died costs the others so much
constexpr milliseconds kCallLimit{1'800'000};   // for a sign of ranks that are at work: a step may be long

// What stands on a roster passes wires that encrypt nothing: the secret in an id, its bytes 4 to 19, is masked by the
// job's key. The mask of a mask is the id.
UniqueId masked(UniqueId id, const std::string& ticket) {
  const JobKey mask = make_job_key("id for " + ticket + " of " + environment("TUTTI_JOB_KEY"));
  for (std::size_t i = 0; i < 16; ++i) id.bytes[4 + i] ^= mask.secret[i];
  return id;
}

// Others have been lost, and those that are left may try again.
bool is_loss(const Status& status) {
  return status.code() == Code::peer_lost || status.code() == Code::timeout || status.code() == Code::network ||
         status.code() == Code::aborted;
}

}  // namespace

// Plain bytes for a broadcast: `count` 0: all stays as it is.
struct Membership::Call {
  int count = 0;
  UniqueId id;
  std::vector<int> slots;              // of the new world's ranks

  std::size_t bytes(int capacity) const { return sizeof count + sizeof id.bytes + std::size_t(capacity) * sizeof(int); }
  std::vector<std::byte> packed(int capacity) const {
    std::vector<std::byte> out(bytes(capacity));
    std::memcpy(out.data(), &count, sizeof count);
    std::memcpy(out.data() + sizeof count, id.bytes.data(), sizeof id.bytes);
    std::memcpy(out.data() + sizeof count + sizeof id.bytes, slots.data(), slots.size() * sizeof(int));
    return out;
  }
  void unpack(const std::vector<std::byte>& in) {
    std::memcpy(&count, in.data(), sizeof count);
    std::memcpy(id.bytes.data(), in.data() + sizeof count, sizeof id.bytes);
    slots.resize(std::size_t(count));
    std::memcpy(slots.data(), in.data() + sizeof count + sizeof id.bytes, slots.size() * sizeof(int));
  }
};

Membership::Membership(Options options, Communicator world)
    : options_(std::move(options)), world_(std::make_shared<Communicator>(std::move(world))) {}

Membership::Membership(Options options, Roster roster, int slot, milliseconds limit)
    : options_(std::move(options)), roster_(std::move(roster)), slot_(slot), limit_(limit) {}

Status Membership::wait() {
  const Time begun = Clock::now();
  ticket_.clear();
  for (;;) {
    const auto there = look(begun);
    if (!there.ok()) return there.status();
    if (*there) return {};
    std::this_thread::sleep_for(kLook);
  }
}

Result<bool> Membership::look(Time begun) {
  if (const Status status = roster_->read(); !status) return status;
  if (roster_->end()) return Status(Code::aborted, "the job has ended meanwhile: " + *roster_->end());
  if (ticket_.empty()) {
    ticket_ = new_ticket();
    asked_ = Clock::now();
    if (const Status status = roster_->add(fmt::format("wait {} {}", slot_, ticket_)); !status) return status;
    return false;
  }
  Status status;
  if (auto offer = roster_->offer(ticket_)) {
    offer->id = masked(offer->id, ticket_);
    status = accept(*offer);
  } else if (my_turn(begun)) {
    status = lead();
  } else {
    const bool at_work = roster_->count(Roster::State::member) > 0;
    const bool hopeless = roster_->ranks() - roster_->count(Roster::State::gone) < roster_->least();
    if (hopeless || Clock::now() - begun > (at_work ? kCallLimit : limit_)) return late();
    return false;
  }
  if (status) return true;
  if (!is_loss(status)) return status;
  log::info("slot {}: the ranks did not come together, again: {}", slot_, status.to_string());
  ticket_.clear();
  world_.reset();
  return false;
}

bool Membership::my_turn(Time begun) const {
  if (roster_->count(Roster::State::member) > 0) return false;
  // Who was offered a place before this process asked, and has not come since, never will.
  if (roster_->count(Roster::State::offered) > 0 && Clock::now() - asked_ < kMeeting) return false;
  const auto waiting = roster_->waiting();
  if (waiting.empty() || waiting.front().slot != slot_ || waiting.front().ticket != ticket_) return false;
  const int others = roster_->count(Roster::State::gone) + roster_->count(Roster::State::offered);
  if (int(waiting.size()) + others == roster_->ranks()) return int(waiting.size()) >= roster_->least();
  return Clock::now() - begun > limit_ / 2 && int(waiting.size()) >= roster_->least();
}

// Everybody who waits, this one included, is offered a place.
Status Membership::lead() {
  const auto id = Communicator::make_unique_id();
  if (!id) return id.status();
  const auto waiting = roster_->waiting();
  Roster::Offer own;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const Roster::Offer offer{int(i), int(waiting.size()), *id};
    if (waiting[i].ticket == ticket_) own = offer;
    const std::string line =
        Roster::offer_line(waiting[i].ticket, {offer.rank, offer.count, masked(*id, waiting[i].ticket)});
    if (const Status status = roster_->add(line); !status) return status;
  }
  return accept(own);
}

// The barrier: a rank that is there does not know yet whether all others are.
Status Membership::accept(const Roster::Offer& offer) {
  Options options = options_;
  options.init_timeout = kMeeting;
  auto world = Communicator::create(offer.rank, offer.count, offer.id, options);
  if (!world) return world.status();
  world_ = std::make_shared<Communicator>(std::move(*world));
  if (const Status status = world_->barrier().wait(); !status) return status;
  return gather_members();
}

// Who the ranks of the world are; rank 0 writes it down.
Status Membership::gather_members() {
  struct Entry {
    std::uint64_t slot, ticket;
  } own{std::uint64_t(slot_), std::stoull(ticket_, nullptr, 16)};
  std::vector<Entry> all(std::size_t(world_->rank_count()));
  const Status status =
      world_->all_gather({.input = &own, .output = all.data(), .count = 2, .type = DataType::u64}).wait();
  if (!status) return status;
  slots_.clear();
  std::string line = "formed";
  for (const Entry& entry : all) {
    slots_.push_back(int(entry.slot));
    line += fmt::format(" {}:{:016x}", entry.slot, entry.ticket);
  }
  if (world_->rank() == 0) {
    if (const Status added = roster_->add(line); !added) log::warning("{}", added.text());
  }
  return roster_->read();
}

Status Membership::late() const {
  std::vector<int> missing;
  for (int slot = 0; slot < roster_->ranks(); ++slot) {
    const auto state = roster_->state(slot);
    if (state == Roster::State::absent || state == Roster::State::gone) missing.push_back(slot);
  }
  return Status(Code::timeout,
                fmt::format("the ranks did not come together (TUTTI_INIT_TIMEOUT is {} s): {} of {} are here, {} are "
                            "wanted at least, missing: {}",
                            limit_.count() / 1000, roster_->ranks() - int(missing.size()), roster_->ranks(),
                            roster_->least(), missing.empty() ? "none" : fmt::format("{}", fmt::join(missing, ", "))));
}

// Those of now and all who wait; the count is 0 where nobody waits.
Membership::Call Membership::call_up() {
  Call call;
  if (!roster_->read()) return call;
  std::vector<std::pair<int, std::string>> all;      // a ticket: a newcomer
  for (const int slot : slots_) all.emplace_back(slot, "");
  for (const Roster::Waiting& one : roster_->waiting()) {
    // Who waits in the place of one of us is a sign of that one's death; the failure itself is still to come.
    if (std::find(slots_.begin(), slots_.end(), one.slot) == slots_.end()) all.emplace_back(one.slot, one.ticket);
  }
  if (all.size() == slots_.size()) return call;
  const auto id = Communicator::make_unique_id();
  if (!id) return log::warning("nobody is taken in: {}", id.status().text()), call;
  std::sort(all.begin(), all.end());
  call.count = int(all.size());
  call.id = *id;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    call.slots.push_back(all[rank].first);
    if (all[rank].second.empty()) continue;
    (void)roster_->add(
        Roster::offer_line(all[rank].second, {int(rank), call.count, masked(call.id, all[rank].second)}));
  }
  return call;
}

Result<bool> Membership::take_in() {
  if (!roster_) return false;
  if (!world_)
    return Status(Code::invalid_state, "take_in: this process has no place among the ranks since go_on() failed");
  Call call;
  if (world_->rank() == 0) call = call_up();
  auto packed = call.packed(roster_->ranks());
  const Status told = world_->broadcast({packed.data(), packed.data(), packed.size(), DataType::u8, 0}).wait();
  if (!told) return told;
  call.unpack(packed);
  if (call.count == 0) return false;
  Options options = options_;
  options.init_timeout = kMeeting;
  const auto own = std::find(call.slots.begin(), call.slots.end(), slot_);
  auto next = Communicator::create(int(own - call.slots.begin()), call.count, call.id, options);
  // One that has not got through keeps all back: a world holds all of them or is none.
  std::int32_t all_there = next.ok() ? 1 : 0;
  const Status agreed = world_->all_reduce({&all_there, &all_there, 1, DataType::i32, ReduceOp::min}).wait();
  if (!agreed) return agreed;
  if (!all_there)
    return log::warning("nobody was taken in: {}",
                        next.ok() ? "another rank could not meet the new ones" : next.status().to_string()),
           false;
  world_ = std::make_shared<Communicator>(std::move(*next));
  if (const Status status = world_->barrier().wait(); !status) return status;
  if (const Status status = gather_members(); !status) return status;
  return true;
}

Status Membership::shrink() {
  for (;;) {
    if (!world_) return Status(Code::peer_lost, "this process has lost its world");
    auto next = world_->shrink();
    if (!next) return next.status();
    world_ = std::make_shared<Communicator>(std::move(*next));
    const Status status = gather_members();
    if (status || !is_loss(status)) return status;
  }
}

// A process that the others have left behind waits as a new one does.
Status Membership::recover() {
  const Status status = shrink();
  if (status || !is_loss(status)) return status;
  log::warning("slot {}: {}; waiting until the others take this process in again", slot_, status.text());
  world_.reset();
  return wait();
}

Status Membership::go_on() {
  if (!roster_)
    return Status(Code::invalid_state, "no launcher restarts ranks here: tutti run --max-restarts or --min-ranks does");
  Status status = recover();
  const Time begun = Clock::now();
  while (status && !enough()) {
    std::this_thread::sleep_for(kLook);
    if (const Status read = roster_->read(); !read) return read;
    const bool possible = roster_->ranks() - roster_->count(Roster::State::gone) >= least() && !roster_->end();
    std::int32_t hope = possible && Clock::now() - begun < limit_ ? 1 : 0;
    status = world_->all_reduce({&hope, &hope, 1, DataType::i32, ReduceOp::min}).wait();
    if (status && !hope) return {};
    if (status) status = take_in().status();
    if (!status && is_loss(status)) status = recover();
  }
  return status;
}

void Membership::end(const std::string& why) {
  if (!roster_) return;
  std::string line = "end " + why;
  std::replace(line.begin(), line.end(), '\n', ' ');
  if (const Status status = roster_->add(line); !status) log::warning("{}", status.text());
}

}  // namespace tutti::comm

namespace tutti {

Elastic::Elastic(std::unique_ptr<comm::Membership> membership) : membership_(std::move(membership)) {}
Elastic::Elastic(Elastic&&) noexcept = default;
Elastic& Elastic::operator=(Elastic&&) noexcept = default;
Elastic::~Elastic() = default;

Result<Elastic> Elastic::from_environment(const Options& options) {
  const std::string path = environment("TUTTI_ROSTER");
  if (path.empty()) {
    auto world = Communicator::from_environment(options);
    if (!world) return world.status();
    return Elastic(std::make_unique<comm::Membership>(options, std::move(*world)));
  }
  auto settings = read_settings();
  if (!settings) return settings.status();
  auto roster = comm::Roster::open(path);
  if (!roster) return roster.status();
  const std::string text = environment("TUTTI_RANK");
  int slot = -1;
  std::from_chars(text.data(), text.data() + text.size(), slot);
  if (slot < 0 || slot >= roster->ranks()) {
    return Status(Code::invalid_argument,
                  fmt::format("TUTTI_RANK={}: the roster {} wants 0 to {}", text, path, roster->ranks() - 1));
  }
  const auto limit = options.init_timeout.count() > 0 ? options.init_timeout : settings->init_timeout;
  auto membership = std::make_unique<comm::Membership>(options, std::move(*roster), slot, limit);
  if (const Status status = membership->wait(); !status) return status;
  return Elastic(std::move(membership));
}

std::shared_ptr<Communicator> Elastic::communicator() const { return membership_->communicator(); }
bool Elastic::can_go_on() const { return membership_->can_go_on(); }
int Elastic::worlds() const { return membership_->worlds(); }
int Elastic::least() const { return membership_->least(); }
bool Elastic::enough() const { return membership_->enough(); }
Result<bool> Elastic::take_in() { return membership_->take_in(); }
Status Elastic::go_on() { return membership_->go_on(); }
void Elastic::end(const std::string& why) { membership_->end(why); }

}  // namespace tutti
