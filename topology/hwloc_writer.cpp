// write_hwloc_xml: a Graph as hwloc's XML, version 2. hwloc wants more than a Graph need have (PUs, a NUMA node, sets
// of both in every object); what is missing is made up and marked, and what hwloc has no place for goes into infos
// (hwloc_marks.h).
#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <pugixml.hpp>
#include <set>
#include <sstream>

#include "topology/hwloc_marks.h"
#include "topology/read.h"

namespace tutti::topology {
namespace {

bool cpu_side(VertexKind kind) { return kind <= VertexKind::pu; }
bool device(VertexKind kind) { return kind >= VertexKind::gpu; }

class Writer {
 public:
  explicit Writer(const Graph& graph)
      : graph_(graph),
        children_(graph.vertices.size()),
        cpus_(graph.vertices.size()),
        own_cpus_(graph.vertices.size()),
        nodes_(graph.vertices.size()),
        node_number_(graph.vertices.size(), -1),
        next_number_(graph.vertices.size() + 2) {}

  Result<std::string> write() {
    if (const Status ok = check(); !ok) return ok;
    for (std::size_t v = 1; v < graph_.vertices.size(); ++v)
      children_[std::size_t(graph_.vertices[v].parent)].push_back(int(v));
    number_nodes();
    has_cpus_ = std::any_of(graph_.vertices.begin(), graph_.vertices.end(),
                            [](const Vertex& v) { return cpu_side(v.kind) && !v.cpus.empty(); });
    assign_cpus(0);
    if (cpus_[0].empty()) {
      own_cpus_[0].insert(0);
      cpus_[0].insert(0);
    }
    pugi::xml_document document;
    document.append_child(pugi::node_doctype).set_value("topology SYSTEM \"hwloc2.dtd\"");
    pugi::xml_node topology = document.append_child("topology");
    topology.append_attribute("version") = "2.0";
    container(0, topology);
    std::ostringstream out;
    document.save(out, "  ");
    return std::move(out).str();
  }

 private:
  const Vertex& at(int v) const { return graph_.vertices[std::size_t(v)]; }

  Status check() const {
    if (graph_.vertices.empty() || at(0).kind != VertexKind::machine)
      return Status(Code::unsupported, "hwloc XML: needs a machine as the first vertex");
    for (std::size_t v = 1; v < graph_.vertices.size(); ++v) {
      const Vertex& vertex = graph_.vertices[v];
      if (vertex.parent < 0 || vertex.parent >= int(v))
        return Status(Code::unsupported,
                      fmt::format("hwloc XML: vertex {} ({}) stands before its parent", v, vertex.name));
      const VertexKind above = at(vertex.parent).kind;
      if (device(above))
        return Status(Code::unsupported,
                      fmt::format("hwloc XML: {} is inside of {}, a device", vertex.name, at(vertex.parent).name));
      if (cpu_side(vertex.kind) && !cpu_side(above))
        return Status(Code::unsupported,
                      fmt::format("hwloc XML: {} is below the bridge {}", vertex.name, at(vertex.parent).name));
    }
    return {};
  }

  // Each NUMA node a number of its own, the operating system's where it has one.
  void number_nodes() {
    std::set<int> taken;
    const auto ask = [&](int v) {
      const int wanted = at(v).os_index;
      if (wanted >= 0 && wanted < kMaxHwlocIndex && taken.insert(wanted).second) node_number_[std::size_t(v)] = wanted;
    };
    const std::vector<int> all = graph_.all(VertexKind::numa);
    for (const int v : all) ask(v);
    int next = 0;
    for (const int v : all) {
      if (node_number_[std::size_t(v)] >= 0) continue;
      while (!taken.insert(next).second) ++next;
      node_number_[std::size_t(v)] = next;
    }
  }

  bool leaf_node(int v) const {
    return at(v).kind == VertexKind::numa && children_[std::size_t(v)].empty() &&
           std::any_of(children_[std::size_t(at(v).parent)].begin(), children_[std::size_t(at(v).parent)].end(),
                       [this, v](int brother) {
                         return brother != v && cpu_side(at(brother).kind) && !children_[std::size_t(brother)].empty();
                       });
  }

