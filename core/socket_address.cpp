#include "core/socket_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>

#include <charconv>
#include <cstddef>
#include <cstring>

namespace tutti {
namespace {

Status not_an_address(std::string_view text) {
  return {Code::invalid_argument,
          fmt::format("\"{}\" is not an address: want \"host:port\", \"[v6]:port\" or \"@name\", such as 10.0.0.1:4000",
                      text)};
}

Result<SocketAddress> unix_address(std::string_view text) {
  SocketAddress out;
  auto& to = reinterpret_cast<sockaddr_un&>(out.storage);
  if (text.size() > sizeof to.sun_path)
    return Status(Code::invalid_argument,
                  fmt::format("\"{}\": a Unix socket's name has at most {} characters", text, sizeof to.sun_path - 1));
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, text.data(), text.size());
  to.sun_path[0] = 0;  // abstract: a name in the kernel, no file
  out.bytes = socklen_t(offsetof(sockaddr_un, sun_path) + text.size());
  if (text.size() == 1) out.bytes = offsetof(sockaddr_un, sun_path);  // "@": the kernel picks one
  return out;
}

bool parse_v6(const std::string& host, sockaddr_in6& to) {
  auto percent = host.find('%');
  if (::inet_pton(AF_INET6, host.substr(0, percent).c_str(), &to.sin6_addr) != 1) return false;
  to.sin6_family = AF_INET6;
  if (percent == std::string::npos) return true;
  std::string scope = host.substr(percent + 1);
  to.sin6_scope_id = ::if_nametoindex(scope.c_str());
  if (to.sin6_scope_id != 0) return true;
  auto [end, error] = std::from_chars(scope.data(), scope.data() + scope.size(), to.sin6_scope_id);
  return error == std::errc() && end == scope.data() + scope.size();
}

}  // namespace

Result<HostAndPort> split_address(std::string_view text) {
  HostAndPort out;
  auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return not_an_address(text);
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return not_an_address(text);
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return not_an_address(text);
  }
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size() || out.port < 0 || out.port > 65535)
    return not_an_address(text);
  out.host = host;
  return out;
}

std::string join_address(std::string_view host, int port) {
  return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port)
                                                  : fmt::format("[{}]:{}", host, port);
}

Result<SocketAddress> parse_address(std::string_view text) {
  if (!text.empty() && text[0] == '@') return unix_address(text);
  auto split = split_address(text);
  if (!split) return split.status();
  SocketAddress out;
  auto& v4 = reinterpret_cast<sockaddr_in&>(out.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(out.storage);
  if (::inet_pton(AF_INET, split->host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    out.bytes = sizeof v4;
  } else {
    out.storage = {};
    if (!parse_v6(split->host, v6)) return not_an_address(text);
    out.bytes = sizeof v6;
  }
  out.set_port(split->port);
  return out;
}

int SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return 0;
}

void SocketAddress::set_port(int port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(std::uint16_t(port));
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(std::uint16_t(port));
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return bytes == other.bytes && std::memcmp(&storage, &other.storage, bytes) == 0;
}

std::string to_text(const SocketAddress& address) {
  char buffer[INET6_ADDRSTRLEN] = "";
  if (address.family() == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr, buffer, sizeof buffer);
    return fmt::format("{}:{}", buffer, address.port());
  }
  if (address.family() == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, buffer, sizeof buffer);
    char scope[IF_NAMESIZE] = "";
    if (v6.sin6_scope_id == 0) return fmt::format("[{}]:{}", buffer, address.port());
    if (!::if_indextoname(v6.sin6_scope_id, scope))
      return fmt::format("[{}%{}]:{}", buffer, v6.sin6_scope_id, address.port());
    return fmt::format("[{}%{}]:{}", buffer, scope, address.port());
  }
  const auto& local = reinterpret_cast<const sockaddr_un&>(address.storage);
  constexpr std::size_t kStart = offsetof(sockaddr_un, sun_path);
  if (address.bytes <= kStart) return "@";
  return fmt::format("@{}", std::string_view(local.sun_path + 1, address.bytes - kStart - 1));
}

}  // namespace tutti
