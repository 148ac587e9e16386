#include "transport/rdma/connection.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/copy.h"
#include "transport/ranges.h"
#include "transport/rdma/rdma_transport.h"

namespace tutti::transport::rdma {

static_assert(RdmaTransport::kEager == kEagerBytes);

namespace {

MessageKey as_it_travels(MessageKey key) {
  key.message &= 0xffff;
  return key;
}

Cell cell_for(const SegmentHeader& header, CellType type) {
  Cell cell;
  cell.type = type;
  cell.message = std::uint16_t(header.key.message);
  cell.bytes = header.bytes;
  cell.communicator = header.key.communicator;
  cell.operation = header.key.operation;
  cell.plan = header.plan & 0xffff;
  cell.offset = header.offset;
  cell.message_bytes = header.message_bytes;
  cell.call = header.call;
  return cell;
}

}  // namespace

RdmaConnection::~RdmaConnection() {
  stop();
  shared_.landed.forget(this);
}

Status RdmaConnection::prepare(const std::vector<Rail>& rails, int side, int queues_per_rail, std::uint32_t first_id) {
  rails_ = rails;
  side_ = side;
  if (!rings_) {
    auto rings = Block::make(shared_.devices, 2 * kRingBytes);
    if (!rings) return rings.status();
    rings_ = std::move(*rings);
  }
  for (std::size_t r = 0; r < rails.size(); ++r) {
    for (int k = 0; k < queues_per_rail; ++k) {
      const std::size_t device = rails[r].port[side];
      auto queue = QueuePair::make(*shared_.devices[device], device, first_id + std::uint32_t(queues_.size()), shared_.counters);
      if (!queue) return queue.status();
      queues_.push_back(std::move(*queue));
      rail_of_.push_back(r);
    }
  }
  return {};
}

EndPoint RdmaConnection::end_point() const {
  EndPoint out;
  out.inbox = reinterpret_cast<std::uintptr_t>(rings_->data());
  fill_keys(rings_->registration(), out.keys);
  for (std::size_t i = 0; i < queues_.size(); ++i) out.queues.push_back({pair(i).number(), pair(i).first_packet(), {}, 0});
  return out;
}

Status RdmaConnection::connect(const Offer& peer_offer, const EndPoint& peer) {
  there_ = peer;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const Rail& rail = rails_[rail_of_[i]];
    const Offered& port = peer_offer[rail.port[1 - side_]];
    QueueAddress address = peer.queues[i];
    address.gid = port.gids[rail.gid[1 - side_]];
    address.lid = port.lid;
    const Port& own = pair(i).device().port();
    const Gid gid = shared_.offer[rail.port[side_]].gids[rail.gid[side_]];
    const Status status = pair(i).connect(address, gid, std::min<int>(own.mtu, port.mtu), shared_.queue_options());
    if (!status) return status;
  }
  return {};
}

Status RdmaConnection::greet() {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if (const Status status = write_greeting(i); !status) return status;
  }
  return {};
}

Status RdmaConnection::write_greeting(std::size_t queue) {
  return queues_[queue]->write({.address = there_.inbox, .remote_key = there_.keys[peer_port(queue)], .immediate = kGreeting | std::uint32_t(queue)}, true, {});
}

bool RdmaConnection::decided(std::optional<std::uint64_t> peers_good) const {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const bool works = (greetings_ >> i & 1) && queues_[i]->idle();
    const bool given_up = peers_good && !(*peers_good >> i & 1);
    if (queues_[i]->usable() && !works && !given_up) return false;
  }
  return true;
}

std::uint64_t RdmaConnection::good_queues() const {
  std::uint64_t good = 0;
  for (std::size_t i = 0; i < queues_.size(); ++i)
    if (queues_[i]->usable() && (greetings_ >> i & 1)) good |= std::uint64_t(1) << i;
  return good;
}

void RdmaConnection::keep(std::uint64_t good) {
  std::vector<std::unique_ptr<Queue>> queues;
  std::vector<std::size_t> rail_of;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if (!(good >> i & 1)) continue;
    queues.push_back(std::move(queues_[i]));
    rail_of.push_back(rail_of_[i]);
  }
  queues_ = std::move(queues);
  rail_of_ = std::move(rail_of);
}

