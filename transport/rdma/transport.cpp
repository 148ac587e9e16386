#include "transport/rdma/transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "core/log.h"
#include "transport/rdma/bytes.h"

namespace tutti::transport {

Result<std::unique_ptr<RdmaTransport>> RdmaTransport::make(Loop& loop, Listener& listener, const rdma::RdmaOptions& options) {
  const auto verbs = rdma::load_verbs();
  if (!verbs) return verbs.status();
  auto made = rdma::VerbsTransport::make(**verbs, loop, listener, options);
  if (!made) return made.status();
  return std::unique_ptr<RdmaTransport>(std::move(*made));
}

}  // namespace tutti::transport

namespace tutti::transport::rdma {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLargest = 128 << 10, kSmallest = 16 << 10;     // segments of granted messages
constexpr auto kGreetingLimit = 10s;      // queue pairs fail far sooner
constexpr auto kSettleLimit = 500ms;
constexpr std::size_t kBatch = 32;        // completions

std::vector<std::byte> encode(const EndPoint& end) {
  std::vector<std::byte> out;
  append(out, end.inbox);
  append(out, end.keys);
  for (const QueueAddress& queue : end.queues) append(out, queue.number), append(out, queue.first_packet);
  return out;
}

Result<EndPoint> decode_end_point(std::span<const std::byte> bytes, std::size_t queues) {
  EndPoint end;
  bool good = take(bytes, end.inbox) && take(bytes, end.keys);
  for (std::size_t i = 0; good && i < queues; ++i) {
    QueueAddress queue;
    good = take(bytes, queue.number) && take(bytes, queue.first_packet);
    end.queues.push_back(queue);
  }
  if (!good || !bytes.empty()) return Status(Code::network, "rdma: where the peer's queue pairs are cannot be read");
  return end;
}

}  // namespace

std::size_t Shared::segment_bytes(std::uint64_t message_bytes) const {
  const std::uint64_t largest = options.segment_bytes ? std::min<std::uint64_t>(options.segment_bytes, kLargest) : kLargest;
  if (message_bytes <= kEagerBytes) return std::size_t(std::min<std::uint64_t>(largest, std::max<std::uint64_t>(message_bytes, 1)));
  const std::uint64_t eighth = (message_bytes / 8 + 4095) / 4096 * 4096;
  return std::size_t(std::clamp<std::uint64_t>(eighth, std::min<std::uint64_t>(kSmallest, largest), largest));
}

// The segment, or more where segments are tiny or there would be more than can be numbered.
std::size_t Shared::grid_bytes(std::uint64_t message_bytes) const {
  std::size_t grid = std::max<std::size_t>(segment_bytes(message_bytes), 4096);
  while (message_bytes / grid >= (1u << kIndexBits)) grid *= 2;
  return grid;
}

bool Shared::fetch() {
  std::array<ibv_wc, kBatch> batch;
  bool any = false;
  for (const auto& device : devices) {
    const int got = device->poll(batch);
    kept.insert(kept.end(), batch.begin(), batch.begin() + got);
    any |= got > 0;
  }
  return any;
}

Result<std::unique_ptr<VerbsTransport>> VerbsTransport::make(const Verbs& verbs, Loop& loop, Listener& listener, const RdmaOptions& options) {
  std::unique_ptr<VerbsTransport> out(new VerbsTransport(loop, listener, options));
  auto devices = Device::open_all(verbs);
  std::vector<Port> ports;
  for (const auto& device : devices) ports.push_back(device->port());
  const auto chosen = choose_ports(ports, options.devices, options.numa, out->unused_);
  for (const Port& port : chosen) {
    const auto at = std::find_if(devices.begin(), devices.end(), [&](const auto& d) { return d && d->port() == port; });
    if (Status status = (*at)->prepare(options.relaxed_ordering); !status) return status;
    if (out->shared_.devices.size() < kMostPorts) out->shared_.devices.push_back(std::move(*at));
  }
  if (out->shared_.devices.empty()) return Status(Code::unsupported, "no RDMA device can be used: " + out->unused_);
  out->shared_.offer = make_offer(chosen, options.gid_index);
  for (std::size_t i = 0; i < out->shared_.offer.size(); ++i)
    if (out->shared_.offer[i].gids.empty())
      log::write_once(log::Level::warning, fmt::format("TUTTI_IB_GID_INDEX={}: {} has no such entry; `show_gids` lists them", options.gid_index, chosen[i].name()));
  for (const auto& device : out->shared_.devices)
    out->watches_.push_back(loop.watch(device->descriptor(), [transport = out.get(), d = device.get()] {
      d->take_events();
      if (transport->joining_ > 0) transport->poll();
    }));
  return out;
}

