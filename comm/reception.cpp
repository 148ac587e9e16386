#include "comm/reception.h"

#include <algorithm>

#include "comm/tls_stream.h"
#include "core/log.h"

namespace tutti::comm {
namespace {

// Handshakes under way at once; more are dropped (a rank tries again). Each holds a few hundred bytes and a descriptor.
constexpr int kMostGreetings = 4096;

}  // namespace

Reception::Reception(Loop& loop, const JobKey& key, int own_rank, OnPeer on_peer)
    : loop_(loop), key_(key), own_rank_(own_rank), on_peer_(std::make_shared<OnPeer>(std::move(on_peer))) {}

Status Reception::listen(const std::string& address) {
  auto acceptor =
      loop_.network().listen(address, [this](std::unique_ptr<Stream> stream) { accept(std::move(stream)); });
  if (!acceptor) return acceptor.status();
  acceptors_.push_back(std::move(*acceptor));
  return {};
}

std::vector<std::string> Reception::addresses() const {
  std::vector<std::string> out;
  for (const auto& acceptor : acceptors_) out.push_back(acceptor->address());
  return out;
}

int Reception::port() const {
  for (const auto& acceptor : acceptors_)
    if (acceptor->port() != 0) return acceptor->port();
  return 0;
}

void Reception::accept(std::unique_ptr<Stream> stream) {
  if (greeting_ >= kMostGreetings) {
    ++strangers_;
    last_stranger_ = stream->remote_address() + ": too many connections at once";
    return;
  }
  greetings_.spawn(greet(std::move(stream)));
}

Task<void> Reception::greet(std::unique_ptr<Stream> stream) {
  ++greeting_;
  const TimePoint deadline = loop_.now() + kHandshakeLimit;
  ChannelTerms terms;
  auto shaking = handshake_accept(loop_, *stream, key_, own_rank_, deadline, &terms);
  auto hello = co_await shaking;
  if (hello && terms.encrypt && !is_unix(*stream)) {
    auto securing = secure(loop_, std::move(stream), terms.secret, TlsRole::server, deadline);
    auto secured = co_await securing;
    if (secured) stream = std::move(*secured);
    else hello = secured.status();
  }
  --greeting_;
  if (hello) {
    greeted_.push_back({*hello, std::move(stream)});
    if (!delivery_)
      delivery_ = loop_.at(loop_.now(), [this] { deliver(); });  // not from here: it may destroy this task
    co_return;
  }
  stream.reset();      // now: this task's frame may stay until the next one comes
  ++strangers_;
  last_stranger_ = hello.status().text();
  // Another version is worth a word: somebody meant to be with us.
  log::write(last_stranger_.find("wire version") != std::string::npos ? log::Level::warning : log::Level::debug,
             "turned away " + last_stranger_);
}

void Reception::deliver() {
  delivery_ = nullptr;
  std::deque<Peer> batch = std::move(greeted_);
  greeted_.clear();
  std::shared_ptr<OnPeer> on_peer = on_peer_;
  for (Peer& peer : batch) {
    if (on_peer.use_count() == 1) return;  // destroyed by the one before
    (*on_peer)(peer.hello, std::move(peer.stream));
  }
}

}  // namespace tutti::comm
