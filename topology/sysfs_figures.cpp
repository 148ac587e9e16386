#include "topology/sysfs_figures.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

#include "topology/device_kind.h"
#include "topology/pci_speed.h"

namespace tutti::topology {
namespace {

// Slower than PCI Express 3.0 x1 is no link of a GPU: virtual machines report 2.5 GT/s x1 for whatever they pass
// through.
constexpr double kLeastGpuBytes = 0.9e9;
constexpr long kMostMegabits = 3'200'000;  // the fastest ports of today have 800,000

// The first line; "" where there is none.
std::string line_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  if (line.size() > 256) line.clear();
  return line;
}

std::optional<long> number_in(const std::string& file) {
  const std::string line = line_of(file);
  long value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

class Figures {
 public:
  Figures(Graph& graph, std::string root)
      : graph_(graph), root_(std::move(root)), several_nodes_(graph.all(VertexKind::numa).size() > 1) {}

  void add() {
    for (std::size_t v = 0; v < graph_.vertices.size(); ++v) {
      if (at(int(v)).pci) pci(int(v));
      if (at(int(v)).kind == VertexKind::nic) port(int(v));
    }
    wide_domains();
  }

 private:
  const Vertex& at(int v) const { return graph_.vertices[std::size_t(v)]; }
  void distrust(const std::string& text) { graph_.distrusted.push_back(text); }
  std::string folder(const PciAddress& address) const {
    return root_ + "/sys/bus/pci/devices/" + to_string(address) + "/";
  }
  std::optional<PciSpeed> speed(const PciAddress& address, const std::string& which) const {
    return parse_pci_speed(line_of(folder(address) + which + "_link_speed"),
                           line_of(folder(address) + which + "_link_width"));
  }

  void pci(int v) {
    const PciAddress address = at(v).pci->address;
    if (const std::optional<PciSpeed> now = speed(address, "current")) link(v, *now);
    if (at(v).kind < VertexKind::gpu) return;
    const std::optional<long> node = number_in(folder(address) + "numa_node");
    if (!node) return;
    if (*node < 0) {
      if (several_nodes_ && at(v).numa < 0)
        distrust(fmt::format("{}: numa_node {} on a machine with several: where it is is not known", to_string(address),
                             *node));
    } else if (at(v).numa >= 0 && at(v).numa != *node) {
      distrust(fmt::format("{}: numa_node {}, while its CPUs are those of node {}: the CPUs are believed",
                           to_string(address), *node, at(v).numa));
    } else if (at(v).numa < 0 && is_node(*node)) {
      graph_.vertices[std::size_t(v)].numa = int(*node);
    }
  }

  bool is_node(long os_index) const {
    const std::vector<int> nodes = graph_.all(VertexKind::numa);
    return std::any_of(nodes.begin(), nodes.end(), [this, os_index](int n) { return at(n).os_index == os_index; });
  }

  // An idle GPU lowers the rate of its link, and raises it when there is work; the lanes stay.
  void link(int v, PciSpeed now) {
    const Vertex& vertex = at(v);
    std::string source = "sysfs current_link_speed, " + to_string(now);
    const std::optional<PciSpeed> most = speed(vertex.pci->address, "max");
    if (vertex.kind == VertexKind::gpu && most && most->gigatransfers > now.gigatransfers) {
      double rate = most->gigatransfers;
      if (const auto& above = at(vertex.parent).pci)
        if (const std::optional<PciSpeed> slot = speed(above->address, "max"))
          rate = std::min(rate, slot->gigatransfers);
      source =
          fmt::format("sysfs max_link_speed, {:.1f} GT/s x{} (idle at {:.1f})", rate, now.width, now.gigatransfers);
      now.gigatransfers = std::max(rate, now.gigatransfers);
    }
    std::erase_if(graph_.links,
                  [&](const Link& l) { return l.kind == LinkKind::pci && l.a == vertex.parent && l.b == v; });
    const bool fast = vertex.kind == VertexKind::gpu || vertex.kind == VertexKind::gpu_switch;
    if (fast && bytes_per_second(now) < kLeastGpuBytes)
      return distrust(fmt::format("{}: PCI link of {}, as virtual machines report it", to_string(vertex.pci->address),
                                  to_string(now)));
    if (emulated(*vertex.pci))
      return distrust(fmt::format("{}: PCI link of {} of a device made up by a hypervisor",
                                  to_string(vertex.pci->address), to_string(now)));
    graph_.links.push_back({vertex.parent, v, LinkKind::pci, 1, {}, {bytes_per_second(now), Origin::read, source}});
  }

  // The active ports of the verbs device, else the speed that ethtool would show.
  void port(int v) {
    Link out{v, -1, LinkKind::network, 0};
    for (const std::string& name : at(v).verbs_names)
      if (out.count == 0) verbs_ports(name, out);
    for (const std::string& name : at(v).net_names) {
      if (out.count > 0) break;
      const std::optional<long> megabits = number_in(root_ + "/sys/class/net/" + name + "/speed");
      if (!megabits || *megabits <= 0) continue;  // -1: no cable, or a driver that does not say
      if (*megabits > kMostMegabits || !at(v).pci) {
        distrust(fmt::format("{}: {} Mb/s{}", name, *megabits,
                             at(v).pci ? ", more than any port has" : " of an interface without a device"));
        continue;
      }
      out.count = 1;
      out.bandwidth = {double(*megabits) * 1e6 / 8, Origin::read, "sysfs speed of " + name};
    }
    if (out.count > 0) graph_.links.push_back(std::move(out));
  }

  void verbs_ports(const std::string& device, Link& out) {
    std::error_code ignored;
    for (const auto& entry :
         std::filesystem::directory_iterator(root_ + "/sys/class/infiniband/" + device + "/ports", ignored)) {
      const std::string folder = entry.path().string() + "/", state = line_of(folder + "state"),
                        rate = line_of(folder + "rate");
      double gigabits = 0;
      const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
      if (error != std::errc() || std::string(end, rate.data() + rate.size()).rfind(" Gb/sec", 0) != 0 || gigabits <= 0)
        continue;
      const std::string name = device + " port " + entry.path().filename().string();
      if (state.find("ACTIVE") == std::string::npos) {
        graph_.notes.push_back(fmt::format("{} is not active ({})", name, state.empty() ? "no state" : state));
      } else if (gigabits * 1000 > double(kMostMegabits)) {
        distrust(fmt::format("{}: {} Gb/s, more than any port has", name, gigabits));
      } else {
        ++out.count;
        out.bandwidth = {out.bandwidth.value + gigabits * 1e9 / 8, Origin::read, "sysfs rate of " + device};
      }
    }
  }

  // Domains beyond 16 bits (Intel VMD, some hypervisors) do not fit into hwloc 2.
  void wide_domains() {
    std::error_code ignored;
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/sys/bus/pci/devices", ignored)) {
      const std::optional<PciAddress> address = parse_pci_address(entry.path().filename().string());
      const std::string text = line_of(entry.path().string() + "/class");
      unsigned device_class = 0;
      if (!address || address->domain <= 0xffff || std::sscanf(text.c_str(), "0x%6x", &device_class) != 1) continue;
      const int base = int(device_class >> 16);
      if (base == 0x02 || base == 0x03 || base == 0x12) names.push_back(to_string(*address));
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names)
      distrust(name + ": a PCI domain of more than 16 bits; hwloc leaves the device out");
  }

  Graph& graph_;
  const std::string root_;
  const bool several_nodes_;
};

}  // namespace

void add_sysfs_figures(Graph& graph, const std::string& root) { Figures(graph, root).add(); }

}  // namespace tutti::topology