VerbsTransport::~VerbsTransport() {
  TUTTI_CHECK(!polling_);
  watches_.clear();
}

std::string VerbsTransport::used_devices() const {
  std::string out;
  for (const auto& device : shared_.devices) {
    Port now = device->port();
    if (!device->active()) now.state = "down now";
    out += (out.empty() ? "" : ", ") + describe(now, shared_.options.gid_index);
  }
  return out;
}

std::string VerbsTransport::describe_devices() const { return used_devices() + (unused_.empty() ? "" : "; not used: " + unused_); }

std::vector<PortError> VerbsTransport::port_errors() const {
  std::vector<PortError> out;
  for (const auto& device : shared_.devices) device->read_errors(out);
  return out;
}

Status VerbsTransport::use_gpu(tutti::Device& gpu) {
  TUTTI_CHECK(!gpu_ && !polling_);
  gpu_ = std::make_unique<GpuDirect>(gpu, shared_.devices, distance_named(shared_.options.gpu_distance), shared_.kept);
  shared_.registrations.use(gpu_.get());
  shared_.gpu = gpu_.get();
  std::string off;
  for (const std::string& line : gpu_->describe()) {
    log::write(log::Level::info, "GPUDirect RDMA " + line);
    if (line.starts_with("off")) off += (off.empty() ? "" : "; ") + line;
  }
  return off.empty() ? Status() : Status(Code::unsupported, off);
}

Status VerbsTransport::prepare_pools() {
  if (shared_.stagings) return {};
  auto landings = Pool::make(shared_.devices, shared_.options.landing_bytes);
  if (!landings) return landings.status();
  auto stagings = Pool::make(shared_.devices, shared_.options.staging_bytes);
  if (!stagings) return stagings.status();
  shared_.landings = std::move(*landings);
  shared_.stagings = std::move(*stagings);
  return {};
}

// --- joining ---

void VerbsTransport::connect(int peer, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnReady on_ready) {
  TUTTI_CHECK(!sockets.empty() && !connected(peer));
  tasks_.spawn(join(peer, std::move(sockets), dialler, std::move(on_ready)));
}

Task<void> VerbsTransport::join(int peer, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnReady on_ready) {
  auto made = std::make_shared<Link>();
  Link& link = *made;
  link.connection = std::make_unique<RdmaConnection>(shared_, peer);
  link.sockets = std::move(sockets);
  link.moved = std::make_unique<Event>(shared_.loop);
  bool broken = false;
  ++joining_;
  auto meeting = meet(link, dialler ? 0 : 1, broken);
  const Status status = co_await meeting;
  --joining_;
  if (!status) {
    forget(link);
    auto back = broken ? std::vector<std::unique_ptr<Stream>>() : std::move(link.sockets);
    made.reset();
    on_ready(Status(broken ? Code::network : Code::unsupported, status.text(), peer), std::move(back));
    co_return;
  }
  links_[peer] = std::move(made);
  watch_sockets(link);
  link.connection->start();
  on_ready(static_cast<Connection*>(link.connection.get()), {});
  if (!link.over) link.connection->open();
}

// Ports that are down just now keep their place, and have no GID by which to be reached.
Offer VerbsTransport::current_offer() {
  Offer offer = shared_.offer;
  for (std::size_t i = 0; i < offer.size(); ++i)
    if (!shared_.devices[i]->active()) offer[i].gids.clear();
  return offer;
}