void RdmaConnection::open() {
  state_ = State::up;
  opened_ = true;
  const auto early = std::move(early_);
  early_.clear();
  for (const ibv_wc& completion : early) deliver(completion);
  for (const auto& queue : queues_)        // its failure was seen when nobody was to be told yet
    if (!queue->usable()) fail(Status(Code::network, fmt::format("{}: failed as soon as it was made", queue->describe()), peer_));
}

std::string RdmaConnection::describe() const {
  if (over_socket_) return "rdma " + over_socket_->describe();
  std::string out = "rdma ";
  for (std::size_t i = 0; i < queues_.size(); ++i)
    if (i == 0 || rail_of_[i] != rail_of_[i - 1]) out += (i ? ", " : "") + queues_[i]->describe();
  return fmt::format("{} ({} queue pair{}{})", out, queues_.size(), queues_.size() == 1 ? "" : "s", !shared_.gpu ? "" : shared_.gpu->direct() ? ", GPU memory direct" : ", GPU memory staged");
}

void RdmaConnection::fill_keys(const Registration& registration, std::uint32_t* keys) const {
  for (std::size_t d = 0; d < shared_.devices.size(); ++d) keys[d] = registration.remote_key(d);
}

std::shared_ptr<const Registration> RdmaConnection::registered(const std::byte* data, std::uint64_t bytes) const { return shared_.registrations.find(data, bytes); }

// --- cells out ---

void RdmaConnection::stamp(Cell& cell) {
  cell.freed = freed_told_ = handled_;
  cell.used = used_told_ = used_;
  const auto untold = [](const auto& queue) { return queue->receives_posted() - queue->receives_told; };
  std::size_t most = main_;
  for (std::size_t i = 0; i < queues_.size(); ++i)
    if (untold(queues_[i]) > untold(queues_[most])) most = i;
  cell.queue = std::uint32_t(most);
  cell.receives = queues_[most]->receives_told = queues_[most]->receives_posted();
}

bool RdmaConnection::owes_credit() const {
  if (handled_ - freed_told_ >= kRingUnits / 4 || used_ - used_told_ >= kCreditUnits / 4) return true;
  return std::any_of(queues_.begin(), queues_.end(), [](const auto& q) { return q->receives_posted() - q->receives_told >= Queue::kReceives / 2; });
}

// Into the ring, from where the peer gets it. False: no room.
bool RdmaConnection::put(Cell cell, const std::byte* payload, bool control, bool signaled) {
  const std::uint32_t units = units_of(cell.bytes), at = head_ % kRingUnits;
  const std::uint32_t skipped = at + units > kRingUnits ? kRingUnits - at : 0;
  const std::uint32_t wanted = skipped + units + (control ? 0 : kControlUnits);
  if (state_ != State::up || cells_again_ > 0 || kRingUnits - (head_ - peer_freed_) < wanted || !main().has_room(1, control)) return false;
  cell.end = head_ + skipped + units;
  stamp(cell);
  const std::uint32_t unit = (head_ + skipped) % kRingUnits;
  std::byte* from = rings_->data() + kRingBytes + unit * kUnit;
  std::memcpy(from, &cell, sizeof cell);
  if (cell.bytes) std::memcpy(from + sizeof cell, payload, cell.bytes);
  head_ = cell.end;
  while (!in_ring_.empty() && std::int32_t(peer_freed_ - in_ring_.front().end) >= 0) in_ring_.pop_front();
  in_ring_.push_back({unit, std::uint32_t(sizeof cell) + cell.bytes, cell.end});
  if (const Status status = post_cell(in_ring_.back(), signaled); !status) fail(status);
  ++(control ? shared_.counters.control_out : shared_.counters.cells_out);
  return true;
}

Status RdmaConnection::post_cell(const CellInRing& cell, bool signaled) {
  return main().write({.data = rings_->data() + kRingBytes + cell.unit * kUnit, .bytes = cell.bytes, .local_key = rings_->registration().local_key(main().device_index()),
                       .address = there_.inbox + cell.unit * kUnit, .remote_key = there_.keys[peer_port(main_)], .immediate = kIsCell | cell.unit}, signaled, {});
}

void RdmaConnection::send_grant(const SegmentHeader& header, std::uint64_t told, const GrantBody& body) {
  Control control{cell_for(header, CellType::grant), body};
  control.cell.bytes = sizeof body;
  control.cell.offset = told;
  waiting_.push_back(control);
  tend();
}

