#include "tools/doctor/devices.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "topology/pci_speed.h"

namespace tutti::tools::doctor {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t number_in(const fs::path& file) { return std::strtoull(line_of(file).c_str(), nullptr, 10); }

// Prefix length of a netmask.
int bits_of(const sockaddr* mask) {
  if (!mask) return 0;
  int bits = 0;
  if (mask->sa_family == AF_INET) return std::popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr);
  for (const std::uint8_t byte : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr)
    bits += std::popcount(byte);
  return bits;
}

std::map<std::string, Interface> interfaces_of_kernel() {
  std::map<std::string, Interface> out;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return out;
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    Interface& interface = out[at->ifa_name];
    interface.name = at->ifa_name;
    interface.up = (at->ifa_flags & IFF_UP) && (at->ifa_flags & IFF_RUNNING);
    interface.loopback = at->ifa_flags & IFF_LOOPBACK;
    if (!at->ifa_addr) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (at->ifa_addr->sa_family == AF_INET)
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof text);
    else if (at->ifa_addr->sa_family == AF_INET6)
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr, text, sizeof text);
    if (*text) interface.addresses.push_back(fmt::format("{}/{}", text, bits_of(at->ifa_netmask)));
  }
  freeifaddrs(list);
  return out;
}

// Of link-level flow control, as `ethtool -a` shows it.
std::string pause_of(const std::string& name) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ethtool_pauseparam pause{};
  pause.cmd = ETHTOOL_GPAUSEPARAM;
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  request.ifr_data = reinterpret_cast<char*>(&pause);
  const bool known = socket >= 0 && ::ioctl(socket, SIOCETHTOOL, &request) == 0;
  if (socket >= 0) ::close(socket);
  if (!known) return "";
  if (!pause.rx_pause && !pause.tx_pause) return "off";
  return pause.rx_pause && pause.tx_pause ? "rx tx" : pause.rx_pause ? "rx" : "tx";
}