Task<Status> VerbsTransport::meet(Link& link, int side, bool& broken) {
  const TimePoint deadline = shared_.loop.now() + kJoinLimit;
  Loop& loop = shared_.loop;
  Stream& stream = *link.sockets[0];
  const Status pools = prepare_pools();
  const Proposal own{pools.ok() ? current_offer() : Offer{}, std::uint32_t(shared_.options.queues), pools.text()};
  auto proposing = exchange(loop, stream, encode(own), deadline);
  const auto answer = co_await proposing;
  const auto theirs = answer ? decode_proposal(*answer) : Result<Proposal>(answer.status());
  broken = !theirs.ok();
  if (broken) co_return theirs.status();
  if (own.offer.empty()) co_return pools;
  if (theirs->offer.empty()) co_return Status(Code::unsupported, "on its side: " + theirs->why_not);
  const auto rails = side == 0 ? pair_up(own.offer, theirs->offer) : pair_up(theirs->offer, own.offer);
  if (rails.empty()) co_return Status(Code::unsupported, fmt::format("none of the devices here ({}) suits one there", used_devices()));

  RdmaConnection& connection = *link.connection;
  const auto queues = std::clamp<std::uint32_t>(std::min(own.queues, theirs->queues), 1, 8);
  Status status = connection.prepare(rails, side, int(queues), std::uint32_t(slots_.size()));
  number(link);
  auto preparing = agree(loop, stream, status, deadline, broken);
  status = co_await preparing;
  if (!status) co_return status;
  auto meeting = exchange(loop, stream, encode(connection.end_point()), deadline);
  const auto end = co_await meeting;
  broken = !end.ok();
  if (broken) co_return end.status();
  const auto there = decode_end_point(*end, connection.queues().size());
  status = there ? connection.connect(theirs->offer, *there) : there.status();
  auto connecting = agree(loop, stream, status, deadline, broken);
  status = co_await connecting;
  if (!status) co_return status;
  auto greeting = greet(link, std::min(deadline, loop.now() + kGreetingLimit), broken);
  status = co_await greeting;
  co_return status;
}

// By which queue pairs writes really come through, both ways: the others are dropped. Each side says which it finds good as soon as it knows,
// and hears the other's meanwhile: what has failed there is not waited for here.
Task<Status> VerbsTransport::greet(Link& link, TimePoint deadline, bool& broken) {
  RdmaConnection& connection = *link.connection;
  Result<std::uint64_t> theirs(Status(Code::network, "rdma: the peer's greeting has not come"));
  auto hearing = hear_greeting(link, theirs);
  hearing.start();
  const Status sent = connection.greet();
  poll();
  while (sent.ok() && !connection.decided(theirs ? std::optional(*theirs) : std::nullopt)) {
    if (hearing.done() && !theirs) break;
    link.moved->reset();
    auto moving = link.moved->wait(deadline);
    const bool in_time = co_await moving;
    poll();
    if (!in_time) break;
  }
  const std::uint64_t own = connection.good_queues();
  std::vector<std::byte> frame;
  append(frame, own);
  auto telling = send_frame(shared_.loop, *link.sockets[0], std::move(frame), shared_.loop.now() + kJoinLimit);
  const Status told = co_await telling;
  co_await hearing;
  broken = !told.ok() || !theirs;
  if (broken) co_return told.ok() ? theirs.status() : told;
  const std::uint64_t good = own & *theirs;
  const std::string all = connection.describe();
  if (good == 0) co_return Status(Code::unsupported, fmt::format("{}: nothing that one side writes arrives at the other; are the two subnets connected, and open for RDMA (UDP port 4791 for RoCE)?", all));
  const bool some = good != (std::uint64_t(1) << connection.queues().size()) - 1;
  connection.keep(good);
  number(link);
  if (some) log::info("rdma to peer {}: not all of {} work; left: {}", connection.peer(), all, connection.describe());
  co_return Status();
}

