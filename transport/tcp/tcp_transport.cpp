#include "transport/tcp/tcp_transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"

namespace tutti::transport {

using tcp::TcpConnection;

namespace {

template <class T>
void erase_one(std::vector<T*>& from, const T* what) {
  from.erase(std::remove(from.begin(), from.end(), what), from.end());
}

}  // namespace

TcpTransport::TcpTransport(Loop& loop, Listener& listener, const TcpOptions& options)
    : shared_(listener, options), loop_(loop) {
  TUTTI_CHECK(options.eager_bytes <= tcp::kMaxPayload);
  shared_.clock = &loop;
}

tcp::Service TcpTransport::service(int peer) const {
  const auto found = connections_.find(peer);
  return found == connections_.end() ? tcp::Service{} : found->second->in().service();
}

tcp::Repairs TcpTransport::repairs(int peer) const {
  const auto found = connections_.find(peer);
  return found == connections_.end() ? tcp::Repairs{} : found->second->repairs();
}

std::string TcpTransport::debts() const {
  std::string out;
  const auto owes = [&out](const std::string& what, std::uint64_t many) {
    if (many) out += fmt::format("{}{} {}", out.empty() ? "tcp: " : ", ", many, what);
  };
  owes("bytes reserved by grants", shared_.grants.reserved);
  owes("bytes reserved by grants ahead of their turn", shared_.grants.reserved_ahead);
  owes("messages waiting for a grant", shared_.grants.waiting.size());
  owes("bytes of landings lent", landing_bytes());
  for (const auto& [peer, connection] : connections_) {
    const std::string whose = fmt::format(" of peer {}", peer);
    owes("bytes of credit" + whose, connection->in().eager_held());
    owes("messages begun" + whose, connection->in().open_messages());
    owes("grants not used" + whose, connection->out().open_leaves());
  }
  return out;
}

TcpTransport::~TcpTransport() { TUTTI_CHECK(!polling_); }

Connection* TcpTransport::connect(int peer, std::vector<std::unique_ptr<Stream>> sockets) {
  TUTTI_CHECK(!sockets.empty() && !connections_.contains(peer));
  auto& connection = connections_[peer];
  connection = std::make_unique<TcpConnection>(shared_, peer);
  ++shared_.connections;
  for (auto& socket : sockets) add_socket(peer, std::move(socket));
  return connection.get();
}

bool TcpTransport::add_socket(int peer, std::unique_ptr<Stream> stream) {
  const auto found = connections_.find(peer);
  if (found == connections_.end() || found->second->over()) return false;
  Socket* socket = found->second->add(std::move(stream));
  socket->last_active = round_;
  socket->active = true;
  active_.push_back(socket);
  return true;
}

TcpConnection* TcpTransport::find(int peer) const {
  const auto found = connections_.find(peer);
  return found == connections_.end() || found->second->over() ? nullptr : found->second.get();
}

bool TcpTransport::connected(int peer) const { return find(peer) != nullptr; }

bool TcpTransport::broken(int peer) const {
  const TcpConnection* connection = find(peer);
  return connection && connection->broken();
}

std::size_t TcpTransport::socket_count(int peer) const {
  const TcpConnection* connection = find(peer);
  return connection ? connection->sockets().size() : 0;
}

std::optional<tcp::Unacknowledged> TcpTransport::oldest_unacknowledged(int peer) const {
  const TcpConnection* connection = find(peer);
  return connection ? connection->out_.oldest_unacknowledged() : std::nullopt;
}

std::uint64_t TcpTransport::progress(int peer) const {
  const TcpConnection* connection = find(peer);
  return connection ? connection->out_.acknowledged_frames() + connection->in_.arrived_frames() : 0;
}

void TcpTransport::ping(int peer) {
  TcpConnection* connection = find(peer);
  if (!connection) return;
  tcp::Frame ask;
  ask.type = tcp::FrameType::ack;
  ask.flags = tcp::kWantAck;
  connection->in_.stamp(ask);
  for (const auto& socket : connection->sockets())
    if (socket->usable() && !socket->has_control()) socket->put_control(ask);
  connection->mark_busy();
}

bool TcpTransport::resume(int peer, std::vector<std::unique_ptr<Stream>> streams) {
  TcpConnection* connection = find(peer);
  if (!connection || !connection->can_resume()) return false;
  for (const auto& socket : connection->sockets())
    if (socket->failure.ok())
      socket->failure = Status(Code::network, socket->addresses + ": replaced by a new connection");
  connection->bury(buried_);
  if (!polling_) bury_dead();
  for (auto& stream : streams) add_socket(peer, std::move(stream));
  return true;
}

void TcpTransport::disconnect(int peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  std::unique_ptr<TcpConnection> connection = std::move(found->second);
  connections_.erase(found);
  --shared_.connections;
  connection->close();
  erase_one(shared_.busy, connection.get());
  gone_.push_back(std::move(connection));
  if (!polling_) bury_dead();
}

void TcpTransport::bury_dead() {
  for (const auto& connection : gone_) {
    for (const auto& socket : connection->sockets()) drop_from_lists(*socket);
  }
  for (const auto& socket : buried_) drop_from_lists(*socket);
  gone_.clear();
  buried_.clear();
}

void TcpTransport::drop_from_lists(Socket& socket) {
  for (auto* list : {&active_, &idle_, &ready_, &watched_writes_}) erase_one(*list, &socket);
}

void TcpTransport::abandon(std::uint32_t communicator) {
  for (const auto& [peer, connection] : connections_) {
    connection->out().abandon(communicator);
    connection->in().abandon(communicator);
  }
}

bool TcpTransport::drained() const {
  for (const auto& [peer, connection] : connections_) {
    if (connection->over()) continue;
    if (connection->broken() && connection->out().pending()) return false;
    for (const auto& socket : connection->sockets())
      if (connection->out().has_work(*socket) || socket->stream->unsent_bytes() > 0) return false;
  }
  return true;
}

std::size_t TcpTransport::segment_bytes(std::uint64_t message_bytes) const {
  return shared_.segment_bytes(message_bytes);
}

bool TcpTransport::poll() {
  TUTTI_CHECK(!polling_);
  polling_ = true;
  ++round_;
  bool any = !shared_.busy.empty() && tend_busy();
  any = read_active() || any;
  if (!ready_.empty() || (!any && !idle_.empty())) any = read_idle() || any;
  for (std::size_t i = 0; i < shared_.busy.size(); ++i) {
    TcpConnection& connection = *shared_.busy[i];
    // What the listener did not answer by itself is acknowledged now: the caller may not come back for long.
    if (connection.in().owes()) connection.flush();
    any = connection.out().tell_sent() || any;
  }
  polling_ = false;
  if (!gone_.empty() || !buried_.empty()) bury_dead();
  return any;
}

bool TcpTransport::tend_busy() {
  bool any = false;
  tended_.clear();
  tended_.swap(shared_.busy);
  for (TcpConnection* connection : tended_) connection->busy_ = false;
  for (TcpConnection* connection : tended_) {
    if (connection->over()) continue;
    if (connection->bury(buried_)) {
      if (connection->broken()) shared_.listener.on_broken(connection->peer(), connection->why_broken());
      else lose(*connection);
      any = true;
    }
    if (connection->over()) continue;
    any = connection->flush() || any;
    any = connection->out().tell_sent() || any;
    if (connection->restless()) connection->mark_busy();
  }
  return any;
}

void TcpTransport::lose(TcpConnection& connection) {
  const Status why = connection.end();
  for (auto& socket : connection.sockets_) buried_.push_back(std::move(socket));
  connection.sockets_.clear();
  shared_.listener.on_lost(connection.peer(), why);
}

bool TcpTransport::read(Socket& socket) {
  std::size_t moved = 0;
  while (moved < kReadBytes && socket.failure.ok() && !socket.connection->over()) {
    const std::uint64_t reads_before = shared_.counters.reads;
    const std::size_t part = socket.connection->in().read(socket);
    moved += part;
    // A short read of a small frame has most likely emptied the socket; in the middle of a large one ask again.
    if (part == 0 || reads_before == shared_.counters.reads || !socket.bulk) break;
  }
  if (moved == 0) return false;
  socket.last_active = round_;
  if (socket.armed_read && round_ - socket.armed_at > kArmedRounds) watch(socket, false);
  return true;
}

bool TcpTransport::read_active() {
  bool any = false;
  for (std::size_t i = 0; i < active_.size();) {
    Socket& socket = *active_[i];
    if (socket.connection->over()) {
      ++i;
      continue;
    }
    if (read(socket)) {
      any = true;
      if (i > 0) std::swap(active_[0], active_[i]);
    } else if (round_ - socket.last_active > kActiveRounds) {
      socket.active = false;
      idle_.push_back(&socket);
      active_[i] = active_.back();
      active_.pop_back();
      continue;
    }
    ++i;
  }
  return any;
}

// Few idle sockets are looked at in turn; of many the loop knows which have something.
bool TcpTransport::read_idle() {
  if (idle_.size() > kAskAbove) {
    for (Socket* socket : idle_) {
      if (!socket->armed_read && !socket->connection->over()) watch(*socket, true);
    }
    loop_.run(Nanoseconds(0));
  } else if (!idle_.empty()) {
    Socket& socket = *idle_[next_idle_++ % idle_.size()];
    if (!socket.connection->over() && read(socket)) {
      activate(socket);
      return true;
    }
  }
  bool any = false;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    Socket& socket = *ready_[i];
    socket.ready = false;
    if (socket.connection->over()) continue;
    any = read(socket) || any;
    activate(socket);
  }
  ready_.clear();
  return any;
}