void RdmaConnection::send_control(CellType type, std::uint32_t communicator) {
  Control control;
  control.cell.type = type;
  control.cell.communicator = communicator;
  waiting_.push_back(control);
}

bool RdmaConnection::tend() {
  bool any = send_again();
  if (!revocations_.empty()) answer_revocations();
  while (!waiting_.empty() && put(waiting_.front().cell, reinterpret_cast<const std::byte*>(&waiting_.front().body), true)) {
    waiting_.pop_front();
    any = true;
  }
  while (owes_credit() && put({}, nullptr, true)) {
    ++shared_.counters.credits_out;
    any = true;
  }
  return any;
}

Sent RdmaConnection::send(const SegmentHeader& header, const std::byte* data, std::uint64_t token) {
  TUTTI_CHECK(header.bytes <= header.message_bytes && header.offset <= header.message_bytes - header.bytes);
  if (state_ != State::up || !failure_.ok() || !writes_again_.empty()) return Sent::again;
  if (header.message_bytes <= kEagerBytes) return send_cell(header, data);
  const auto leave = leaves_.find(as_it_travels(header.key));
  if (leave == leaves_.end()) return Sent::again;
  if (leave->second.call != header.call || leave->second.plan != (header.plan & 0xffff)) return refuse(header) ? Sent::done : Sent::again;
  if (header.offset + header.bytes > leave->second.until) return Sent::again;
  const bool last = header.offset + header.bytes == header.message_bytes;
  const Sent sent = send_writes(header, data, token, leave->second);
  if (last && sent != Sent::again) leaves_.erase(leave);
  return sent;
}

Sent RdmaConnection::send_cell(const SegmentHeader& header, const std::byte* data) {
  Cell cell = cell_for(header, CellType::data);
  const std::uint32_t units = units_of(header.bytes);
  if (header.bytes > kFreeBytes) {
    const bool credit = credit_taken_ - peer_used_ + units <= kCreditUnits;
    if (!credit && (!header.first || reserves_.contains(header.key.communicator))) return Sent::again;
    cell.flags = credit ? kCredited : kReserve;
  }
  if (!put(cell, data, false)) return Sent::again;
  if (cell.flags & kCredited) credit_taken_ += units;
  if (cell.flags & kReserve) reserves_.insert(header.key.communicator);
  shared_.counters.copied_out += header.bytes;
  return Sent::done;
}

// The peer has granted a message of another call. A cell tells it what this rank has called, with bytes that nobody will use; nothing is written
// into its memory.
bool RdmaConnection::refuse(const SegmentHeader& header) {
  static constexpr std::byte kNoData[kFreeBytes] = {};
  Cell cell = cell_for(header, CellType::data);
  cell.bytes = std::uint32_t(std::min<std::size_t>(header.bytes, kFreeBytes));
  return put(cell, kNoData, false);
}

// The next in turn with the fewest writes under way.
bool RdmaConnection::choose_queue(std::size_t& queue) {
  bool found = false;
  for (std::size_t k = 0; k < queues_.size(); ++k) {
    const std::size_t i = (turn_ + k) % queues_.size();
    const Queue& q = *queues_[i];
    if (!q.has_room(2) || q.writes_under_way() >= kWritesUnderWay || (found && q.writes_under_way() >= queues_[queue]->writes_under_way())) continue;
    queue = i;
    found = true;
  }
  if (found) turn_ = queue + 1;
  return found;
}