Task<void> VerbsTransport::hear_greeting(Link& link, Result<std::uint64_t>& good) {
  auto receiving = receive_frame(shared_.loop, *link.sockets[0], shared_.loop.now() + 2 * kJoinLimit);
  const auto frame = co_await receiving;
  std::uint64_t theirs = 0;
  std::span<const std::byte> bytes;
  if (frame) bytes = *frame;
  if (take(bytes, theirs) && bytes.empty()) good = theirs;
  else good = frame ? Status(Code::network, "rdma: the peer's greeting cannot be read") : frame.status();
  link.moved->set();
}

// The queue pairs of the link, by the ids that they have.
void VerbsTransport::number(Link& link) {
  const auto& queues = link.connection->queues();
  forget(link);
  for (std::size_t i = 0; i < queues.size(); ++i) {
    if (queues[i]->id() >= slots_.size()) slots_.resize(queues[i]->id() + 1);
    slots_[queues[i]->id()] = {&link, i};
  }
}

// --- after a break ---

void VerbsTransport::resume(int peer, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnResumed on_resumed) {
  const auto at = links_.find(peer);
  if (at == links_.end() || at->second->over || at->second->resuming || sockets.empty()) return on_resumed(Status(Code::network, "rdma: there is no broken connection with the peer", peer));
  tasks_.spawn(rejoin(at->second, std::move(sockets), dialler, std::move(on_resumed)));
}

Task<void> VerbsTransport::rejoin(std::shared_ptr<Link> link, std::vector<std::unique_ptr<Stream>> sockets, bool dialler, OnResumed on_resumed) {
  link->resuming = true;
  break_off(*link);
  for (auto& socket : link->sockets) socket->when_readable({});
  link->sockets = std::move(sockets);
  link->closed = false;
  ++joining_;
  auto settling = settle(*link);
  Status status = co_await settling;
  bool broken = false, over_socket = false;
  if (status.ok()) {
    auto meeting = meet(*link, dialler ? 0 : 1, broken);
    status = co_await meeting;
    if (!status.ok() && !broken && !link->over) {
      auto giving_up = give_up_devices(*link, status);
      over_socket = co_await giving_up;
    }
  }
  if ((status.ok() || over_socket) && !link->over) {
    auto catching = catch_up(*link, over_socket);
    status = co_await catching;
  }
  --joining_;
  link->resuming = false;
  if (link->over) {
    forget(*link);
    co_return;
  }
  if (status.ok()) {
    if (over_socket) ++shared_.counters.over_sockets;
    else shared_.counters.rebuilt += link->connection->queues().size();
    watch_sockets(*link);
  } else {
    link->connection->stop_queues();      // the next attempt reads what has arrived by them
    link->sockets.clear();
  }
  on_resumed(status);
}

// Until nothing more arrives by the old queue pairs.
Task<Status> VerbsTransport::settle(Link& link) {
  const TimePoint end = shared_.loop.now() + kSettleLimit;
  link.connection->stop_queues();
  poll();
  while (!link.over && !link.connection->settled() && shared_.loop.now() < end) {
    SleepUntil nap(shared_.loop, shared_.loop.now() + 1ms);
    co_await nap;
    poll();
  }
  if (link.over) co_return Status(Code::network, "rdma: disconnected", link.connection->peer());
  link.connection->drop_queues();
  number(link);
  co_return Status();
}

// No rail works. Whether both sides allow a socket instead, and one of them has waited for long enough.
Task<bool> VerbsTransport::give_up_devices(Link& link, const Status& why) {
  const Nanoseconds patience = shared_.options.socket_after, since = shared_.loop.now() - link.broken_since;
  const bool allowed = patience.count() >= 0, due = allowed && (link.was_over_socket || since >= patience);
  auto telling = exchange(shared_.loop, *link.sockets[0], std::vector<std::byte>{std::byte(allowed), std::byte(due)}, shared_.loop.now() + kJoinLimit);
  const auto theirs = co_await telling;
  if (!theirs || theirs->size() != 2 || !allowed || (*theirs)[0] == std::byte{0} || (!due && (*theirs)[1] == std::byte{0})) co_return false;
  link.connection->drop_queues();
  number(link);
  log::write(log::Level::warning, fmt::format("RDMA with peer {} has not worked for {:.3g} s and is given up: {}; its messages go over TCP from here on", link.connection->peer(),
                                              std::chrono::duration<double>(since).count(), why.text()));
  co_return true;
}

