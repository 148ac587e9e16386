#pragma once
// Sockets behind core/net.h: TCP over IPv4 and IPv6, and abstract Unix sockets. Everything is non-blocking, closed on
// exec and /dev/null in a child of fork(), closed on destruction, and never raises SIGPIPE. Kernel buffer sizes are left alone.
#include <memory>

#include "core/config.h"
#include "core/net.h"
#include "core/socket_address.h"

namespace tutti {

class PosixLoop;
class Poller;

class PosixNetwork final : public Network {
 public:
  PosixNetwork(PosixLoop& loop, const Settings& settings);
  ~PosixNetwork() override;

  Result<std::unique_ptr<Acceptor>> listen(const std::string& address, OnAccept on_accept) override;
  std::shared_ptr<void> connect(const std::string& address, OnConnect on_connect) override;
  std::vector<std::string> local_addresses(bool loopback) override;
  Result<std::vector<std::string>> resolve(const std::string& host_and_port) override;

 private:
  Result<int> bind_and_listen(SocketAddress address, const std::string& text);

  PosixLoop& loop_;
  const std::string interface_;
  const PortRange ports_;
};

}  // namespace tutti