// Cut at the grid; more than one write only where the caller's segments do not keep to it.
Sent RdmaConnection::send_writes(const SegmentHeader& header, const std::byte* data, std::uint64_t token, Leave& leave) {
  const std::size_t grid = shared_.grid_bytes(header.message_bytes);
  auto memory = registered(data, header.bytes);
  Part staging;
  std::size_t queue = leave.queue;
  const bool begun = header.offset % grid != 0;
  if (begun ? !queues_[queue]->has_room(2) : !choose_queue(queue)) return Sent::again;
  if (header.bytes > 2 * grid - header.offset % grid) TUTTI_CHECK(!"a segment longer than the grid");
  if (!memory) {
    staging = shared_.stagings->take(header.bytes);
    if (!staging) return Sent::again;
    if (!shared_.gpu || !of_gpu(data, header.bytes)) {
      copy_bytes(staging.data, data, header.bytes);
    } else if (Status copied = shared_.gpu->copy(staging.data, data, header.bytes); !copied) {      // its registration was given up for others'
      shared_.stagings->give_back(staging);
      fail(copied);
      return Sent::again;
    }
    shared_.counters.copied_out += header.bytes;
  }
  const std::byte* from = memory ? data : staging.data;
  for (std::uint32_t done = 0; done < header.bytes;) {
    const std::uint64_t offset = header.offset + done;
    const auto bytes = std::uint32_t(std::min<std::uint64_t>(header.bytes - done, grid - offset % grid));
    const bool final = done + bytes == header.bytes;
    Posted posted{.cell = false, .tell = memory && final, .bytes = bytes, .token = token, .offset = offset, .message_bytes = header.message_bytes, .key = as_it_travels(header.key), .where = leave.where, .source = from + done, .memory = memory};
    posted.staging = staging;
    posted.staging_ends = final;
    // A completion covers what went by the same queue pair before.
    const bool signaled = !memory || queues_.size() > 1 || offset + bytes == header.message_bytes || queues_[queue]->unsignaled() >= 3;
    if (const Status status = post_write(queue, posted, signaled); !status) fail(status);
    ++shared_.counters.writes_out;
    done += bytes;
  }
  leave.queue = queue;
  return memory ? Sent::pending : Sent::done;
}

Status RdmaConnection::post_write(std::size_t queue, const Posted& posted, bool signaled) {
  const Registration& from = posted.memory ? *posted.memory : posted.staging.block->registration();
  const auto index = std::uint32_t(posted.offset / shared_.grid_bytes(posted.message_bytes));
  return queues_[queue]->write({.data = posted.source, .bytes = posted.bytes, .local_key = from.local_key(queues_[queue]->device_index()),
                                .address = posted.where.address + posted.offset % posted.where.window, .remote_key = posted.where.keys[peer_port(queue)],
                                .immediate = posted.where.id << kIndexBits | index}, signaled, posted);
}

void RdmaConnection::flush() {
  for (std::size_t i = 0; i < queues_.size(); ++i)
    if (up() && queues_[i]->unsignaled() > 0 && queues_[i]->has_room(1, true)) (void)write_greeting(i);
}

// --- completions ---

void RdmaConnection::completion(std::size_t index, const ibv_wc& wc) {
  Queue& queue = *queues_[index];
  const bool receive = wc.wr_id & Queue::kReceiveFlag;
  if (wc.status != IBV_WC_SUCCESS) {
    if (receive) queue.flushed_receive();
    if (!opened_) queue.stop();
    else if (queue.usable()) fail(Status(Code::network, fmt::format("{}: {}", queue.describe(), queue.why(wc.status, shared_.queue_options())), peer_));
    return;
  }
  if (!receive) return completed(queue, wc);
  queue.used_receive();
  if (!opened_ && (ntohl(wc.imm_data) & kGreeting) != kGreeting) return early_.push_back(wc);
  deliver(wc);
}

void RdmaConnection::completed(Queue& queue, const ibv_wc& wc) {
  ++shared_.counters.completions;
  Posted posted;
  while (queue.take_completed(std::uint32_t(wc.wr_id), posted)) retire(posted);
}

void RdmaConnection::retire(Posted& posted) {
  moved_ += !posted.cell;
  give_back(posted);
  if (posted.tell) sent_.push_back(posted.token);
}

void RdmaConnection::deliver(const ibv_wc& wc) {
  ++shared_.counters.arrivals;
  const std::uint32_t immediate = ntohl(wc.imm_data);
  if ((immediate & kGreeting) == kGreeting) {
    if (!opened_) greetings_ |= std::uint64_t(1) << (immediate & 63);
  } else if (immediate & kIsCell) {
    cell_arrived(immediate & ~kIsCell);
  } else if (delivers()) {
    ++moved_;
    const char* wrong = grants_.arrived(immediate >> kIndexBits, immediate & ((1u << kIndexBits) - 1), wc.byte_len);
    if (wrong) fail(std::string(wrong));
  }
}

bool RdmaConnection::read_cell(std::uint32_t unit, Cell& cell) const {
  if (unit >= kRingUnits) return false;
  std::memcpy(&cell, rings_->data() + unit * kUnit, sizeof cell);
  const std::uint32_t units = units_of(cell.bytes);
  return unit + units <= kRingUnits && (cell.end - units) % kRingUnits == unit && cell.queue < queues_.size();
}

