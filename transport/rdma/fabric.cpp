#include "transport/rdma/fabric.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transport/rdma/bytes.h"

namespace tutti::transport::rdma {
namespace {

constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool same_prefix(const Gid& a, const Gid& b, int bits) {
  const auto whole = std::size_t(bits / 8);
  if (std::memcmp(a.address.data(), b.address.data(), whole) != 0) return false;
  const int rest = bits % 8;
  return rest == 0 || ((a.address[whole] ^ b.address[whole]) >> (8 - rest)) == 0;
}

// How well two GIDs suit each other: 0 not at all, 1 on one link perhaps, 2 by a router perhaps, 3 one subnet.
int fit(const Offered& a, const Gid& x, const Offered& b, const Gid& y) {
  if (a.link != b.link || x.kind != y.kind) return 0;
  if (a.link == LinkLayer::infiniband) return same_prefix(x, y, 64) ? 3 : 0;
  if (x.ipv4() != y.ipv4() || x.link_local() != y.link_local()) return 0;
  if (x.link_local()) return 1;
  const int bits = std::min(x.prefix_bits, y.prefix_bits);
  if (bits > 0) return same_prefix(x, y, bits) ? 3 : 2;
  return same_prefix(x, y, x.ipv4() ? 120 : 64) ? 3 : 2;
}

struct Match {
  int fit = 0;
  std::size_t gid[2] = {0, 0};
};
Match best_match(const Offered& a, const Offered& b) {
  Match best;
  for (std::size_t i = 0; i < a.gids.size(); ++i)
    for (std::size_t k = 0; k < b.gids.size(); ++k)
      if (const int now = fit(a, a.gids[i], b, b.gids[k]); now > best.fit) best = {now, {i, k}};
  return best;
}

// "mlx5_0", "mlx5_*", either with ":1" behind it.
struct DeviceName {
  std::string_view name, port;
  bool prefix = false;
  explicit DeviceName(std::string_view text) : name(text.substr(0, text.find(':'))) {
    if (name.size() < text.size()) port = text.substr(name.size() + 1);
    prefix = name.ends_with('*');
    if (prefix) name.remove_suffix(1);
  }
  bool good() const { return (prefix || !name.empty()) && name.find_first_of("*^ ") == name.npos && port.find_first_not_of("0123456789") == port.npos; }
  bool matches(const Port& p) const {
    return (port.empty() || port == std::to_string(p.number)) && (prefix ? p.device.starts_with(name) : p.device == name);
  }
};

}  // namespace

bool Gid::zero() const {
  return std::all_of(address.begin() + 8, address.end(), [](auto b) { return b == 0; });
}
bool Gid::ipv4() const { return std::memcmp(address.data(), kMapped, sizeof kMapped) == 0; }
bool Gid::link_local() const { return address[0] == 0xfe && (address[1] & 0xc0) == 0x80; }

std::string Gid::text() const {
  char out[INET6_ADDRSTRLEN] = "";
  if (ipv4()) inet_ntop(AF_INET, address.data() + 12, out, sizeof out);
  else inet_ntop(AF_INET6, address.data(), out, sizeof out);
  return out;
}

bool parse_gid_address(std::string_view text, std::array<std::uint8_t, 16>& address) {
  return inet_pton(AF_INET6, std::string(text).c_str(), address.data()) == 1;
}

std::string describe(const Port& port, int only_gid_index) {
  const char* const link = port.link == LinkLayer::infiniband ? "InfiniBand" : port.link == LinkLayer::ethernet ? "Ethernet" : "another link layer";
  const auto gids = preferred_gids(port, only_gid_index);
  return fmt::format("{} ({}, {}, {:g} Gb/s, {}, {})", port.name(), link, port.state, port.gbps, port.numa < 0 ? "no NUMA node" : fmt::format("NUMA node {}", port.numa),
                     gids.empty() ? "no GID" : gids[0].text());
}

std::string why_unusable(const Port& port) {
  if (!port.connects) return "has no reliable connections (such as AWS's EFA; tutti needs InfiniBand or RoCE)";
  if (port.link == LinkLayer::other) return "is neither InfiniBand nor Ethernet";
  if (!port.active) return fmt::format("is not active but {}: check the cable, the switch{}", port.state, port.link == LinkLayer::infiniband ? ", the subnet manager" : " and `ip link`");
  if (preferred_gids(port).empty()) return "has no GID: give its interface an IP address";
  return "";
}

Result<bool> matches(std::string_view rule, const Port& port) {
  if (rule.empty()) return true;
  const bool excludes = rule[0] == '^';
  if (excludes) rule.remove_prefix(1);
  bool found = false;
  do {
    const std::size_t comma = std::min(rule.find(','), rule.size());
    const std::string_view one = rule.substr(0, comma);
    const DeviceName device(one);
    if (!device.good())
      return Status(Code::invalid_argument, fmt::format("\"{}\" names no device: want mlx5_0, mlx5_0:1 or mlx5_*, separated by commas, with ^ in front of all to exclude them", one));
    found |= device.matches(port);
    rule.remove_prefix(std::min(comma + 1, rule.size()));
  } while (!rule.empty());
  return found != excludes;
}

std::vector<Gid> preferred_gids(const Port& port, int only_index) {
  std::vector<Gid> out;
  for (const Gid& gid : port.gids) {
    if (only_index >= 0 ? gid.index == only_index : !gid.zero()) out.push_back(gid);
  }
  if (port.link == LinkLayer::infiniband) {
    if (out.size() > 1) out.resize(1);
    return out;
  }
  std::stable_sort(out.begin(), out.end(), [](const Gid& a, const Gid& b) {
    const auto rank = [](const Gid& g) { return std::tuple(g.kind != GidKind::roce_v2, g.link_local(), !g.ipv4()); };
    return rank(a) < rank(b);
  });
  return out;
}

std::vector<Port> choose_ports(const std::vector<Port>& all, std::string_view rule, int numa, std::string& why) {
  std::vector<Port> out;
  why = all.empty() ? "there is no RDMA device" : "";
  const auto leave_out = [&why](const Port& port, const std::string& reason) { why += fmt::format("{}{} {}", why.empty() ? "" : "; ", describe(port), reason); };
  for (const Port& port : all) {
    std::string wrong = why_unusable(port);
    const auto allowed = matches(rule, port);
    if (!allowed || !*allowed) wrong = allowed ? fmt::format("TUTTI_IB_HCA={} leaves it out", rule) : fmt::format("TUTTI_IB_HCA: {}", allowed.status().text());
    if (wrong.empty()) out.push_back(port);
    else leave_out(port, wrong);
  }
  if (rule.empty()) {
    double fastest = 0;
    for (const Port& port : out) fastest = std::max(fastest, port.gbps);
    std::erase_if(out, [&](const Port& port) {
      if (port.gbps < fastest) leave_out(port, fmt::format("is slower than the fastest ({:g} Gb/s); TUTTI_IB_HCA can name it all the same", fastest));
      return port.gbps < fastest;
    });
  }
  std::stable_sort(out.begin(), out.end(), [&](const Port& a, const Port& b) { return (a.numa != numa) < (b.numa != numa); });
  return out;
}

Offer make_offer(const std::vector<Port>& chosen, int only_gid_index) {
  Offer offer;
  for (const Port& port : chosen) {
    if (offer.size() == kMostPorts) break;
    Offered one{port.link, std::uint8_t(port.number), std::uint8_t(port.mtu), port.lid, preferred_gids(port, only_gid_index)};
    if (one.gids.size() > kMostGids) one.gids.resize(kMostGids);
    offer.push_back(std::move(one));
  }
  return offer;
}

std::vector<Rail> pair_up(const Offer& dialler, const Offer& dialled, std::size_t most) {
  std::vector<Rail> rails;
  const auto take = [&](int least) {
    for (std::size_t a = 0; a < dialler.size(); ++a) {
      for (std::size_t b = 0; b < dialled.size() && rails.size() < most; ++b) {
        const auto used = [&](const Rail& r) { return r.port[0] == a || r.port[1] == b; };
        if (std::any_of(rails.begin(), rails.end(), used)) continue;
        const Match match = best_match(dialler[a], dialled[b]);
        if (match.fit < least) continue;
        rails.push_back({{a, b}, {match.gid[0], match.gid[1]}});
      }
    }
  };
  take(3);
  if (rails.empty()) take(2);
  if (rails.empty()) take(1);
  return rails;
}

std::vector<std::byte> encode(const Offer& offer) {
  std::vector<std::byte> out;
  append(out, std::uint8_t(offer.size()));
  for (const Offered& port : offer) {
    append(out, port.link), append(out, port.port), append(out, port.mtu), append(out, port.lid), append(out, std::uint8_t(port.gids.size()));
    for (const Gid& gid : port.gids) append(out, std::uint8_t(gid.index)), append(out, gid.kind), append(out, std::uint8_t(gid.prefix_bits)), append(out, gid.address);
  }
  return out;
}

Result<Offer> decode_offer(std::span<const std::byte> bytes) {
  std::uint8_t ports = 0;
  bool good = take(bytes, ports);
  Offer offer;
  for (int i = 0; good && i < ports; ++i) {
    Offered port;
    std::uint8_t gids = 0;
    good = take(bytes, port.link) && take(bytes, port.port) && take(bytes, port.mtu) && take(bytes, port.lid) && take(bytes, gids);
    for (int k = 0; good && k < gids; ++k) {
      Gid gid;
      std::uint8_t index = 0, prefix = 0;
      good = take(bytes, index) && take(bytes, gid.kind) && take(bytes, prefix) && take(bytes, gid.address);
      gid.index = index, gid.prefix_bits = prefix;
      good = good && gid.kind <= GidKind::roce_v2 && prefix <= 128;
      port.gids.push_back(gid);
    }
    good = good && port.link <= LinkLayer::other && port.mtu >= 1 && port.mtu <= 5;
    offer.push_back(std::move(port));
  }
  if (!good || !bytes.empty() || offer.size() > kMostPorts) return Status(Code::network, "rdma: what the peer offers cannot be read");
  return offer;
}

}  // namespace tutti::transport::rdma
