// What hwloc's tree means: HwlocTree in, Graph out. The Graph's containment is package, NUMA node, cache, core; hwloc
// hangs memory beside its tree and devices at the largest object that holds the same CPUs, so both are brought to where
// they belong here.
#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <set>

#include "topology/device_kind.h"
#include "topology/hwloc_marks.h"
#include "topology/hwloc_object.h"

namespace tutti::topology {
namespace {

// No PCI Express link of today or tomorrow carries more (7.0 x16: 242 GB/s), and no GPU sits on less than 3.0 x1.
constexpr double kMostPciGigabytes = 300, kLeastGpuGigabytes = 0.9;
constexpr std::uint64_t kMostMemoryMegabytes = 100'000'000;

bool holds_others(const HwlocObject& o) {
  return o.type == HwlocType::machine || o.type == HwlocType::package || o.type == HwlocType::group;
}

// One inside the other with nothing beside it: two names for one place.
bool same_place(const HwlocObject& outer, const HwlocObject& inner) {
  if (!holds_others(inner) || outer.cpus != inner.cpus) return false;
  return !outer.cpus.empty() || outer.nodes == inner.nodes;
}

bool has_numa_node(const HwlocObject& object) {
  if (!object.memory.empty()) return true;
  return std::any_of(object.children.begin(), object.children.end(),
                     [](const HwlocObject& child) { return has_numa_node(child); });
}

void collect_numa(const HwlocObject& object, std::vector<const HwlocObject*>& out) {
  for (const HwlocObject& memory : object.memory) {
    if (memory.type == HwlocType::numa) out.push_back(&memory);
    collect_numa(memory, out);
  }
}

std::string bytes_text(std::uint64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MB", bytes >> 20) : fmt::format("{} KB", bytes >> 10);
}

class Builder {
 public:
  Builder(HwlocTree tree, const std::string& source, const std::string& format) : tree_(std::move(tree)) {
    graph_.source = source;
    graph_.format = format;
    if (format == "hwloc-xml") graph_.version = tree_.version;
    graph_.distrusted = std::move(tree_.distrusted);
    graph_.notes = std::move(tree_.notes);
  }

  Graph build() {
    HwlocMarks::drop_invented(tree_.root);
    place(tree_.root, -1);
    number_devices();
    if (marks_.apply(tree_.root, graph_)) return std::move(graph_);
    memory_links();
    for (const HwlocDistances& d : tree_.distances) peer_links(d);
    socket_links();
    return std::move(graph_);
  }

 private:
  void distrust(const std::string& text) { graph_.distrusted.push_back(text); }
  Vertex& at(int v) { return graph_.vertices[std::size_t(v)]; }

  int add(const HwlocObject& object, VertexKind kind, int parent, std::string name) {
    Vertex v;
    v.kind = kind;
    v.parent = parent;
    v.os_index = object.pci || kind == VertexKind::cache ? -1 : object.os_index;
    v.name = std::move(name);
    v.pci = object.pci;
    v.bytes = object.bytes;
    if (kind < VertexKind::host_bridge) {
      v.cpus = to_cpu_set(object.cpus);
      v.index = counters_[kind]++;
    }
    for (const char* model : {"CPUModel", "GPUModel"})
      if (const std::string* text = object.info(model))
        v.printed.emplace_back(model, text->substr(0, text->find_last_not_of(' ') + 1));
    graph_.vertices.push_back(std::move(v));
    const int id = int(graph_.vertices.size()) - 1;
    if (object.number != 0) by_number_.emplace(object.number, id);
    marks_.remember(object, id);
    return id;
  }

  int package(const HwlocObject& object, int parent) {
    const int id = add(object, VertexKind::package, parent, fmt::format("package {}", counters_[VertexKind::package]));
    if (at(id).os_index < 0) at(id).os_index = at(id).index;  // -1 would say that it was inferred
    if (const std::string* vendor = object.info("CPUVendor")) vendors_[id] = *vendor;
    return id;
  }

  int numa(const HwlocObject& object, int parent) {
    const int id = add(object, VertexKind::numa, parent, fmt::format("NUMA node {}", object.os_index));
    if (!numa_seen_.insert(object.os_index).second)
      distrust(fmt::format("NUMA node {} is there twice", object.os_index));
    return id;
  }