Task<Status> VerbsTransport::catch_up(Link& link, bool over_socket) {
  const TimePoint deadline = shared_.loop.now() + kJoinLimit;
  RdmaConnection& connection = *link.connection;
  Stream& stream = *link.sockets[0];
  auto telling = exchange(shared_.loop, stream, connection.resumption(), deadline);
  const auto theirs = co_await telling;
  if (!theirs || link.over) co_return theirs.status();
  const auto own = connection.answer(*theirs);
  if (!own) co_return own.status();
  auto answering = exchange(shared_.loop, stream, *own, deadline);
  const auto answers = co_await answering;
  if (!answers || link.over) co_return answers.status();
  if (over_socket) {
    connection.go_over(std::move(link.sockets[0]), std::uint32_t(slots_.size()));
    link.sockets.erase(link.sockets.begin());
    number(link);
  }
  co_return connection.reopen(*answers);
}

void VerbsTransport::break_off(Link& link) {
  if (!link.connection->up()) return;
  link.broken_since = shared_.loop.now();
  link.was_over_socket = link.connection->over_socket() != nullptr;
  link.connection->break_off();
}

void VerbsTransport::watch_sockets(Link& link) {
  for (auto& socket : link.sockets) {
    socket->when_readable([this, &link, s = socket.get()] {
      std::byte ignored[64];
      const IoResult got = s->read(ignored);
      if (!got.closed && got.status.ok()) return;
      s->when_readable({});
      link.closed = true;
      poll();                             // first what it had sent before its end
    });
  }
}

// --- running ---

void VerbsTransport::dispatch(const ibv_wc& completion) {
  const auto id = std::size_t(completion.wr_id >> 32);
  if (id >= slots_.size() || !slots_[id].link) return;
  Link& link = *slots_[id].link;
  link.connection->completion(slots_[id].queue, completion);
  if (!link.connection->up() && link.moved) link.moved->set();
}

bool VerbsTransport::poll_devices() {
  bool any = !shared_.kept.empty();
  shared_.dispatching = true;
  dispatched_.swap(shared_.kept);
  for (const ibv_wc& completion : dispatched_) dispatch(completion);
  dispatched_.clear();
  std::array<ibv_wc, kBatch> batch;
  for (const auto& device : shared_.devices) {
    const int got = device->poll(batch);
    for (int i = 0; i < got; ++i) dispatch(batch[std::size_t(i)]);
    any |= got > 0;
  }
  shared_.dispatching = false;
  return any;
}

bool VerbsTransport::poll_sockets() {
  bool any = false;
  std::vector<SocketQueue*> queues;        // callbacks may disconnect; what they drop lives until poll() returns
  for (const auto& [peer, link] : links_)
    if (SocketQueue* queue = link->connection->over_socket()) queues.push_back(queue);
  for (SocketQueue* queue : queues) any |= queue->poll([this](const ibv_wc& completion) { dispatch(completion); });
  return any;
}

bool VerbsTransport::poll() {
  if (polling_) return false;
  polling_ = true;
  bool any = poll_devices();
  if (joining_ > 0) {
    for (const auto& device : shared_.devices) device->arm();
    while (poll_devices()) any = true;      // what was there before makes no event, and a queue pair that fails leaves hundreds
  }
  any |= poll_sockets();
  shared_.registrations.purge();
  std::erase_if(shared_.waiting, [](const auto& w) { return w.grants->admit(w.id); });
  tended_.clear();                        // callbacks may disconnect
  for (const auto& [peer, link] : links_) tended_.push_back(link.get());
  for (Link* link : tended_) any |= tend(*link);
  flush_ = false;
  polling_ = false;
  for (const auto& link : gone_) forget(*link);
  gone_.clear();
  return any;
}