// What every header says of the other direction.
void RdmaConnection::hear(const Cell& cell) {
  if (std::int32_t(cell.freed - peer_freed_) > 0) peer_freed_ = cell.freed;
  if (std::int32_t(cell.used - peer_used_) > 0) peer_used_ = cell.used;
  queues_[cell.queue]->peer_posted(cell.receives);
}

void RdmaConnection::cell_arrived(std::uint32_t unit) {
  Cell cell;
  if (!read_cell(unit, cell)) return fail(std::string("a cell that is none"));
  const std::byte* at = rings_->data() + unit * kUnit;
  hear(cell);
  if (!delivers()) return;
  if (cell.type == CellType::data) data_arrived(cell, at + sizeof cell);
  else control_arrived(cell, at + sizeof cell);
  handled_ = cell.end;
}

// Small ones are read where they lie, at once or never. Others go where the listener wants them, or else into a copy, so that nothing
// keeps the inbox from being used again.
void RdmaConnection::data_arrived(const Cell& cell, const std::byte* payload) {
  const SegmentHeader header = header_of(cell);
  if (header.bytes > header.message_bytes || header.offset > header.message_bytes - header.bytes) return fail(std::string("a segment outside of its message"));
  if (cell.bytes <= kFreeBytes) return shared_.listener.on_segment(peer_, header, payload, {});
  shared_.counters.copied_in += cell.bytes;
  if (std::byte* into = shared_.listener.landing(peer_, header)) {
    copy_bytes(into, payload, cell.bytes);
    if (cell.flags & kCredited) used_ += units_of(cell.bytes);
    if (cell.flags & kReserve) send_control(CellType::reserve, cell.communicator);
    return shared_.listener.on_segment(peer_, header, into, {});
  }
  Landed* landed = shared_.landed.take();
  landed->owner = this;
  landed->copy.assign(payload, payload + cell.bytes);
  shared_.landed.count_copy(cell.bytes);
  landed->bytes = cell.bytes;
  landed->communicator = cell.communicator;
  landed->flags = cell.flags;
  shared_.listener.on_segment(peer_, header, landed->copy.data(), shared_.landed.lease(landed));
}

void RdmaConnection::released(Landed& landed) {
  if (landed.message) return grants_.freed(*landed.message, landed.offset, landed.bytes);
  if (landed.flags & kCredited) used_ += units_of(landed.bytes);
  if (landed.flags & kReserve) send_control(CellType::reserve, landed.communicator);
}

void RdmaConnection::control_arrived(const Cell& cell, const std::byte* payload) {
  switch (cell.type) {
    case CellType::data: case CellType::credit: return;
    case CellType::grant: {
      const MessageKey key{cell.communicator, cell.operation, cell.message};
      Leave& leave = leaves_[key];
      if (cell.bytes != sizeof(GrantBody)) return fail(std::string("a grant that is none"));
      std::memcpy(&leave.where, payload, sizeof leave.where);
      if (leave.where.window == 0 || leave.where.id >= kMostGrants) return fail(std::string("a grant of nothing"));
      leave.until = std::max(leave.until, cell.offset);
      leave.call = cell.call;
      leave.plan = cell.plan;
      return;
    }
    case CellType::revoke:
      std::erase_if(leaves_, [&](const auto& leave) { return leave.first.communicator == cell.communicator; });
      revocations_.push_back(cell.communicator);
      return;
    case CellType::revoked: return grants_.revoked(cell.communicator);
    case CellType::reserve: reserves_.erase(cell.communicator); return;
  }
  fail(std::string("a cell of an unknown type"));
}

// Once nothing of the communicator is under way: what was written has arrived.
void RdmaConnection::answer_revocations() {
  if (state_ != State::up || !writes_again_.empty()) return;
  std::erase_if(revocations_, [&](std::uint32_t communicator) {
    const bool under_way = std::any_of(queues_.begin(), queues_.end(), [&](const auto& q) { return q->has_write_of(communicator); });
    if (!under_way) send_control(CellType::revoked, communicator);
    return !under_way;
  });
}

// Of what was taken from the devices, from there on, what came first by the queue pair of cells.
std::vector<ibv_wc>::iterator RdmaConnection::next_arrival(std::size_t from) {
  const std::uint64_t id = std::uint64_t(queues_[main_]->id()) << 32 | Queue::kReceiveFlag;
  return std::find_if(shared_.kept.begin() + std::ptrdiff_t(from), shared_.kept.end(), [id](const ibv_wc& wc) { return wc.wr_id == id; });
}