  // The memory of a place: the node that holds what else is in it, others (HBM, NVM, GPU memory) as leaves.
  int memory(const std::vector<const HwlocObject*>& chain, int parent) {
    std::vector<const HwlocObject*> nodes;
    for (auto object = chain.rbegin(); object != chain.rend(); ++object) collect_numa(**object, nodes);
    const HwlocObject* holder = nullptr;
    const bool below = std::any_of(chain.back()->children.begin(), chain.back()->children.end(),
                                   [](const auto& c) { return has_numa_node(c); });
    for (const HwlocObject* node : nodes)
      if (!below && holder == nullptr && (!node->cpus.empty() || chain.back()->cpus.empty())) holder = node;
    int inside = parent;
    for (const HwlocObject* node : nodes) {
      const int id = numa(*node, parent);
      if (node == holder) inside = id;
    }
    return inside;
  }

  void place(const HwlocObject& object, int parent) {
    std::vector<const HwlocObject*> chain = {&object};
    while (holds_others(*chain.back()) && chain.back()->children.size() == 1 &&
           same_place(*chain.back(), chain.back()->children[0]))
      chain.push_back(&chain.back()->children[0]);
    int inside = parent;
    if (parent < 0) inside = add(object, VertexKind::machine, -1, "machine");
    for (const HwlocObject* o : chain)
      if (o->type == HwlocType::package) inside = package(*o, inside);
    inside = memory(chain, inside);
    const HwlocObject& last = *chain.back();
    if (last.type == HwlocType::cache && last.cache_type != 2)
      inside = add(last, VertexKind::cache, inside, fmt::format("L{} {}", last.cache_depth, bytes_text(last.bytes)));
    if (last.type == HwlocType::core)
      inside = add(last, VertexKind::core, inside, fmt::format("core {}", counters_[VertexKind::core]));
    if (last.type == HwlocType::pu) {
      inside = add(last, VertexKind::pu, inside, fmt::format("PU {}", last.os_index));
      if (!pus_seen_.insert(last.os_index).second)
        distrust(fmt::format("line {}: PU {} is there twice", last.line, last.os_index));
    }
    for (const HwlocObject* o : chain)
      for (const HwlocObject& device : o->devices) place_device(device, inside);
    for (const HwlocObject& child : last.children) place(child, inside);
  }

  static bool of_interest(const HwlocObject& o) {
    if (o.pci && o.type == HwlocType::pci_device && device_kind(*o.pci)) return true;
    if (o.type == HwlocType::os_device && HwlocMarks::kind(o)) return true;
    return HwlocMarks::kind(o) ||
           std::any_of(o.devices.begin(), o.devices.end(), [](const HwlocObject& d) { return of_interest(d); });
  }

  void place_device(const HwlocObject& o, int parent) {
    if (o.type == HwlocType::bridge && of_interest(o)) {
      const int id = o.host_bridge ? add(o, VertexKind::host_bridge, parent, "host bridge")
                                   : add(o, VertexKind::pci_bridge, parent, "bridge " + to_string(o.pci->address));
      if (o.pci) pci_link(o, id);
      for (const HwlocObject& below : o.devices) place_device(below, id);
      if (o.pci && emulated(*o.pci) && std::count_if(o.devices.begin(), o.devices.end(), of_interest) > 1)
        distrust(fmt::format("bridge {} is made up by a hypervisor: what hangs below need not share a switch",
                             to_string(o.pci->address)));
    } else if (o.type == HwlocType::pci_device) {
      place_function(o, parent);
    } else if (o.type == HwlocType::os_device) {
      place_loose(o, parent);
    }
  }

  void place_function(const HwlocObject& o, int parent) {
    const std::optional<VertexKind> marked = HwlocMarks::kind(o), kind = marked ? marked : device_kind(*o.pci);
    if (!kind) return;
    if (!addresses_.insert(o.pci->address).second && !marked)  // marked: two ports of one function, as NCCL has them
      return distrust(fmt::format("line {}: PCI function {} is there twice, the second is left out", o.line,
                                  to_string(o.pci->address)));
    const int id = add(o, *kind, parent, to_string(o.pci->address));
    locate(id);
    if (*kind == VertexKind::nic) add_names(id, o);
    if (*kind == VertexKind::gpu) at(id).logical_devices = logical_devices(o);
    pci_link(o, id);
    for (const HwlocObject& device : o.devices)
      if (device.number != 0) by_number_.emplace(device.number, id);
    if (!o.devices.empty() && *kind == VertexKind::gpu && at(id).printed.empty())
      for (const HwlocObject& device : o.devices)
        if (const std::string* model = device.info("GPUModel"); model && at(id).printed.empty())
          at(id).printed.emplace_back("GPUModel", *model);
  }

