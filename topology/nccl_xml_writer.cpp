// write_nccl_xml: a Graph as NCCL_TOPO_FILE, so that read_nccl_xml gives the same answers. What NCCL has no word for
// (packages, host bridges) goes into attributes of our own, which NCCL passes over.
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "topology/answers.h"
#include "topology/describe.h"
#include "topology/pci_speed.h"
#include "topology/read.h"

namespace tutti::topology {
namespace {

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph), children_(graph.vertices.size()) {
    for (std::size_t v = 0; v < graph.vertices.size(); ++v)
      if (graph.vertices[v].parent >= 0) children_[std::size_t(graph.vertices[v].parent)].push_back(int(v));
  }

  Result<std::string> write() {
    for (const int gpu : graph_.all(VertexKind::gpu))
      if (!at(gpu).pci)
        return Status(Code::unsupported,
                      fmt::format("{}: {} has no PCI address, which NCCL's XML needs; a matrix does not tell it",
                                  graph_.source, at(gpu).name));
    if (graph_.all(VertexKind::numa).empty())
      return Status(Code::unsupported,
                    fmt::format("{}: no NUMA node is known, which NCCL's XML hangs devices below", graph_.source));
    pugi::xml_node system = document_.append_child("system");
    set(system, "version", graph_.version.empty() ? "1" : graph_.version);
    for (const int numa : graph_.all(VertexKind::numa)) write_cpu(system, numa);
    write_unplaced(system);
    std::ostringstream out;
    document_.save(out, "  ");
    return out.str();
  }

 private:
  const Vertex& at(int vertex) const { return graph_.vertices[std::size_t(vertex)]; }
  static void set(pugi::xml_node node, const char* name, const std::string& value) {
    node.append_attribute(name) = value.c_str();
  }
  static bool is_device(VertexKind kind) { return kind >= VertexKind::host_bridge; }

  std::string affinity(const CpuSet& cpus) const {
    int highest = 31;
    for (const int numa : graph_.all(VertexKind::numa))
      if (!at(numa).cpus.empty()) highest = std::max(highest, at(numa).cpus.ranges().back().second);
    std::vector<std::uint32_t> words(std::size_t(highest / 32 + 1));
    for (const auto& [first, last] : cpus.ranges())
      for (int cpu = first; cpu <= last; ++cpu) words[std::size_t(cpu / 32)] |= std::uint32_t(1) << (cpu % 32);
    std::string text;
    for (auto word = words.rbegin(); word != words.rend(); ++word)
      text += fmt::format("{}{:08x}", text.empty() ? "" : ",", *word);
    return text;
  }

  void write_cpu(pugi::xml_node system, int numa) {
    pugi::xml_node cpu = system.append_child("cpu");
    set(cpu, "numaid", std::to_string(at(numa).os_index >= 0 ? at(numa).os_index : at(numa).index));
    if (!at(numa).cpus.empty()) set(cpu, "affinity", affinity(at(numa).cpus));
    const int package = package_of(graph_, numa);
    set(cpu, "tutti_socket", std::to_string(package >= 0 ? at(package).os_index : -1));
    set(cpu, "tutti_socket_index", std::to_string(package >= 0 ? at(package).index : -1));
    for (const std::string& note : graph_.notes)
      if (note.rfind(kSocketsNote, 0) == 0 && package >= 0)
        set(cpu, "tutti_socket_basis", note.substr(sizeof(kSocketsNote) - 1));
    write_below(cpu, numa, "");
  }

  // Devices hang below caches and groups, too; only the PCI tree is written.
  void write_below(pugi::xml_node parent, int vertex, const std::string& host_bridge) {
    for (const int child : children_[std::size_t(vertex)]) {
      const VertexKind kind = at(child).kind;
      if (kind == VertexKind::host_bridge) {
        write_below(parent, child, fmt::format("{}", child));
      } else if (is_device(kind)) {
        write_device(parent, child, host_bridge);
      } else if (kind != VertexKind::numa) {
        write_below(parent, child, host_bridge);
      }
    }
  }

  void write_device(pugi::xml_node parent, int vertex, const std::string& host_bridge) {
    const Vertex& v = at(vertex);
    if (!written_.insert(vertex).second) return;
    if (!v.pci) {
      if (v.kind == VertexKind::nic) write_net(parent.append_child("nic"), vertex);
      return;
    }
    pugi::xml_node pci = parent.append_child("pci");
    set(pci, "busid", to_string(v.pci->address));
    const std::uint16_t device_class =
        v.kind == VertexKind::pci_bridge && v.pci->device_class >> 8 != 0x06 ? 0x0604 : v.pci->device_class;
    if (device_class != 0) set(pci, "class", fmt::format("0x{:04x}00", device_class));
    if (v.pci->vendor != 0) set(pci, "vendor", fmt::format("0x{:04x}", v.pci->vendor));
    if (v.pci->device != 0) set(pci, "device", fmt::format("0x{:04x}", v.pci->device));
    write_speed(pci, vertex);
    if (!host_bridge.empty()) set(pci, "tutti_host_bridge", host_bridge);
    if (v.kind == VertexKind::gpu) return write_gpu(pci, vertex);
    if (v.kind == VertexKind::nic) return write_nets(pci, vertex);
    write_below(pci, vertex, "");
  }