// The PCI function behind a link such as /sys/class/net/eth0/device: the device itself, or a parent of it (virtio,
// USB).
fs::path pci_function(const fs::path& link) {
  static const std::regex address("[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
  std::error_code error;
  for (fs::path at = fs::canonical(link, error); !error && at.has_relative_path(); at = at.parent_path())
    if (std::regex_match(at.filename().string(), address)) return at;
  return {};
}

void add_link(std::vector<PciLink>& out, std::set<fs::path>& seen, const std::string& name, const fs::path& device) {
  const fs::path at = pci_function(device);
  if (at.empty() || !seen.insert(at).second) return;
  const auto now = topology::parse_pci_speed(line_of(at / "current_link_speed"), line_of(at / "current_link_width"));
  const auto most = topology::parse_pci_speed(line_of(at / "max_link_speed"), line_of(at / "max_link_width"));
  if (!now || !most) return;  // none, or what a virtual machine makes up
  out.push_back({fmt::format("{} ({})", name, at.filename().string()), now->gigatransfers, most->gigatransfers,
                 now->width, most->width});
}

}  // namespace

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string line_of(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<Interface> read_interfaces(const std::string& root) {
  const fs::path folder = root + "/sys/class/net";
  auto known = root.empty() ? interfaces_of_kernel() : std::map<std::string, Interface>{};
  if (!root.empty())
    for (const std::string& name : names_in(folder)) known[name].name = name;
  std::vector<Interface> out;
  for (auto& [name, interface] : known) {
    const fs::path at = folder / name;
    std::error_code ignored;
    interface.is_virtual = !interface.loopback && !fs::exists(at / "device", ignored);
    interface.driver = fs::read_symlink(at / "device/driver", ignored).filename();
    const long long speed = std::strtoll(line_of(at / "speed").c_str(), nullptr, 10);
    interface.megabits = speed > 0 && speed < 100'000'000 ? speed : 0;  // -1 and 2^32 - 1: unknown
    interface.duplex = line_of(at / "duplex");
    if (interface.duplex != "full" && interface.duplex != "half") interface.duplex = "";
    if (root.empty() && !interface.loopback) interface.pause = pause_of(name);
    interface.mtu = int(number_in(at / "mtu"));
    const fs::path count = at / "statistics";
    interface.packets = number_in(count / "rx_packets") + number_in(count / "tx_packets");
    interface.errors = number_in(count / "rx_errors") + number_in(count / "tx_errors");
    interface.dropped = number_in(count / "rx_dropped") + number_in(count / "tx_dropped");
    out.push_back(interface);
  }
  return out;
}

std::vector<RdmaPort> read_rdma(const std::string& root) {
  std::vector<RdmaPort> out;
  const fs::path folder = root + "/sys/class/infiniband";
  for (const std::string& device : names_in(folder)) {
    for (const std::string& number : names_in(folder / device / "ports")) {
      const fs::path at = folder / device / "ports" / number;
      RdmaPort port{.device = device, .port = std::atoi(number.c_str())};
      const std::string state = line_of(at / "state");  // "4: ACTIVE"
      port.state = state.substr(std::min(state.size(), state.find(' ') == std::string::npos ? 0 : state.find(' ') + 1));
      port.link_layer = line_of(at / "link_layer");
      port.rate = line_of(at / "rate");
      std::vector<std::string> indices = names_in(at / "gids");
      std::sort(indices.begin(), indices.end(),
                [](auto& a, auto& b) { return std::atoi(a.c_str()) < std::atoi(b.c_str()); });
      for (const std::string& index : indices) {
        const std::string gid = line_of(at / "gids" / index);
        if (gid.find_first_not_of("0:") == std::string::npos || gid == "fe80:0000:0000:0000:0000:0000:0000:0000")
          continue;
        port.gids.push_back(fmt::format("{}: {} {} {}", index, gid, line_of(at / "gid_attrs/types" / index),
                                        line_of(at / "gid_attrs/ndevs" / index)));
      }
      out.push_back(port);
    }
  }
  return out;
}

std::vector<PciLink> read_pci(const std::string& root) {
  std::vector<PciLink> out;
  std::set<fs::path> seen;
  const fs::path sys = root + "/sys";
  for (const std::string& name : names_in(sys / "class/net"))
    add_link(out, seen, name, sys / "class/net" / name / "device");
  for (const std::string& name : names_in(sys / "class/infiniband"))
    add_link(out, seen, name, sys / "class/infiniband" / name / "device");
  for (const std::string& name : names_in(sys / "class/nvme"))
    add_link(out, seen, name, sys / "class/nvme" / name / "device");
  for (const std::string& name : names_in(sys / "bus/pci/devices")) {
    const std::string kind = line_of(sys / "bus/pci/devices" / name / "class");
    const bool display = kind.starts_with("0x0300") || kind.starts_with("0x0302") || kind.starts_with("0x1200");
    if (display) add_link(out, seen, "GPU", sys / "bus/pci/devices" / name);
  }
  return out;
}

std::string nvidia_driver(const std::string& root) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 …"
  static const std::regex number("\\s([0-9]+\\.[0-9.]+)\\s");
  std::smatch match;
  const std::string line = line_of(root + "/proc/driver/nvidia/version");
  return std::regex_search(line, match, number) ? match[1].str() : "";
}

std::vector<std::string> nvidia_gpus(const std::string& root) {
  std::vector<std::string> out;
  const fs::path folder = root + "/proc/driver/nvidia/gpus";
  for (const std::string& name : names_in(folder))
    for (const std::string& line : lines_of(folder / name / "information"))
      if (const auto start = line.find_first_not_of(" \t", 6); line.starts_with("Model:") && start != std::string::npos)
        out.push_back(line.substr(start));
  return out;
}

void read_tcp_counters(const std::string& root, std::uint64_t& sent, std::uint64_t& resent) {
  std::istringstream names, values;
  for (const std::string& line : lines_of(root + "/proc/net/snmp"))
    if (line.starts_with("Tcp:")) (names.str().empty() ? names : values).str(line);
  for (std::string name, value; names >> name && values >> value;) {
    if (name == "OutSegs") sent = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "RetransSegs") resent = std::strtoull(value.c_str(), nullptr, 10);
  }
}

}  // namespace tutti::tools::doctor