  // Bottom up: an object has the CPUs of what it holds, and those of its own that nobody else has. Every PU is in one
  // place only.
  void assign_cpus(int v) {
    HwlocBits& all = cpus_[std::size_t(v)];
    HwlocBits& nodes = nodes_[std::size_t(v)];
    bool inner = false;
    for (const int child : children_[std::size_t(v)]) {
      if (!cpu_side(at(child).kind)) continue;
      assign_cpus(child);
      inner = inner || !leaf_node(child);
      all.add(cpus_[std::size_t(child)]);
      nodes.add(nodes_[std::size_t(child)]);
    }
    if (at(v).kind == VertexKind::numa) nodes.insert(node_number_[std::size_t(v)]);
    if (leaf_node(v)) return;
    HwlocBits wanted = to_hwloc_bits(at(v).cpus);
    if (at(v).kind == VertexKind::pu) {
      wanted = {};
      if (at(v).os_index >= 0) wanted.insert(at(v).os_index);
    }
    if (!has_cpus_ && !inner) wanted.insert(next_cpu_++);
    for (int cpu = 0; cpu < int(wanted.words.size()) * 32; ++cpu)
      if (wanted.contains(cpu) && !taken_.contains(cpu)) {
        taken_.insert(cpu);
        own_cpus_[std::size_t(v)].insert(cpu);
        all.insert(cpu);
      }
  }

  pugi::xml_node object(pugi::xml_node parent, const char* type, std::size_t number) {
    pugi::xml_node node = parent.append_child("object");
    node.append_attribute("type") = type;
    node.append_attribute("gp_index") = static_cast<unsigned long long>(number);
    return node;
  }

  static void sets(pugi::xml_node node, const HwlocBits& cpus, const HwlocBits& nodes) {
    for (const char* name : {"cpuset", "complete_cpuset"}) node.append_attribute(name) = to_string(cpus).c_str();
    for (const char* name : {"nodeset", "complete_nodeset"}) node.append_attribute(name) = to_string(nodes).c_str();
  }

  static void infos(pugi::xml_node node, const HwlocMarks::Infos& list) {
    for (const auto& [name, value] : list) {
      pugi::xml_node info = node.append_child("info");
      info.append_attribute("name") = name.c_str();
      info.append_attribute("value") = value.c_str();
    }
  }

  // The NUMA nodes of what a vertex is in, where it holds none itself.
  HwlocBits nodes_of(int v) const {
    for (; v >= 0; v = at(v).parent)
      if (!nodes_[std::size_t(v)].empty()) return nodes_[std::size_t(v)];
    HwlocBits one;
    one.insert(0);
    return one;
  }

  void numa_node(int v, pugi::xml_node parent, const HwlocBits& cpus) {
    pugi::xml_node node = object(parent, "NUMANode", std::size_t(v) + 1);
    node.append_attribute("os_index") = node_number_[std::size_t(v)];
    HwlocBits own;
    own.insert(node_number_[std::size_t(v)]);
    sets(node, cpus, own);
    node.append_attribute("local_memory") = static_cast<unsigned long long>(at(v).bytes);
    infos(node, HwlocMarks::of_vertex(graph_, v));
  }

  void processing_unit(int cpu, int v, pugi::xml_node parent, const HwlocMarks::Infos& marks, std::size_t number) {
    pugi::xml_node node = object(parent, "PU", number);
    node.append_attribute("os_index") = cpu;
    HwlocBits own;
    own.insert(cpu);
    sets(node, own, nodes_of(v));
    infos(node, marks);
  }

