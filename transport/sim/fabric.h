#pragma once
// The physical world of a simulation: hosts, their network cards, the links between cards, who listens where, and which
// wires (connections) exist. Carries no bytes itself and runs no process.
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/net.h"
#include "transport/sim/dice.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/options.h"

namespace tutti::sim {

class SimLoop;
class Wire;

// "10.0.0.1:4000", "[fd00:0::1]:4000", "@name". IPv6 text is kept as it was written.
struct Address {
  std::string ip;        // without brackets; empty for Unix sockets
  int port = 0;
  std::string name;      // with its @

  bool local() const { return !name.empty(); }
  bool loopback() const { return ip.rfind("127.", 0) == 0 || ip == "::1" || any(); }   // "any": when connecting
  bool any() const { return ip == "0.0.0.0" || ip == "::"; }
  std::string text() const;
  static Result<Address> parse(const std::string& text);
};

// A network card; loopback and the Unix sockets of a host are cards of their own that reach only themselves.
struct Card {
  int number = 0;        // in the world
  int host = 0;
  std::string ipv4, ipv6;
  TimePoint free_at{};   // when the last byte given to it will have left
};

// One direction from a card to a card.
struct Link {
  LinkOptions options;
  Card* from = nullptr;
  const bool* from_dark = nullptr;
  const bool* to_dark = nullptr;
  bool blackholed = false;
  bool down() const { return blackholed || *from_dark || *to_dark; }
  // When a segment that is given to the card at `now` arrives.
  TimePoint carry(TimePoint now, std::size_t bytes, Dice& dice);
};

// Somebody listens. Shared by the acceptor and what is on its way to it.
struct Binding {
  SimLoop* loop = nullptr;
  Address address;
  Network::OnAccept on_accept;
  bool open = true;
};

struct Host {
  int number = 0;
  std::string name;                       // "host3"
  std::deque<Card> cards;
  Card loopback, unix_card;
  bool dark = false;                      // without power: nothing comes or goes
  std::vector<std::shared_ptr<Binding>> bindings;
  int next_port = 32768;
};

// How to get from a host to an address.
struct Route {
  Host* target = nullptr;
  Link* there = nullptr;
  Link* back = nullptr;
  std::string source_ip;                  // empty for Unix sockets
};

class Fabric {
 public:
  Fabric(std::uint64_t seed, const SimOptions& world_options) : options(world_options), dice(seed) {}

  Host& add_host(const HostOptions& host_options);
  Host& host(int number) { return hosts_.at(static_cast<std::size_t>(number)); }
  int host_count() const { return static_cast<int>(hosts_.size()); }

  Link& link(Card& from, Card& to);
  // Both directions and all cards between two hosts.
  void each_link(int a, int b, const std::function<void(Link&)>& change);
  // A card per rail at both ends, or null where either has no such card.
  std::pair<Card*, Card*> rail(int a, int b, int number);

  Result<Route> route(Host& from, const Address& to);
  // Names and numbers: "host3:80", "localhost:80", "10.0.3.1:80".
  Result<std::vector<std::string>> resolve(const std::string& host_and_port);

  // Port 0 gets a free one. The error names who listens there.
  Status bind(Host& host, const std::shared_ptr<Binding>& binding);
  void unbind(Host& host, const Binding* binding);
  std::shared_ptr<Binding> listener(Host& host, const Address& to);
  int ephemeral_port(Host& host);

  // Wires enter when made and leave when destroyed.
  std::uint64_t enter(Wire* wire);
  void leave(std::uint64_t wire) { wires_.erase(wire); }
  // Lives, in order of making. The callers may close wires while they hold these.
  std::vector<std::shared_ptr<Wire>> wires() const;
  std::shared_ptr<Wire> wire(std::uint64_t number) const;    // null: gone

  EventQueue events;
  const SimOptions options;
  Dice dice;

 private:
  bool taken(const Host& host, int port) const;

  std::deque<Host> hosts_;
  int cards_ = 0;
  std::map<std::pair<int, int>, Link> links_;
  std::map<std::uint64_t, Wire*> wires_;
  std::uint64_t last_wire_ = 0;
};

}  // namespace tutti::sim
