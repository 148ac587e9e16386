#pragma once
// What RDMA ports there are and which of two ranks' ports can talk to each other: values and pure functions, so that the choice
// can be tested on listings of machines that are not here. Knows no verbs.
#include <tutti/status.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::transport::rdma {

enum class LinkLayer : std::uint8_t { infiniband, ethernet, other };
enum class GidKind : std::uint8_t { infiniband, roce_v1, roce_v2 };

struct Gid {
  int index = 0;
  GidKind kind = GidKind::infiniband;
  std::array<std::uint8_t, 16> address{};
  int prefix_bits = 0;                 // of its subnet, counted as for IPv6 (an IPv4 /24: 120); 0: not known
  bool operator==(const Gid&) const = default;

  bool zero() const;
  bool ipv4() const;                   // ::ffff:a.b.c.d
  bool link_local() const;             // fe80::/10
  std::string text() const;            // "10.0.0.1", "fe80::1"
};
// As ibv_devinfo and show_gids print it, long or short. False: it is none.
bool parse_gid_address(std::string_view text, std::array<std::uint8_t, 16>& address);

struct Port {
  std::string device;                  // "mlx5_0"
  int number = 1;
  LinkLayer link = LinkLayer::other;
  bool active = false;
  std::string state = "down";          // as the kernel says it
  bool connects = true;                // has reliable connections (EFA has none)
  double gbps = 0;
  int numa = -1;
  std::uint16_t lid = 0;
  int mtu = 5;                         // ibv_mtu: 256 << (mtu - 1)
  std::vector<Gid> gids;               // in the order of the table; empty entries left out
  std::string name() const { return device + ":" + std::to_string(number); }
  bool operator==(const Port&) const = default;
};

// "mlx5_0:1 (Ethernet, active, 400 Gb/s, NUMA node 0, 10.0.0.1)": with the GID that is tried first.
std::string describe(const Port& port, int only_gid_index = -1);

// Why the port cannot be used; empty: it can.
std::string why_unusable(const Port& port);

// The rule of TUTTI_IB_HCA: device, prefix*, either with :port behind it, separated by commas; ^ in front excludes those. Empty: all.
// invalid_argument: what is wrong with it.
Result<bool> matches(std::string_view rule, const Port& port);

// The GIDs that are worth trying, best first: for Ethernet RoCE v2 before v1, IPv4 before global IPv6 before link-local; for
// InfiniBand the first. With an index: that one alone.
std::vector<Gid> preferred_gids(const Port& port, int only_index = -1);

// Which ports to offer to peers: usable ones that the rule allows; of those, without a rule, the fastest. Those near `numa` come first. An
// empty list: there is none; `why` says of every other port what is wrong.
std::vector<Port> choose_ports(const std::vector<Port>& all, std::string_view rule, int numa, std::string& why);

// What a rank tells a peer of a port.
struct Offered {
  LinkLayer link = LinkLayer::other;
  std::uint8_t port = 1, mtu = 5;
  std::uint16_t lid = 0;
  std::vector<Gid> gids;               // best first
  bool operator==(const Offered&) const = default;
};
using Offer = std::vector<Offered>;
inline constexpr std::size_t kMostPorts = 8, kMostGids = 4;
Offer make_offer(const std::vector<Port>& chosen, int only_gid_index = -1);

// A rail of a pair of ranks: a port and GID of each.
struct Rail {
  std::size_t port[2];                 // in the offers
  std::size_t gid[2];                  // in those ports' lists
  bool operator==(const Rail&) const = default;
};
inline constexpr std::size_t kMostRails = 4;
// Which ports of two offers belong together; both ranks compute the same from the same arguments. Ports in one subnet; where no two are,
// those with addresses that can be routed, in their order; where there are none, those with link-local ones. At most `most`.
std::vector<Rail> pair_up(const Offer& dialler, const Offer& dialled, std::size_t most = kMostRails);

// 0 and more bytes to and from the wire.
std::vector<std::byte> encode(const Offer& offer);
Result<Offer> decode_offer(std::span<const std::byte> bytes);

}  // namespace tutti::transport::rdma