  void container(int v, pugi::xml_node parent) {
    const Vertex& vertex = at(v);
    if (vertex.kind == VertexKind::pu) {
      if (!own_cpus_[std::size_t(v)].empty())
        processing_unit(vertex.os_index, v, parent, HwlocMarks::of_vertex(graph_, v), std::size_t(v) + 1);
      return;
    }
    pugi::xml_node node = open(v, parent);
    if (vertex.kind == VertexKind::numa) numa_node(v, node, cpus_[std::size_t(v)]);
    if (v == 0 && graph_.all(VertexKind::numa).empty()) made_up_node(node);
    for (const int child : children_[std::size_t(v)])
      if (leaf_node(child)) leaf(child, node);
    inside(v, node);
    for (const int child : children_[std::size_t(v)])
      if (!cpu_side(at(child).kind)) io(child, node);
  }

  // Containers and PUs in the order of their first CPU, as hwloc expects them.
  void inside(int v, pugi::xml_node node) {
    std::vector<std::pair<int, int>> order;  // first CPU, and the child or -1
    for (const int child : children_[std::size_t(v)])
      if (cpu_side(at(child).kind) && !leaf_node(child)) {
        const int first = cpus_[std::size_t(child)].first();
        order.emplace_back(first >= 0 ? first : kMaxHwlocIndex, child);
      }
    const HwlocBits& own = own_cpus_[std::size_t(v)];
    for (int cpu = 0; cpu < int(own.words.size()) * 32; ++cpu)
      if (own.contains(cpu)) order.emplace_back(cpu, -1);
    std::sort(order.begin(), order.end());
    const HwlocMarks::Infos marks = has_cpus_ && !at(v).cpus.empty() ? HwlocMarks::Infos{} : HwlocMarks::invented();
    for (const auto& [cpu, child] : order) {
      if (child >= 0) container(child, node);
      if (child < 0) processing_unit(cpu, v, node, marks, next_number_++);
    }
  }

  void leaf(int v, pugi::xml_node parent) {
    HwlocBits cpus = to_hwloc_bits(at(v).cpus);
    cpus.keep(cpus_[std::size_t(at(v).parent)]);
    numa_node(v, parent, cpus);
  }

  void made_up_node(pugi::xml_node root) {
    pugi::xml_node node = object(root, "NUMANode", next_number_++);
    node.append_attribute("os_index") = 0;
    sets(node, cpus_[0], nodes_of(0));
    infos(node, HwlocMarks::invented());
  }

  pugi::xml_node open(int v, pugi::xml_node parent) {
    const Vertex& vertex = at(v);
    const bool group = vertex.kind == VertexKind::numa;
    const int level = cache_level(vertex);
    const std::string type = vertex.kind == VertexKind::machine   ? "Machine"
                             : vertex.kind == VertexKind::package ? "Package"
                             : group                              ? "Group"
                             : vertex.kind == VertexKind::cache   ? fmt::format("L{}Cache", level)
                                                                  : "Core";
    pugi::xml_node node = object(parent, type.c_str(), group ? next_number_++ : std::size_t(v) + 1);
    if (v == 0) {
      node.append_attribute("os_index") = 0;
      node.append_attribute("allowed_cpuset") = to_string(cpus_[0]).c_str();
      node.append_attribute("allowed_nodeset") = to_string(nodes_of(0)).c_str();
    } else if (vertex.os_index >= 0 && !group) {
      node.append_attribute("os_index") = vertex.os_index;
    }
    sets(node, cpus_[std::size_t(v)], nodes_of(v));
    if (vertex.kind == VertexKind::cache) {
      node.append_attribute("cache_size") = static_cast<unsigned long long>(vertex.bytes);
      node.append_attribute("depth") = level;
      node.append_attribute("cache_linesize") = 64;
      node.append_attribute("cache_associativity") = 0;
      node.append_attribute("cache_type") = level == 1 ? 1 : 0;
    }
    if (group) {
      node.append_attribute("kind") = 1001;  // hwloc: made for memory; dropped where it adds no structure
      node.append_attribute("subkind") = 0;
    } else {
      infos(node, HwlocMarks::of_vertex(graph_, v));
    }
    if (v == 0) infos(node, HwlocMarks::of_graph(graph_));
    return node;
  }

  static int cache_level(const Vertex& cache) {
    const bool said = cache.name.size() > 1 && cache.name[0] == 'L' && cache.name[1] >= '1' && cache.name[1] <= '5';
    return said ? cache.name[1] - '0' : 3;
  }

