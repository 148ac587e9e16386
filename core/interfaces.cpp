#include "core/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "core/socket_address.h"

namespace tutti {
namespace {

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> starts) {
  return std::any_of(starts.begin(), starts.end(), [&](auto s) { return text.substr(0, s.size()) == s; });
}

bool is_v6(std::string_view host) { return host.find(':') != std::string_view::npos; }
bool is_link_local(std::string_view host) { return starts_with_any(host, {"fe80:", "169.254."}); }
bool is_virtual(std::string_view name) {
  return starts_with_any(name, {"docker", "veth", "virbr", "br-", "cni", "flannel", "cali", "lxc", "lxd", "podman",
                                "vmnet", "tun", "tap", "wg"});
}

using Bits = std::array<std::uint8_t, 16>;
// Network bytes of a numeric host; how many are used, 0 when it is none.
int bytes_of(std::string host, Bits& out) {
  host = host.substr(0, host.find('%'));
  if (::inet_pton(AF_INET, host.c_str(), out.data()) == 1) return 4;
  return ::inet_pton(AF_INET6, host.c_str(), out.data()) == 1 ? 16 : 0;
}

struct Pattern {
  std::string name;  // without the star
  bool prefix = false;
  Bits network{};
  int network_bytes = 0, network_bits = 0;  // 0 bytes: by name

  bool matches(const InterfaceAddress& address) const {
    if (network_bytes == 0)
      return prefix ? address.interface.compare(0, name.size(), name) == 0 : address.interface == name;
    Bits host{};
    if (bytes_of(address.host, host) != network_bytes) return false;
    for (int bit = 0; bit < network_bits; ++bit)
      if (((host[std::size_t(bit / 8)] ^ network[std::size_t(bit / 8)]) >> (7 - bit % 8)) & 1) return false;
    return true;
  }
};

Result<Pattern> parse_pattern(std::string_view text) {
  Pattern out;
  auto bad = [&] {
    return Status(
        Code::invalid_argument,
        fmt::format("\"{}\" is not an interface: want a name, a prefix as in ib*, or a network as in 10.1.0.0/16",
                    text));
  };
  auto slash = text.find('/');
  if (slash != std::string_view::npos) {
    out.network_bytes = bytes_of(std::string(text.substr(0, slash)), out.network);
    std::string_view bits = text.substr(slash + 1);
    auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), out.network_bits);
    if (out.network_bytes == 0 || error != std::errc() || end != bits.data() + bits.size()) return bad();
    if (out.network_bits < 0 || out.network_bits > out.network_bytes * 8) return bad();
    return out;
  }
  if (text.empty()) return bad();
  out.prefix = text.back() == '*';
  out.name = text.substr(0, text.size() - out.prefix);
  if (out.name.find_first_of("*^ ") != std::string::npos) return bad();
  return out;
}

Result<std::vector<Pattern>> parse_rule(std::string_view rule) {
  std::vector<Pattern> out;
  while (!rule.empty()) {
    auto comma = rule.find(',');
    auto pattern = parse_pattern(rule.substr(0, comma));
    if (!pattern) return pattern.status();
    out.push_back(*pattern);
    if (comma != std::string_view::npos && comma + 1 == rule.size()) return parse_pattern("").status();
    rule.remove_prefix(comma == std::string_view::npos ? rule.size() : comma + 1);
  }
  return out;
}

// Lower is better.
int order_of(const InterfaceAddress& address) {
  return (address.loopback ? 8 : 0) + (is_virtual(address.interface) ? 2 : 0) + (is_v6(address.host) ? 1 : 0);
}

std::string list_of(const std::vector<InterfaceAddress>& all) {
  std::string out;
  for (const auto& a : all) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", a.interface, a.host);
  return out.empty() ? "none" : out;
}

}  // namespace

Status check_interface_rule(std::string_view rule) {
  const bool exclude = !rule.empty() && rule[0] == '^';
  const auto patterns = parse_rule(rule.substr(exclude ? 1 : 0));
  if (!patterns) return patterns.status();
  return exclude && patterns->empty() ? parse_pattern("").status() : Status();
}

Result<std::vector<std::string>> choose_addresses(const std::vector<InterfaceAddress>& all, std::string_view rule,
                                                  bool loopback) {
  if (Status status = check_interface_rule(rule); !status) return status;
  const bool exclude = !rule.empty() && rule[0] == '^';
  const auto patterns = parse_rule(rule.substr(exclude ? 1 : 0));
  std::vector<InterfaceAddress> chosen;
  for (const auto& address : all) {
    bool named = std::any_of(patterns->begin(), patterns->end(), [&](const Pattern& p) { return p.matches(address); });
    bool by_rule = exclude ? !named : patterns->empty() || named;
    // A loopback that the rule names is wanted, whoever asks.
    bool wanted = address.loopback ? loopback || (named && !exclude) : true;
    if (address.up && wanted && by_rule) chosen.push_back(address);
  }
  if (chosen.empty() && !rule.empty())
    return Status(Code::invalid_argument, "no address of this host matches; it has: " + list_of(all));
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
  bool only_link_local =
      std::all_of(chosen.begin(), chosen.end(), [](const auto& a) { return a.loopback || is_link_local(a.host); });
  std::vector<std::string> hosts;
  for (const auto& a : chosen)
    if (only_link_local || !is_link_local(a.host)) hosts.push_back(a.host);
  return hosts;
}

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> out;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return out;
  for (ifaddrs* at = list; at; at = at->ifa_next) {
    if (!at->ifa_addr) continue;
    int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address;
    address.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, at->ifa_addr, address.bytes);
    address.set_port(0);
    std::string host = to_text(address);
    host = family == AF_INET ? host.substr(0, host.rfind(':')) : host.substr(1, host.rfind(']') - 1);
    out.push_back({at->ifa_name, host, (at->ifa_flags & IFF_UP) != 0, (at->ifa_flags & IFF_LOOPBACK) != 0});
  }
  ::freeifaddrs(list);
  return out;
}

}  // namespace tutti