  void write_speed(pugi::xml_node pci, int vertex) {
    for (const Link& link : graph_.links) {
      if (link.kind != LinkKind::pci || link.a != vertex || !link.bandwidth.known() ||
          link.bandwidth.origin == Origin::assumed)
        continue;
      const PciSpeed speed = nearest_pci_speed(link.bandwidth.value);
      set(pci, "link_speed", fmt::format("{:.1f} GT/s PCIe", speed.gigatransfers));
      return set(pci, "link_width", std::to_string(speed.width));
    }
  }

  // A function with several logical devices has as many <gpu> elements; the first carries the number.
  void write_gpu(pugi::xml_node pci, int vertex) {
    pugi::xml_node gpu = pci.append_child("gpu");
    set(gpu, "dev", std::to_string(at(vertex).index));
    set(gpu, "rank", std::to_string(at(vertex).index));
    for (const Link& link : graph_.links) {
      const bool wire = link.kind == LinkKind::nvlink || link.kind == LinkKind::xgmi;
      if (!wire || (link.a != vertex && link.b != vertex) || link.b < 0) continue;
      const Vertex& other = at(link.a == vertex ? link.b : link.a);
      pugi::xml_node element = gpu.append_child(link.kind == LinkKind::xgmi ? "xgmi" : "nvlink");
      set(element, "target", other.pci ? to_string(other.pci->address) : "fffffff:ffff:ff");
      set(element, "count", std::to_string(link.count));
      set(element, "tclass",
          other.kind == VertexKind::gpu_switch ? "0x068000"
          : !is_device(other.kind)             ? "0x068001"
                                               : "0x030200");
    }
    for (int i = 1; i < at(vertex).logical_devices; ++i) pci.append_child("gpu");
  }

  // All NICs of one function, which may be several ports. A file without any name stays one without <net>.
  void write_nets(pugi::xml_node pci, int vertex) {
    bool nets = false;  // a name, or a function that only its <net> shows to be a NIC
    for (const int nic : graph_.all(VertexKind::nic))
      nets = nets || (at(nic).pci && (!at(nic).verbs_names.empty() || !at(nic).net_names.empty() ||
                                      at(nic).pci->device_class >> 8 != 0x02));
    if (!nets) return;
    pugi::xml_node nic = pci.append_child("nic");
    write_net(nic, vertex);
    for (const int other : children_[std::size_t(at(vertex).parent)])
      if (at(other).kind == VertexKind::nic && at(other).pci && at(other).pci->address == at(vertex).pci->address &&
          written_.insert(other).second)
        write_net(nic, other);
  }

  void write_net(pugi::xml_node nic, int vertex) {
    pugi::xml_node net = nic.append_child("net");
    if (!at(vertex).pci || !at(vertex).verbs_names.empty() || !at(vertex).net_names.empty())
      set(net, "name", names_of(at(vertex)).front());
    set(net, "dev", std::to_string(at(vertex).index));
    set(net, "port", at(vertex).verbs_names.empty() ? "0" : "1");
    for (const Link& link : graph_.links)
      if (link.kind == LinkKind::network && link.a == vertex && link.bandwidth.known())
        return set(net, "speed", fmt::format("{:.0f}", link.bandwidth.value * 8 / 1e6));
  }

  // Devices below the machine or a package only: of no NUMA node that is known.
  void write_unplaced(pugi::xml_node system) {
    pugi::xml_node cpu;
    for (std::size_t v = 0; v < graph_.vertices.size(); ++v) {
      const Vertex& vertex = graph_.vertices[v];
      const bool top = is_device(vertex.kind) && vertex.parent >= 0 && !is_device(at(vertex.parent).kind);
      // Ends of links that the source did not list have no class: the links name them.
      const bool end = (vertex.kind == VertexKind::accelerator || vertex.kind == VertexKind::gpu_switch) &&
                       (!vertex.pci || vertex.pci->device_class == 0);
      if (!top || end || written_.count(int(v)) != 0 || graph_.ancestor(int(v), VertexKind::numa) >= 0) continue;
      if (!cpu) {
        cpu = system.append_child("cpu");
        set(cpu, "numaid", "-1");
      }
      if (vertex.kind == VertexKind::host_bridge) {
        write_below(cpu, int(v), std::to_string(v));
      } else {
        write_device(cpu, int(v), "");
      }
    }
  }

  const Graph& graph_;
  std::vector<std::vector<int>> children_;
  std::set<int> written_;
  pugi::xml_document document_;
};

}  // namespace

Result<std::string> write_nccl_xml(const Graph& graph) { return Writer(graph).write(); }

}  // namespace tutti::topology
