#include "transport/sim/sim_network.h"

#include <fmt/core.h>

#include <cerrno>
#include <utility>

#include "core/errno_text.h"
#include "transport/sim/sim_loop.h"
#include "transport/sim/wire.h"

namespace tutti::sim {

SimAcceptor::~SimAcceptor() {
  binding_->open = false;
  fabric_.unbind(host_, binding_.get());
}

Attempt::Attempt(Fabric& fabric, SimLoop& loop, Host& host, Network::OnConnect on_connect)
    : EventTarget(fabric.events), fabric_(fabric), loop_(loop.weak_from_this()), host_(host),
      on_connect_(std::move(on_connect)) {}

Attempt::~Attempt() {
  if (wire_) wire_->close(0);
}

void Attempt::start(const std::string& address) {
  const Result<Address> to = Address::parse(address);
  if (!to.ok()) return end(to.status());
  to_ = *to;
  const Result<Route> route = fabric_.route(host_, to_);
  if (!route.ok()) return end(route.status());
  route_ = *route;
  if (!to_.local()) {
    fabric_.events.schedule(fabric_.events.now() + fabric_.options.connect_timeout, shared_from_this(), kTimeout);
  }
  send_syn();
}

void Attempt::send_syn() {
  fabric_.events.schedule(route_.there->carry(fabric_.events.now(), 0, fabric_.dice), shared_from_this(), kSyn);
}

void Attempt::fire(std::uint32_t what) {
  if (ended_) return;
  const auto loop = loop_.lock();
  if (cancelled_ || !loop || !loop->alive()) {
    ended_ = true;
    if (wire_) wire_->close(0);
    return;
  }
  switch (what) {
    case kSyn: return syn_arrives();
    case kAnswer: return answer_arrives();
    default: return end(Status(Code::network, fmt::format("connect to {}: {}", to_.text(), errno_text(ETIMEDOUT))));
  }
}

void Attempt::syn_arrives() {
  if (route_.there->down()) {
    fabric_.events.schedule(fabric_.events.now() + retry_, shared_from_this(), kSyn);
    retry_ *= 2;
    return;
  }
  if (!wire_) {
    const auto binding = fabric_.listener(*route_.target, to_);
    refused_ = !binding;
    if (binding) {
      Address source;
      source.ip = route_.source_ip;
      if (!to_.local()) source.port = fabric_.ephemeral_port(host_);
      const std::string client = to_.local() ? "@" : source.text();      // Unix clients have no name
      wire_ = std::make_shared<Wire>(fabric_, route_, loop_.lock().get(), client, binding->loop, to_.text(),
                                     to_.local());
      binding->loop->accepted(binding, std::make_unique<SimStream>(wire_, 1));
    }
  }
  fabric_.events.schedule(route_.back->carry(fabric_.events.now(), 0, fabric_.dice), shared_from_this(), kAnswer);
}

void Attempt::answer_arrives() {
  if (route_.back->down()) {
    fabric_.events.schedule(fabric_.events.now() + retry_, shared_from_this(), kSyn);
    retry_ *= 2;
    return;
  }
  if (!refused_) return end({});
  end(Status(Code::network, fmt::format("connect to {}: {}", to_.text(), errno_text(ECONNREFUSED))));
}

void Attempt::end(Status status) {
  ended_ = true;
  status_ = std::move(status);
  if (const auto loop = loop_.lock()) loop->connected(shared_from_this());
}

void Attempt::cancel() {
  cancelled_ = true;
  const auto dying = std::move(on_connect_);
  on_connect_ = nullptr;
  if (wire_) wire_->close(0);
}

bool Attempt::call() {
  if (cancelled_) return false;
  cancelled_ = true;                         // exactly once
  const auto on_connect = std::move(on_connect_);
  on_connect_ = nullptr;
  if (!status_.ok()) {
    if (wire_) wire_->close(0);
    on_connect(status_);
  } else {
    on_connect(Result<std::unique_ptr<Stream>>(std::make_unique<SimStream>(std::exchange(wire_, nullptr), 0)));
  }
  return true;
}

std::string Attempt::describe(std::uint32_t what) const {
  const char* names[] = {"SYN arrives", "answer arrives", "times out"};
  return fmt::format("connect to {}: {}{}", to_.text(), names[what], ended_ || cancelled_ ? " (over)" : "");
}

Result<std::unique_ptr<Acceptor>> SimNetwork::listen(const std::string& address, OnAccept on_accept) {
  if (!loop_.alive()) return Status(Code::aborted, fmt::format("listen on {}: the process was killed", address));
  const Result<Address> parsed = Address::parse(address);
  if (!parsed.ok()) return parsed.status();
  auto binding = std::make_shared<Binding>(Binding{&loop_, *parsed, std::move(on_accept)});
  const Status bound = fabric_.bind(host_, binding);
  if (!bound.ok()) return bound;
  return Result<std::unique_ptr<Acceptor>>(std::make_unique<SimAcceptor>(fabric_, host_, std::move(binding)));
}

std::shared_ptr<void> SimNetwork::connect(const std::string& address, OnConnect on_connect) {
  auto attempt = std::make_shared<Attempt>(fabric_, loop_, host_, std::move(on_connect));
  attempt->start(address);
  return {attempt.get(), [attempt](void*) { attempt->cancel(); }};
}

std::vector<std::string> SimNetwork::local_addresses(bool loopback) {
  std::vector<std::string> addresses;
  for (const Card& card : host_.cards) {
    if (!card.ipv4.empty()) addresses.push_back(card.ipv4);
  }
  for (const Card& card : host_.cards) {
    if (!card.ipv6.empty()) addresses.push_back(card.ipv6);
  }
  if (loopback) addresses.push_back("127.0.0.1");
  return addresses;
}

}  // namespace tutti::sim