bool VerbsTransport::tend(Link& link) {
  RdmaConnection& connection = *link.connection;
  if (link.over) return false;
  bool any = connection.tell_sent();
  if (link.over) return true;
  any |= connection.tend();
  if (flush_) connection.flush();
  if (!connection.up() || link.resuming) return any;
  if (!connection.failure().ok()) end(link, Status(Code::peer_lost, connection.failure().text(), connection.peer()));
  else if (link.closed) end(link, Status(Code::peer_lost, "its process ended, or gave the connection up", connection.peer()));
  return any;
}

void VerbsTransport::end(Link& link, const Status& why) {
  if (!shared_.options.resumable) return lose(link, why);
  break_off(link);
  link.sockets.clear();                   // so that the peer sees it, too
  shared_.listener.on_broken(link.connection->peer(), why);
}

void VerbsTransport::lose(Link& link, const Status& why) {
  if (std::exchange(link.over, true)) return;
  for (auto& socket : link.sockets) socket->when_readable({});
  link.connection->stop();
  shared_.listener.on_lost(link.connection->peer(), why);
}

void VerbsTransport::forget(Link& link) {
  for (Slot& slot : slots_)
    if (slot.link == &link) slot.link = nullptr;
}

bool VerbsTransport::connected(int peer) const {
  const auto at = links_.find(peer);
  return at != links_.end() && !at->second->over;
}

bool VerbsTransport::broken(int peer) const {
  const auto at = links_.find(peer);
  return at != links_.end() && !at->second->over && at->second->connection->broken();
}

std::uint64_t VerbsTransport::progress(int peer) const {
  const auto at = links_.find(peer);
  return at == links_.end() ? 0 : at->second->connection->progress();
}

std::uint64_t VerbsTransport::sent_again(int peer) const {
  const auto at = links_.find(peer);
  return at == links_.end() ? 0 : at->second->connection->sent_again();
}

void VerbsTransport::disconnect(int peer) {
  const auto at = links_.find(peer);
  if (at == links_.end()) return;
  at->second->over = true;
  at->second->connection->stop();
  for (auto& socket : at->second->sockets) socket->when_readable({});
  auto link = std::move(at->second);
  links_.erase(at);
  if (polling_) return gone_.push_back(std::move(link));
  forget(*link);
}

void VerbsTransport::abandon(std::uint32_t communicator) {
  for (const auto& [peer, link] : links_)
    if (!link->over) link->connection->abandon(communicator);
}

bool VerbsTransport::drained() const {
  const bool all = std::all_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second->over || entry.second->connection->drained(); });
  flush_ = !all;
  return all;
}

bool VerbsTransport::prepare_sleep() {
  if (links_.empty()) return true;
  for (const auto& [peer, link] : links_) {
    if (link->over) continue;
    link->connection->tend();
    if (SocketQueue* queue = link->connection->over_socket()) queue->flush();
  }
  bool armed = true;
  for (const auto& device : shared_.devices) armed &= device->arm();
  shared_.fetch();
  return armed && shared_.kept.empty();         // what makes no event has to be looked for
}

// While it joins, whoever looks at the loop next is told, and polls.
void VerbsTransport::wake_done() {
  if (joining_ > 0) return;
  for (const auto& device : shared_.devices) device->take_events();
}

std::string VerbsTransport::debts() const {
  std::string out;
  const auto owe = [&](std::size_t bytes, const char* what) {
    if (bytes) out += fmt::format("rdma: {} bytes of {}; ", bytes, what);
  };
  if (!shared_.landings) return out;
  owe(shared_.landings->bytes() - shared_.landings->free_bytes(), "windows for messages that are coming");
  owe(shared_.stagings->bytes() - shared_.stagings->free_bytes(), "copies of what is being sent");
  owe(shared_.landed.memory_bytes(), "copies of what has come");
  return out;
}

std::size_t VerbsTransport::memory_bytes() const {
  std::size_t bytes = shared_.landed.memory_bytes();
  if (shared_.landings) bytes += shared_.landings->bytes() + shared_.stagings->bytes();
  for (const auto& [peer, link] : links_) bytes += link->connection->memory_bytes();
  return bytes;
}

}  // namespace tutti::transport::rdma
