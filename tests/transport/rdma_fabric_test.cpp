// Which RDMA ports are used, with which GID, and which belong together: on listings of real machines (TUTTI_TOPOLOGY_CORPUS, else
// ../shared/topology beside the sources), and on small ones of our own.
#include "transport/rdma/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

namespace tutti::transport::rdma {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

Gid gid_of(const std::string& address, int index = 3, GidKind kind = GidKind::roce_v2, int prefix = 0) {
  Gid gid{.index = index, .kind = kind, .prefix_bits = prefix};
  EXPECT_TRUE(parse_gid_address(address, gid.address)) << address;
  return gid;
}

// What ibstat, ibstatus, ibv_devinfo, show_gids and /sys print: enough of it.
class Listing {
 public:
  explicit Listing(std::istream& lines) {
    for (std::string line; std::getline(lines, line);) read(line);
  }
  std::vector<Port> ports;

 private:
  Port& port(const std::string& device) {
    for (Port& p : ports)
      if (p.device == device) return p;
    ports.push_back({.device = device, .link = LinkLayer::infiniband});
    return ports.back();
  }
  void read(const std::string& line) {
    static const std::regex header(R"(^(?:CA '|Infiniband device '|hca_id:\s*)([A-Za-z0-9_]+).*)"), sysfs(R"(^/sys/class/infiniband/([^/]+)/ports/1/(.*))"),
        value(R"(^\s*([a-z_ ]+):\s*(.*))", std::regex::icase), in_table(R"(^\s*GID\[\s*(\d+)\]:\s*([0-9a-f:.]+), (.*))"),
        shown(R"(^(\w+)\s+\d+\s+(\d+)\s+([0-9a-f:]{39})\s.*\b(v1|v2)\b.*)"), comment(R"(^# .*tail of ibv_devinfo -v of (\w+):.*)");
    std::smatch m;
    if (std::regex_match(line, m, shown)) {
      Port& p = port(m[1]);
      const bool roce = std::regex_search(line, std::regex(R"(v[12]\s+\S+$)"));
      p.link = roce ? LinkLayer::ethernet : LinkLayer::infiniband;
      p.active = true;
      p.gids.push_back(gid_of(m[3], std::stoi(m[2]), !roce ? GidKind::infiniband : m[4] == "v2" ? GidKind::roce_v2 : GidKind::roce_v1));
      return;
    }
    if (std::regex_match(line, m, comment) || std::regex_match(line, m, header)) return void(now_ = m[1]);
    if (std::regex_match(line, m, in_table)) {
      Port& p = port(now_);
      p.link = LinkLayer::ethernet;
      p.active = true;
      p.gids.push_back(gid_of(m[2], std::stoi(m[1]), m[3].str().find("v2") != std::string::npos ? GidKind::roce_v2 : GidKind::roce_v1));
      return;
    }
    std::string rest = line;
    if (std::regex_match(line, m, sysfs)) now_ = m[1], rest = m[2];
    if (now_.empty() || !std::regex_match(rest, m, value)) return;
    std::string key = m[1], text = m[2];
    std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    if (key == "state") port(now_).active = text.find("ACTIVE") != std::string::npos || text == "Active", port(now_).state = text;
    if (key == "rate") port(now_).gbps = std::stod(text);
    if (key == "transport") port(now_).connects = text.find("InfiniBand") != std::string::npos;
    if (key == "link layer" || key == "link_layer") port(now_).link = text == "InfiniBand" ? LinkLayer::infiniband : text == "Ethernet" ? LinkLayer::ethernet : LinkLayer::other;
  }
  std::string now_;
};

std::filesystem::path corpus() {
  const char* named = std::getenv("TUTTI_TOPOLOGY_CORPUS");
  const std::filesystem::path folder = std::filesystem::path(named ? named : TUTTI_SOURCE_DIR "/../shared/topology") / "net";
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

std::vector<std::string> devices_of(const std::vector<Port>& ports) {
  std::vector<std::string> out;
  for (const Port& p : ports) out.push_back(p.device);
  return out;
}

// Every expectation about RDMA ports that a file has. Ports whose GIDs the listing does not show get one.
int check(const std::filesystem::path& file, const nlohmann::json& expected) {
  std::ifstream text(file);
  const std::vector<Port> ports = Listing(text).ports;
  std::vector<Port> with_gids = ports;
  for (Port& p : with_gids)
    if (p.gids.empty()) p.gids.push_back(gid_of("::ffff:10.0.0.1", 3, p.link == LinkLayer::ethernet ? GidKind::roce_v2 : GidKind::infiniband));
  std::vector<std::string> usable, unusable;
  for (const Port& p : with_gids) (why_unusable(p).empty() ? usable : unusable).push_back(p.device);
  std::string why;
  const auto chosen = devices_of(choose_ports(with_gids, "", -1, why));
  int checked = 0;
  for (const auto& [key, value] : expected.items()) {
    SCOPED_TRACE(file.filename().string() + ": " + key);
    ++checked;
    if (key == "hcas") EXPECT_EQ(ports.size(), value.get<std::size_t>());
    else if (key == "usable_hcas" || key == "usable_hcas_for_ib_verbs") EXPECT_THAT(usable, UnorderedElementsAreArray(value.get<std::vector<std::string>>()));
    else if (key == "unusable_hcas" || key == "efa_devices") EXPECT_THAT(unusable, UnorderedElementsAreArray(value.get<std::vector<std::string>>()));
    else if (key == "fastest_usable_hcas") EXPECT_THAT(chosen, UnorderedElementsAreArray(value.get<std::vector<std::string>>()));
    else if (key == "roce_v2_ipv4_gid" || key == "gid_for_infiniband") {
      std::map<std::string, int> found;
      for (const Port& p : ports)
        if (const auto gids = preferred_gids(p); !gids.empty() && (gids[0].ipv4() == (key == "roce_v2_ipv4_gid"))) found[p.device] = gids[0].index;
      EXPECT_EQ(found, (value.get<std::map<std::string, int>>()));
    } else if (key == "link_local_only") {
      const auto named = value.get<std::vector<std::string>>();
      for (const Port& p : ports) {
        if (std::find(named.begin(), named.end(), p.device) == named.end()) continue;
        EXPECT_TRUE(preferred_gids(p)[0].link_local() && preferred_gids(p)[0].kind == GidKind::roce_v2) << p.device;
      }
    } else if (key == "link_layer") {
      for (const Port& p : ports) EXPECT_EQ(value.at(p.device), p.link == LinkLayer::ethernet ? "Ethernet" : "InfiniBand") << p.device;
    } else if (key == "rate_gbps") {
      for (const Port& p : ports) EXPECT_EQ(value.at(p.device).get<double>(), p.gbps) << p.device;
    } else {
      --checked;
    }
  }
  return checked;
}

TEST(RdmaFabric, ListingsOfRealMachines) {
  if (corpus().empty()) GTEST_SKIP() << "no corpus: TUTTI_TOPOLOGY_CORPUS names no folder with net/, and ../shared/topology is not beside the sources";
  int files = 0, checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(corpus())) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() != ".txt" || !(name.starts_with("ib") || name.starts_with("show_gids") || name.starts_with("sysfs")) || name.starts_with("ibdev2netdev")) continue;
    std::ifstream expect(corpus() / (entry.path().stem().string() + ".expect.json"));
    checked += check(entry.path(), nlohmann::json::parse(expect));
    ++files;
  }
  EXPECT_GE(files, 14);
  EXPECT_GE(checked, 40);
}

