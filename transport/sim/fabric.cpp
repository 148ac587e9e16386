#include "transport/sim/fabric.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "core/check.h"
#include "core/errno_text.h"
#include "core/socket_address.h"
#include "transport/sim/sim_loop.h"
#include "transport/sim/wire.h"

namespace tutti::sim {

namespace {

// Linux: net.ipv4.ip_local_port_range
constexpr int kFirstEphemeralPort = 32768;
constexpr int kLastEphemeralPort = 60999;

bool same_place(const Address& bound, const Address& wanted) {
  if (bound.local() || wanted.local()) return bound.name == wanted.name;
  return bound.port == wanted.port && (bound.any() || wanted.any() || bound.ip == wanted.ip);
}

bool numeric_ip(const std::string& ip) {
  if (ip.find(':') != std::string::npos) return ip.find_first_not_of("0123456789abcdefABCDEF:.") == std::string::npos;
  return std::count(ip.begin(), ip.end(), '.') == 3 && ip.find_first_not_of("0123456789.") == std::string::npos;
}

}  // namespace

std::string Address::text() const { return local() ? name : join_address(ip, port); }

Result<Address> Address::parse(const std::string& text) {
  Address address;
  if (!text.empty() && text.front() == '@') {
    address.name = text;
    return address;
  }
  const Result<HostAndPort> parts = split_address(text);
  if (!parts.ok()) return parts.status();
  if (!numeric_ip(parts->host)) {
    return Status(Code::invalid_argument, fmt::format("\"{}\": want a numeric address", text));
  }
  address.ip = parts->host;
  address.port = parts->port;
  return address;
}

TimePoint Link::carry(TimePoint now, std::size_t bytes, Dice& dice) {
  TimePoint left = now;
  if (options.bytes_per_second > 0) {
    const double nanoseconds = static_cast<double>(bytes) * 1e9 / options.bytes_per_second;
    left = std::max(now, from->free_at) + Nanoseconds{static_cast<std::int64_t>(nanoseconds)};
    from->free_at = left;
  }
  TimePoint arrival = left + options.latency + dice.up_to(options.jitter);
  while (dice.chance(options.loss)) arrival += options.loss_stall;
  return arrival;
}

Host& Fabric::add_host(const HostOptions& host_options) {
  const int h = host_count();
  TUTTI_CHECK(h < 4096 && host_options.cards >= 1 && host_options.cards <= 16);
  Host& host = hosts_.emplace_back();
  host.number = h;
  host.name = fmt::format("host{}", h);
  host.next_port = kFirstEphemeralPort + static_cast<int>(dice.below(kLastEphemeralPort - kFirstEphemeralPort));
  host.loopback = {.number = cards_++, .host = h, .ipv4 = "127.0.0.1", .ipv6 = "::1"};
  host.unix_card = {.number = cards_++, .host = h};
  for (int r = 0; r < host_options.cards; ++r) {
    Card& card = host.cards.emplace_back();
    card.number = cards_++;
    card.host = h;
    if (host_options.ipv4) card.ipv4 = fmt::format("10.{}.{}.1", 16 * r + h / 256, h % 256);
    if (host_options.ipv6) card.ipv6 = fmt::format("fd00:{:x}::{:x}", r, h + 1);
  }
  return host;
}

Link& Fabric::link(Card& from, Card& to) {
  const auto [place, made] = links_.try_emplace({from.number, to.number});
  Link& link = place->second;
  if (made) {
    Host& host_from = host(from.host);
    const bool loopback = &from == &host_from.loopback;
    link.options = loopback ? options.loopback : &from == &host_from.unix_card ? options.unix_socket : options.network;
    link.from = &from;
    link.from_dark = &host_from.dark;
    link.to_dark = &host(to.host).dark;
  }
  return link;
}

void Fabric::each_link(int a, int b, const std::function<void(Link&)>& change) {
  for (Card& one : host(a).cards) {
    for (Card& other : host(b).cards) {
      change(link(one, other));
      if (a != b) change(link(other, one));
    }
  }
}

std::pair<Card*, Card*> Fabric::rail(int a, int b, int number) {
  const auto n = static_cast<std::size_t>(number);
  if (host(a).cards.size() <= n || host(b).cards.size() <= n) return {nullptr, nullptr};
  return {&host(a).cards[n], &host(b).cards[n]};
}

Result<Route> Fabric::route(Host& from, const Address& to) {
  const auto inside = [&](Card& card, const std::string& ip) {
    Link& loop = link(card, card);
    return Route{&from, &loop, &loop, ip};
  };
  if (to.local()) return inside(from.unix_card, {});
  if (to.loopback()) return inside(from.loopback, to.ip.find(':') == std::string::npos ? "127.0.0.1" : "::1");
  for (Host& target : hosts_) {
    for (std::size_t r = 0; r < target.cards.size(); ++r) {
      Card& card = target.cards[r];
      const bool ipv4 = card.ipv4 == to.ip;
      if (!ipv4 && card.ipv6 != to.ip) continue;
      if (&target == &from) return inside(from.loopback, to.ip);
      Card& mine = from.cards[r < from.cards.size() ? r : 0];
      const std::string& source = ipv4 ? mine.ipv4 : mine.ipv6;
      if (source.empty()) break;      // no address of that family here
      return Route{&target, &link(mine, card), &link(card, mine), source};
    }
  }
  return Status(Code::network, fmt::format("connect to {}: {}", to.text(), errno_text(EHOSTUNREACH)));
}

Result<std::vector<std::string>> Fabric::resolve(const std::string& host_and_port) {
  const Result<HostAndPort> parts = split_address(host_and_port);
  if (!parts.ok()) return parts.status();
  if (numeric_ip(parts->host)) return std::vector<std::string>{join_address(parts->host, parts->port)};
  if (parts->host == "localhost") return std::vector<std::string>{join_address("127.0.0.1", parts->port)};
  for (const Host& host : hosts_) {
    if (host.name != parts->host) continue;
    std::vector<std::string> found;
    for (const Card& card : host.cards) {
      if (!card.ipv4.empty()) found.push_back(join_address(card.ipv4, parts->port));
      if (!card.ipv6.empty()) found.push_back(join_address(card.ipv6, parts->port));
    }
    return found;
  }
  return Status(Code::network, fmt::format("look up host {}: name not known", parts->host));
}

bool Fabric::taken(const Host& host, int port) const {
  return std::any_of(host.bindings.begin(), host.bindings.end(),
                     [port](const auto& binding) { return binding->address.port == port; });
}

int Fabric::ephemeral_port(Host& host) {
  for (int tries = kFirstEphemeralPort; tries <= kLastEphemeralPort; ++tries) {
    const int port = host.next_port;
    host.next_port = port == kLastEphemeralPort ? kFirstEphemeralPort : port + 1;
    if (!taken(host, port)) return port;
  }
  return 0;
}

Status Fabric::bind(Host& host, const std::shared_ptr<Binding>& binding) {
  Address& address = binding->address;
  if (!address.local()) {
    bool here = address.any() || address.loopback();
    for (const Card& card : host.cards) here = here || card.ipv4 == address.ip || card.ipv6 == address.ip;
    if (!here) return Status(Code::network, fmt::format("listen on {}: {}", address.text(), errno_text(EADDRNOTAVAIL)));
    if (address.port == 0) address.port = ephemeral_port(host);
    if (address.port == 0) return Status(Code::out_of_resources, "listen: no free port on " + host.name);
  }
  for (const auto& other : host.bindings) {
    if (same_place(other->address, address)) {
      return Status(Code::network, fmt::format("listen on {}: {}; process {} of {} holds it", address.text(),
                                               errno_text(EADDRINUSE), other->loop->process(), host.name));
    }
  }
  host.bindings.push_back(binding);
  return {};
}

void Fabric::unbind(Host& host, const Binding* binding) {
  std::erase_if(host.bindings, [binding](const auto& held) { return held.get() == binding; });
}

std::shared_ptr<Binding> Fabric::listener(Host& host, const Address& to) {
  // A binding to the very address comes before one to any.
  std::shared_ptr<Binding> found;
  for (const auto& binding : host.bindings) {
    if (to.local() ? binding->address.name != to.name : binding->address.local()) continue;
    if (!to.local() && binding->address.port != to.port) continue;
    const bool ipv4_only = binding->address.ip == "0.0.0.0";
    if (to.local() || binding->address.ip == to.ip) return binding;
    if (binding->address.any() && !(ipv4_only && to.ip.find(':') != std::string::npos)) found = binding;
  }
  return found;
}

std::uint64_t Fabric::enter(Wire* wire) {
  wires_.emplace(++last_wire_, wire);
  return last_wire_;
}

std::vector<std::shared_ptr<Wire>> Fabric::wires() const {
  std::vector<std::shared_ptr<Wire>> all;
  for (const auto& [number, wire] : wires_) {
    if (auto alive = wire->weak_from_this().lock()) all.push_back(std::move(alive));
  }
  return all;
}

std::shared_ptr<Wire> Fabric::wire(std::uint64_t number) const {
  const auto place = wires_.find(number);
  return place == wires_.end() ? nullptr : place->second->weak_from_this().lock();
}

}  // namespace tutti::sim
