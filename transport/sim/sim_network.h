#pragma once
// How a simulated process listens and connects. See core/net.h for the contract.
//
// A connect is answered by the target's host, not its process: a paused process still gets connections, a dead one
// refuses them, and behind a black hole SYNs are sent again after 1, 2, 4... seconds until connect_timeout. Both are
// Code::network.
#include <memory>
#include <string>
#include <vector>

#include "core/net.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/fabric.h"

namespace tutti::sim {

class SimLoop;
class Wire;

class SimAcceptor final : public Acceptor {
 public:
  SimAcceptor(Fabric& fabric, Host& host, std::shared_ptr<Binding> binding)
      : fabric_(fabric), host_(host), binding_(std::move(binding)) {}
  ~SimAcceptor() override;
  std::string address() const override { return binding_->address.text(); }
  int port() const override { return binding_->address.port; }

 private:
  Fabric& fabric_;
  Host& host_;
  std::shared_ptr<Binding> binding_;
};

// One connect on its way.
class Attempt final : public EventTarget, public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(Fabric& fabric, SimLoop& loop, Host& host, Network::OnConnect on_connect);
  ~Attempt() override;
  void start(const std::string& address);
  void cancel();
  bool call();                               // from SimLoop::run; false: cancelled

  void fire(std::uint32_t what) override;
  std::string describe(std::uint32_t what) const override;

 private:
  enum What : std::uint32_t { kSyn, kAnswer, kTimeout };

  void send_syn();
  void syn_arrives();
  void answer_arrives();
  void end(Status status);

  Fabric& fabric_;
  std::weak_ptr<SimLoop> loop_;
  Host& host_;
  Network::OnConnect on_connect_;
  Address to_;
  Route route_;
  Nanoseconds retry_ = seconds{1};           // Linux: TCP_TIMEOUT_INIT
  bool cancelled_ = false;
  bool ended_ = false;
  bool refused_ = false;
  Status status_;
  std::shared_ptr<Wire> wire_;               // exists since the SYN arrived
};

class SimNetwork final : public Network {
 public:
  SimNetwork(Fabric& fabric, Host& host, SimLoop& loop) : fabric_(fabric), host_(host), loop_(loop) {}
  Result<std::unique_ptr<Acceptor>> listen(const std::string& address, OnAccept on_accept) override;
  std::shared_ptr<void> connect(const std::string& address, OnConnect on_connect) override;
  std::vector<std::string> local_addresses(bool loopback) override;
  Result<std::vector<std::string>> resolve(const std::string& host_and_port) override {
    return fabric_.resolve(host_and_port);
  }

 private:
  Fabric& fabric_;
  Host& host_;
  SimLoop& loop_;
};

}  // namespace tutti::sim