void TcpTransport::activate(Socket& socket) {
  if (socket.active) return;
  socket.active = true;
  socket.last_active = round_;
  erase_one(idle_, &socket);
  active_.push_back(&socket);
}

void TcpTransport::watch(Socket& socket, bool reading) {
  socket.armed_at = round_;
  if (socket.armed_read == reading) return;
  socket.armed_read = reading;
  if (!reading) return socket.stream->when_readable({});
  socket.stream->when_readable([this, at = &socket] {
    if (std::exchange(at->ready, true)) return;
    ready_.push_back(at);
  });
}

bool TcpTransport::prepare_sleep() {
  bool quiet = ready_.empty() && gone_.empty() && buried_.empty();
  for (std::size_t i = 0; i < shared_.busy.size(); ++i) {
    TcpConnection& connection = *shared_.busy[i];
    if (connection.over()) continue;
    connection.flush();
    if (connection.wants_poll()) quiet = false;
  }
  if (!quiet) return false;
  for (auto* list : {&active_, &idle_}) {
    for (Socket* socket : *list) {
      watch(*socket, true);
      if (!socket->blocked || socket->armed_write || !socket->connection->out().has_work(*socket)) continue;
      socket->armed_write = true;
      socket->stream->when_writable([at = socket] { at->connection->mark_busy(); });
      watched_writes_.push_back(socket);
    }
  }
  return true;
}

void TcpTransport::wake_done() {
  for (Socket* socket : watched_writes_) {
    socket->armed_write = false;
    socket->stream->when_writable({});
  }
  watched_writes_.clear();
}

std::size_t TcpTransport::memory_bytes() const {
  std::size_t bytes = shared_.scratch.size() + shared_.frames.memory_bytes() + shared_.landings.memory_bytes();
  for (const auto& [peer, connection] : connections_) {
    bytes += sizeof(TcpConnection) + tcp::kWindow * sizeof(void*);
    bytes += connection->sockets().size() * sizeof(Socket);
  }
  return bytes;
}

}  // namespace tutti::transport