  // A network interface without a PCI function (paravirtual, USB): there, and never near anything.
  void place_loose(const HwlocObject& o, int parent) {
    const std::optional<VertexKind> marked = HwlocMarks::kind(o);
    if (!marked && o.os_device_type != 2 && o.os_device_type != 3) return;
    const int id = add(o, marked.value_or(VertexKind::nic), parent, o.name);
    at(id).os_index = -1;
    if (at(id).kind == VertexKind::nic && !marked) add_name(id, o);
    locate(id);
  }

  // Where a device is comes from the tree: files exist whose local CPUs are an empty set.
  void locate(int device) {
    const int node = graph_.ancestor(device, VertexKind::numa);
    if (node >= 0) at(device).numa = at(node).os_index;
    for (int v = at(device).parent; v >= 0; v = at(v).parent) {
      if (at(v).kind >= VertexKind::host_bridge) continue;
      at(device).cpus = at(v).cpus;
      if (at(v).cpus.empty() && at(v).parent >= 0) far_.push_back(at(v).name);
      return;
    }
  }

  void add_name(int nic, const HwlocObject& device) {
    if (device.os_device_type == 2) at(nic).net_names.push_back(device.name);
    if (device.os_device_type == 3) at(nic).verbs_names.push_back(device.name);
  }

  void add_names(int nic, const HwlocObject& function) {
    for (const HwlocObject& device : function.devices) add_name(nic, device);
    const Vertex& v = at(nic);
    at(nic).name = !v.verbs_names.empty() ? v.verbs_names[0]
                   : !v.net_names.empty() ? v.net_names[0]
                                          : to_string(v.pci->address);
  }

  // How many devices one driver makes of a function: ze0 and ze1 are two tiles, cuda0 and nvml0 are one device under
  // two names.
  static int logical_devices(const HwlocObject& function) {
    std::map<std::string, int> count;
    int most = 1;
    for (const HwlocObject& device : function.devices) {
      const std::string driver = device.name.substr(0, device.name.find_last_not_of("0123456789") + 1);
      const bool compute = driver == "cuda" || driver == "nvml" || driver == "rsmi" || driver == "ze";
      if (compute) most = std::max(most, ++count[driver]);
    }
    return most;
  }

  void pci_link(const HwlocObject& o, int id) {
    const double speed = o.link_gigabytes;
    if (speed <= 0) return;
    const Vertex& v = at(id);
    const bool fast = v.kind == VertexKind::gpu || v.kind == VertexKind::gpu_switch ||
                      (v.kind == VertexKind::nic && !v.verbs_names.empty());
    const std::string address = to_string(o.pci->address);
    if (speed > kMostPciGigabytes)
      return distrust(fmt::format("{}: PCI link of {} GB/s, more than any carries", address, speed));
    if (fast && speed < kLeastGpuGigabytes)
      return distrust(fmt::format("{}: PCI link of {} GB/s, as virtual machines report it", address, speed));
    if (emulated(*o.pci))
      return distrust(fmt::format("{}: PCI link of {} GB/s of a bridge made up by a hypervisor", address, speed));
    graph_.links.push_back({v.parent, id, LinkKind::pci, 1, {}, {speed * 1e9, Origin::read, "hwloc pci_link_speed"}});
  }

  // GPUs in the order of their addresses, not the driver's; NICs without an address last.
  void number_devices() {
    for (const VertexKind kind : {VertexKind::gpu, VertexKind::nic, VertexKind::accelerator, VertexKind::gpu_switch}) {
      std::vector<int> order = graph_.all(kind);
      std::stable_sort(order.begin(), order.end(), [this](int a, int b) {
        const auto &x = at(a).pci, &y = at(b).pci;
        return x && (!y || x->address < y->address);
      });
      for (std::size_t i = 0; i < order.size(); ++i) {
        at(order[i]).index = int(i);
        if (kind == VertexKind::gpu) at(order[i]).name = fmt::format("GPU {}", i);
      }
    }
    std::sort(far_.begin(), far_.end());
    far_.erase(std::unique(far_.begin(), far_.end()), far_.end());
    for (const std::string& name : far_)
      distrust(fmt::format("{}: has devices and an empty set of CPUs; the tree tells where they are", name));
  }