Port ethernet(const std::string& device, std::vector<Gid> gids, double gbps = 100) {
  return {.device = device, .link = LinkLayer::ethernet, .active = true, .state = "active", .gbps = gbps, .gids = std::move(gids)};
}

TEST(RdmaFabric, PrefersRoceV2AndIpv4BeforeLinkLocal) {
  const Port port = ethernet("a", {gid_of("fe80::1", 0, GidKind::roce_v1), gid_of("fe80::1", 1), gid_of("::ffff:10.0.0.1", 4, GidKind::roce_v1), gid_of("2001:db8::1", 7), gid_of("::ffff:10.0.0.1", 9)});
  std::vector<int> order;
  for (const Gid& gid : preferred_gids(port)) order.push_back(gid.index);
  EXPECT_THAT(order, ElementsAre(9, 7, 1, 4, 0));
  ASSERT_EQ(preferred_gids(port, 7).size(), 1u);
  EXPECT_EQ(preferred_gids(port, 7)[0].index, 7);
  EXPECT_THAT(preferred_gids(port, 5), IsEmpty());
}

TEST(RdmaFabric, ObeysTheRuleForDevices) {
  Port one = ethernet("mlx5_0", {}), two = ethernet("mlx5_bond_0", {});
  two.number = 2;
  const struct { const char* rule; bool first, second; } rows[] = {
      {"", true, true}, {"mlx5_0", true, false}, {"mlx5_*", true, true}, {"*", true, true}, {"^mlx5_0", false, true}, {"^mlx5_0,mlx5_bond*", false, false},
      {"mlx5_0:1", true, false}, {"mlx5_bond_0:1", false, false}, {"mlx5*:2", false, true}, {"mlx5", false, false}};
  for (const auto& row : rows) {
    EXPECT_EQ(*matches(row.rule, one), row.first) << row.rule;
    EXPECT_EQ(*matches(row.rule, two), row.second) << row.rule;
  }
  for (const char* bad : {"a,,b", "m*x", "^^a", "a:x", ",", "a b"}) EXPECT_EQ(matches(bad, one).status().code(), Code::invalid_argument) << bad;
}

