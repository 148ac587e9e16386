#pragma once
// A socket's address as a value: IPv4, IPv6 or abstract Unix, to and from the text of core/net.h. Numeric only; no
// look-ups.
#include <sys/socket.h>
#include <sys/un.h>

#include <tutti/status.h>
#include <string>
#include <string_view>

namespace tutti {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  int family() const { return storage.ss_family; }
  int port() const;  // 0 for Unix
  void set_port(int port);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  bool operator==(const SocketAddress& other) const;
};

// "10.0.0.1:4000", "[fe80::1%eth0]:4000", "@name". invalid_argument, naming the text and what was wanted.
Result<SocketAddress> parse_address(std::string_view text);
std::string to_text(const SocketAddress& address);
// "host:port" or "[v6]:port" into its two parts, whatever the host looks like. invalid_argument.
struct HostAndPort {
  std::string host;
  int port = 0;
};
Result<HostAndPort> split_address(std::string_view text);
// The reverse: brackets where the host has colons.
std::string join_address(std::string_view host, int port);

}  // namespace tutti