  void memory_links() {
    std::map<int, Link> links;
    for (const HwlocMemoryFigure& figure : tree_.memory) {
      const auto found = by_number_.find(figure.target);
      if (found == by_number_.end() || at(found->second).kind != VertexKind::numa) continue;
      Link& link =
          links.emplace(found->second, Link{at(found->second).parent, found->second, LinkKind::memory}).first->second;
      if (figure.bandwidth >= kMostMemoryMegabytes) {
        distrust(fmt::format("{}: memory of {} MB/s", at(found->second).name, figure.bandwidth));
      } else if (figure.bandwidth > 0) {
        link.bandwidth = {double(figure.bandwidth) * 1e6, Origin::read, "hwloc memory attribute Bandwidth"};
      }
      if (figure.latency > 0)
        link.latency = {double(figure.latency) * 1e-9, Origin::read, "hwloc memory attribute Latency"};
    }
    for (const auto& [node, link] : links)
      if (link.bandwidth.known() || link.latency.known()) graph_.links.push_back(link);
  }

  // NVLink and XGMI, from the matrices that hwloc's NVML and RSMI components write: MB/s, all links of a pair together.
  void peer_links(const HwlocDistances& d) {
    const bool nvlink = d.name == "NVLinkBandwidth", xgmi = d.name == "XGMIBandwidth";
    if ((!nvlink && !xgmi) || d.by_os_index) return;
    const std::size_t n = d.objects.size();
    const double one = megabytes_of_one(d, nvlink);
    std::set<std::pair<int, int>> done;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = i + 1; j < n; ++j) {
        const std::uint64_t value = std::min(d.values[i * n + j], d.values[j * n + i]);
        const auto a = by_number_.find(d.objects[i]), b = by_number_.find(d.objects[j]);
        if (value == 0 || a == by_number_.end() || b == by_number_.end() || a->second == b->second) continue;
        if (double(value) > one * 64) {
          distrust(
              fmt::format("{} of {} MB/s between {} and {}", d.name, value, at(a->second).name, at(b->second).name));
          continue;
        }
        const std::pair<int, int> ends = std::minmax(a->second, b->second);
        if (!done.insert(ends).second) continue;
        const int count = std::max(1, int(double(value) / one + 0.5));
        graph_.links.push_back({ends.first,
                                ends.second,
                                nvlink ? LinkKind::nvlink : LinkKind::xgmi,
                                count,
                                {},
                                {double(value) * 1e6, Origin::read, "hwloc " + d.name}});
      }
  }

  // NVLink 1 carries 20 GB/s a direction, 2 to 4 carry 25, 5 carries 50; XGMI counts as one.
  static double megabytes_of_one(const HwlocDistances& d, bool nvlink) {
    if (!nvlink) return 1e6;
    const std::size_t n = d.objects.size();
    bool by_25 = true;
    for (std::size_t i = 0; i < n * n; ++i)
      if (i % (n + 1) != 0 && d.values[i] % 25000 != 0) by_25 = false;
    return by_25 ? 25000 : 20000;
  }

  // Nobody writes down what joins the packages. By maker, what devices of two packages get of each other: Infinity
  // Fabric, the X bus of POWER, UPI and the like.
  void socket_links() {
    const std::vector<int> packages = graph_.all(VertexKind::package);
    if (packages.size() > 64) return;
    for (std::size_t i = 0; i < packages.size(); ++i)
      for (std::size_t j = i + 1; j < packages.size(); ++j) {
        const std::string vendor = vendors_.count(packages[i]) ? vendors_[packages[i]] : "";
        const double gigabytes = vendor == "AuthenticAMD" ? 16 : vendor.empty() && of_power() ? 32 : 10;
        graph_.links.push_back({packages[i],
                                packages[j],
                                LinkKind::socket,
                                1,
                                {},
                                {gigabytes * 1e9, Origin::assumed,
                                 vendor.empty() ? "assumed between packages" : "assumed for " + vendor}});
      }
  }

  bool of_power() const {
    const std::string* architecture = tree_.root.info("Architecture");
    return architecture != nullptr && architecture->rfind("ppc64", 0) == 0;
  }

  HwlocTree tree_;
  Graph graph_;
  HwlocMarks marks_;
  std::map<VertexKind, int> counters_;
  std::map<std::uint64_t, int> by_number_;  // gp_index to vertex
  std::map<int, std::string> vendors_;
  std::set<int> numa_seen_, pus_seen_;
  std::set<PciAddress> addresses_;
  std::vector<std::string> far_;
};

}  // namespace

Graph build_graph(HwlocTree tree, const std::string& source, const std::string& format) {
  return Builder(std::move(tree), source, format).build();
}

}  // namespace tutti::topology