TEST(RdmaFabric, SaysOfEachPortWhyItIsLeftOut) {
  Port down = ethernet("d", {gid_of("::ffff:10.0.0.1")}), efa = down, bare = ethernet("b", {}), spare = down;
  down.active = false, down.state = "down";
  efa.device = "e", efa.connects = false;
  spare.device = "s";
  std::string why;
  EXPECT_THAT(choose_ports({down, efa, bare, spare}, "^s", -1, why), IsEmpty());
  EXPECT_THAT(why, testing::AllOf(HasSubstr("d:1 (Ethernet, down, 100 Gb/s, no NUMA node, 10.0.0.1) is not active"), HasSubstr("e:1 (Ethernet, active, 100 Gb/s, no NUMA node, 10.0.0.1) has no reliable connections"), HasSubstr("b:1 (Ethernet, active, 100 Gb/s, no NUMA node, no GID) has no GID"), HasSubstr("TUTTI_IB_HCA=^s leaves it out")));
  spare.gbps = 25;
  spare.numa = 1;
  EXPECT_THAT(devices_of(choose_ports({spare, efa, ethernet("f", {gid_of("::ffff:10.0.0.2")})}, "", -1, why)), ElementsAre("f"));
  EXPECT_THAT(why, testing::AllOf(HasSubstr("s:1 (Ethernet, active, 25 Gb/s, NUMA node 1, 10.0.0.1) is slower than the fastest (100 Gb/s)"), HasSubstr("e:1")));
  EXPECT_THAT(choose_ports({}, "", -1, why), IsEmpty());
  EXPECT_THAT(why, HasSubstr("no RDMA device"));
}

TEST(RdmaFabric, NearPortsComeFirst) {
  Port far = ethernet("a", {gid_of("::ffff:10.0.0.1")}), near = far;
  far.numa = 0;
  near.device = "b", near.numa = 1;
  std::string why;
  EXPECT_THAT(devices_of(choose_ports({far, near}, "", 1, why)), ElementsAre("b", "a"));
}

TEST(RdmaFabric, PairsPortsOfOneSubnet) {
  const auto host = [](int n) {
    const std::string last = std::to_string(n);
    std::vector<Port> ports{ethernet("a", {gid_of("::ffff:10.1.0." + last)}), ethernet("b", {gid_of("::ffff:10.2.0." + last)})};
    if (n == 2) std::swap(ports[0], ports[1]);
    return make_offer(ports);
  };
  const auto rails = pair_up(host(1), host(2));
  EXPECT_THAT(rails, ElementsAre(Rail{{0, 1}, {0, 0}}, Rail{{1, 0}, {0, 0}}));
  EXPECT_EQ(pair_up(host(1), host(2), 1).size(), 1u);
}

// 10.0.0.1/16 and 10.0.7.2/16 are neighbours, 10.0.0.1/24 and 10.0.7.2/24 are not: between those there is a router, and no way for fe80::.
TEST(RdmaFabric, KnowsSubnetsByTheirPrefix) {
  const auto offer = [](const char* address, int bits) { return make_offer({ethernet("a", {gid_of("fe80::1", 1), gid_of(address, 3, GidKind::roce_v2, 96 + bits)})}); };
  EXPECT_THAT(pair_up(offer("::ffff:10.0.0.1", 16), offer("::ffff:10.0.7.2", 16)), ElementsAre(Rail{{0, 0}, {0, 0}}));
  EXPECT_THAT(pair_up(offer("::ffff:10.0.0.1", 24), offer("::ffff:10.0.7.2", 24)), ElementsAre(Rail{{0, 0}, {0, 0}}));
  const Offer local = make_offer({ethernet("a", {gid_of("fe80::7", 1)})});
  EXPECT_THAT(pair_up(offer("::ffff:10.0.0.1", 24), local), ElementsAre(Rail{{0, 0}, {1, 0}}));
}

TEST(RdmaFabric, InfinibandAndEthernetDoNotMix) {
  Port ib{.device = "i", .link = LinkLayer::infiniband, .active = true, .gids = {gid_of("fe80::2", 0, GidKind::infiniband)}};
  EXPECT_THAT(pair_up(make_offer({ib}), make_offer({ethernet("e", {gid_of("fe80::1")})})), IsEmpty());
  EXPECT_EQ(pair_up(make_offer({ib}), make_offer({ib})).size(), 1u);
  Port other = ib;
  other.gids[0] = gid_of("fec0::2", 0, GidKind::infiniband);         // another subnet prefix: another fabric
  EXPECT_THAT(pair_up(make_offer({ib}), make_offer({other})), IsEmpty());
}

TEST(RdmaFabric, OffersComeThroughTheWire) {
  Offer offer = make_offer({ethernet("a", {gid_of("::ffff:10.1.0.1", 3, GidKind::roce_v2, 120), gid_of("fe80::1", 1)}), ethernet("b", {gid_of("2001:db8::1", 200)})});
  offer[1].lid = 4711;
  const auto bytes = encode(offer);
  EXPECT_EQ(*decode_offer(bytes), offer);
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_offer(std::span(bytes).first(n)).ok()) << n;
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_offer(longer).ok());
}

}  // namespace
}  // namespace tutti::transport::rdma