  // Lowest and highest bus below, for the range that a bridge forwards.
  void buses(int v, std::uint32_t& domain, int& low, int& high) const {
    for (const int child : children_[std::size_t(v)]) {
      if (at(child).pci) {
        domain = at(child).pci->address.domain;
        low = std::min(low, int(at(child).pci->address.bus));
        high = std::max(high, int(at(child).pci->address.bus));
      }
      buses(child, domain, low, high);
    }
  }

  void bridge(int v, int depth, pugi::xml_node node) const {
    std::uint32_t domain = 0;
    int low = 0xff, high = 0;
    buses(v, domain, low, high);
    node.append_attribute("bridge_type") = at(v).kind == VertexKind::host_bridge ? "0-1" : "1-1";
    node.append_attribute("depth") = depth;
    node.append_attribute("bridge_pci") =
        fmt::format("{:04x}:[{:02x}-{:02x}]", domain & 0xffff, std::min(low, high), high).c_str();
  }

  static std::uint16_t class_of(const Vertex& v) {
    if (v.pci && v.pci->device_class != 0) return v.pci->device_class;
    switch (v.kind) {
      case VertexKind::gpu: return 0x0302;
      case VertexKind::nic: return 0x0200;
      case VertexKind::accelerator: return 0x1200;
      case VertexKind::gpu_switch: return 0x0680;
      default: return 0x0604;
    }
  }

  void function(int v, pugi::xml_node node) const {
    const PciFunction f = at(v).pci.value_or(PciFunction{});
    PciAddress address = f.address;
    address.domain &= 0xffff;  // what hwloc can hold; the marks have it all
    node.append_attribute("pci_busid") = to_string(address).c_str();
    node.append_attribute("pci_type") =
        fmt::format("{:04x} [{:04x}:{:04x}] [0000:0000] 00", class_of(at(v)), f.vendor, f.device).c_str();
    double speed = 0;
    for (const Link& link : graph_.links)
      if (link.kind == LinkKind::pci && std::max(link.a, link.b) == v && std::min(link.a, link.b) == at(v).parent)
        speed = link.bandwidth.value / 1e9;
    node.append_attribute("pci_link_speed") = fmt::format("{:.6f}", speed).c_str();
  }

  void os_device(pugi::xml_node parent, const std::string& name, int type, const HwlocMarks::Infos& marks,
                 std::size_t number) {
    pugi::xml_node node = object(parent, "OSDev", number);
    node.append_attribute("name") = name.c_str();
    node.append_attribute("osdev_type") = type;
    infos(node, marks);
  }

  void io(int v, pugi::xml_node parent, int depth = 0) {
    const Vertex& vertex = at(v);
    const HwlocMarks::Infos marks = HwlocMarks::of_vertex(graph_, v);
    if (device(vertex.kind) && !vertex.pci)
      return os_device(parent, vertex.name, vertex.kind == VertexKind::nic ? 2 : 5, marks, std::size_t(v) + 1);
    pugi::xml_node node = object(parent, device(vertex.kind) ? "PCIDev" : "Bridge", std::size_t(v) + 1);
    if (!device(vertex.kind)) bridge(v, depth, node);
    if (vertex.kind != VertexKind::host_bridge) function(v, node);
    infos(node, marks);
    for (const std::string& name : vertex.net_names) os_device(node, name, 2, {}, next_number_++);
    for (const std::string& name : vertex.verbs_names) os_device(node, name, 3, {}, next_number_++);
    for (const int child : children_[std::size_t(v)]) io(child, node, depth + 1);
  }

  const Graph& graph_;
  std::vector<std::vector<int>> children_;
  std::vector<HwlocBits> cpus_, own_cpus_, nodes_;
  std::vector<int> node_number_;
  HwlocBits taken_;
  int next_cpu_ = 0;
  std::size_t next_number_;
  bool has_cpus_ = false;
};

}  // namespace

Result<std::string> write_hwloc_xml(const Graph& graph) { return Writer(graph).write(); }

}  // namespace tutti::topology