// What is not looked for stays for poll().
const std::byte* RdmaConnection::glance(const SegmentHeader& message) {
  if (state_ != State::up || !opened_ || over_socket_ || shared_.dispatching) return nullptr;
  auto next = next_arrival();
  if (next == shared_.kept.end()) {
    const std::size_t known = shared_.kept.size();
    if (!shared_.fetch()) return nullptr;
    next = next_arrival(known);
  }
  if (next == shared_.kept.end() || next->status != IBV_WC_SUCCESS) return nullptr;
  const std::uint32_t immediate = ntohl(next->imm_data), unit = immediate & ~kIsCell;
  Cell cell;
  if ((immediate & kIsCell) == 0 || (immediate & kGreeting) == kGreeting || !read_cell(unit, cell) || cell.type != CellType::data) return nullptr;
  const Cell wanted = cell_for(message, CellType::data);
  const bool same = cell.communicator == wanted.communicator && cell.operation == wanted.operation && cell.message == wanted.message && cell.call == wanted.call &&
                    cell.plan == wanted.plan && cell.bytes == wanted.bytes && cell.message_bytes == wanted.message_bytes && cell.offset == 0;
  return same ? rings_->data() + unit * kUnit + sizeof cell : nullptr;
}

// As poll() would have, but for the listener.
void RdmaConnection::take_glanced() {
  const auto taken = next_arrival();
  TUTTI_CHECK(taken != shared_.kept.end());
  Cell cell;
  TUTTI_CHECK(read_cell(ntohl(taken->imm_data) & ~kIsCell, cell));
  shared_.kept.erase(taken);
  ++shared_.counters.arrivals;
  queues_[main_]->used_receive();
  hear(cell);
  if (cell.flags & kCredited) used_ += units_of(cell.bytes);
  if (cell.flags & kReserve) send_control(CellType::reserve, cell.communicator);
  handled_ = cell.end;
  if (owes_credit() || !waiting_.empty()) tend();
}

bool RdmaConnection::tell_sent() {
  if (sent_.empty()) return false;
  for (std::size_t i = 0; i < sent_.size(); ++i) shared_.listener.on_sent(peer_, sent_[i]);      // which may end this connection
  sent_.clear();
  return true;
}

bool RdmaConnection::drained() const {
  return state_ != State::up || (waiting_.empty() && std::all_of(queues_.begin(), queues_.end(), [](const auto& q) { return q->idle(); }));
}

void RdmaConnection::expect(const SegmentHeader& message, Readiness readiness, std::byte* place) {
  if (readiness == Readiness::ahead) return;       // it will be said again, and a grant on this wire takes microseconds
  if (delivers() && message.message_bytes > kEagerBytes) grants_.expect(message, place);
}

// Users' memory is theirs again at the end of this: where the device or the peer's may still be at work in it, the queue pairs stop.
void RdmaConnection::abandon(std::uint32_t communicator) {
  if (!delivers()) return;
  const bool writable = grants_.abandon(communicator);
  const bool readable = std::any_of(queues_.begin(), queues_.end(), [&](const auto& q) { return q->reads_memory_of(communicator); });
  abandoned_.insert(communicator);
  if (state_ != State::up || !(writable || readable)) return;
  stop_queues();
  fail(Status(Code::network, fmt::format("{}: stopped, so that nothing of an operation that has failed is written any more", describe()), peer_));
}

void RdmaConnection::stop() {
  state_ = State::over;
  stop_queues();
  Posted posted;
  for (const auto& queue : queues_)
    while (queue->take_posted(posted)) give_back(posted);
  for (const Posted& write : unsure_) give_back(write);
  for (const Posted& write : writes_again_) give_back(write);
  unsure_.clear();
  writes_again_.clear();
  sent_.clear();
}

void RdmaConnection::give_back(const Posted& posted) {
  if (posted.staging && posted.staging_ends) shared_.stagings->give_back(posted.staging);
}

void RdmaConnection::fail(const Status& why) {
  if (failure_.ok()) failure_ = why;
}

void RdmaConnection::fail(const std::string& nonsense) {
  fail(Status(Code::network, fmt::format("{}: the peer sends {}", describe(), nonsense), peer_));
}

}  // namespace tutti::transport::rdma
