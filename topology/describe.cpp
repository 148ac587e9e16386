#include "topology/describe.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "topology/answers.h"

namespace tutti::topology {
namespace {

using nlohmann::json;

class Description {
 public:
  explicit Description(const Graph& graph)
      : graph_(graph),
        gpus_(graph.all(VertexKind::gpu)),
        nics_(graph.all(VertexKind::nic)),
        matrix_(graph.format == "nvidia-smi" || graph.format == "rocm-smi") {}

  json all() {
    source();
    counts();
    gpus();
    nics();
    places();
    links();
    others();
    if (matrix_) columns();
    if (gpus_.size() > 1) {
      near();
      levels();
      rings();
      if (matrix_) label_rings();
    }
    near_nics();
    return std::move(out_);
  }

 private:
  const Vertex& at(int vertex) const { return graph_.vertices[std::size_t(vertex)]; }
  int number(int position) const {
    const int index = at(gpus_[std::size_t(position)]).index;
    return index >= 0 ? index : position;
  }
  json numbers(const std::vector<int>& positions) const {
    json list = json::array();
    for (const int p : positions) list.push_back(number(p));
    return list;
  }
  json numbers(const std::optional<Groups>& groups) const {
    if (!groups) return nullptr;
    json list = json::array();
    for (const std::vector<int>& group : *groups) list.push_back(numbers(group));
    return list;
  }
  std::string key(std::size_t position) const { return std::to_string(number(int(position))); }
  bool has(VertexKind kind) const { return !graph_.all(kind).empty(); }
  void put(const char* name, json list) {
    if (!list.empty()) out_[name] = std::move(list);
  }

  void source() {
    put("xml_version", graph_.version.empty() ? json() : json(graph_.version));
    if (graph_.truncated) out_["truncated"] = true;
    for (const std::string& note : graph_.notes)
      if (note.rfind(kSocketsNote, 0) == 0) out_["socket_basis"] = note.substr(sizeof(kSocketsNote) - 1);
    put("notes", graph_.notes);
    put("distrusted", graph_.distrusted);
  }

  void counts() {
    out_["gpus"] = gpus_.size();
    const auto real = [this](int nic) { return matrix_ || at(nic).pci; };
    out_["nics"] = std::count_if(nics_.begin(), nics_.end(), real);
    int logical = 0;
    for (const int gpu : gpus_) logical += at(gpu).logical_devices;
    if (logical > int(gpus_.size())) out_["logical_gpus"] = logical;
    const std::vector<int> packages = graph_.all(VertexKind::package), nodes = graph_.all(VertexKind::numa);
    if (!packages.empty()) out_["sockets"] = packages.size();
    if (matrix_) return;
    out_["numa_nodes"] = nodes.size();
    const auto empty = std::count_if(nodes.begin(), nodes.end(), [this](int n) { return at(n).cpus.empty(); });
    if (graph_.format != "nccl-xml" && empty > 0) out_["numa_nodes_without_cpu"] = empty;
    if (graph_.format != "nccl-xml") return;
    for (const int node : nodes) out_["numa_ids_in_file"].push_back(at(node).os_index);
  }

  void gpus() {
    json busid = json::array(), id = json::array();
    bool ids = true;
    for (const int gpu : gpus_) {
      if (!at(gpu).pci) return;
      ids = ids && at(gpu).pci->vendor != 0;
      busid.push_back(to_string(at(gpu).pci->address));
      id.push_back(fmt::format("{:04x}:{:04x}", at(gpu).pci->vendor, at(gpu).pci->device));
    }
    put("gpu_busid", busid);
    if (ids) put("gpu_pci_id", id);
  }

  void nics() {
    json list = json::array(), names = json::array(), nets = json::array(), loose = json::array();
    std::set<PciAddress> functions;
    for (const int nic : nics_) {
      const Vertex& v = at(nic);
      for (const std::string& name : names_of(v)) names.push_back(name);
      if (!v.pci) {
        for (const std::string& name : names_of(v)) loose.push_back(name);
        continue;
      }
      if (!v.net_names.empty() || !v.verbs_names.empty())
        for (const std::string& name : names_of(v)) nets.push_back(name);
      if (v.pci->device_class >> 8 == 0x02) functions.insert(v.pci->address);
      list.push_back({{"busid", to_string(v.pci->address)},
                      {"class", fmt::format("{:04x}", v.pci->device_class)},
                      {"rdma", v.verbs_names},
                      {"net", v.net_names},
                      {"socket", socket(nic)}});
    }
    if (matrix_) return put("nic_names", names);
    if (graph_.format != "nccl-xml") {
      put("nic_list", list);
      return put("net_osdevs_without_pci", loose);
    }
    put("net_names", nets);
    put("virtual_nets_without_pci", loose);
    if (!functions.empty()) out_["nic_pci_functions"] = functions.size();
  }

  json socket(int vertex) const {
    const int package = package_of(graph_, vertex);
    return package < 0 ? json() : json(at(package).index);
  }

  void places() {
    json numa = json::array(), sockets = json::array();
    bool any_numa = false;
    for (const int gpu : gpus_) {
      const int node = numa_of(graph_, gpu), id = node >= 0 ? at(node).os_index : at(gpu).numa;
      numa.push_back(id >= 0 ? json(id) : json());
      sockets.push_back(socket(gpu));
      any_numa = any_numa || id >= 0;
    }
    if (any_numa) put("gpu_numa", numa);
    if (has(VertexKind::package)) put("gpu_socket", sockets);
  }

  // Direct links between GPUs, and how many go elsewhere.
  void links() {
    std::map<int, int> position;
    for (std::size_t i = 0; i < gpus_.size(); ++i) position[gpus_[i]] = int(i);
    std::map<std::pair<int, int>, int> direct;
    std::map<std::string, int> elsewhere;
    for (const Link& link : graph_.links) {
      if (link.kind != LinkKind::nvlink && link.kind != LinkKind::xgmi) continue;
      const auto a = position.find(link.a), b = position.find(link.b);
      if (a != position.end() && b != position.end()) {
        direct[std::minmax(number(a->second), number(b->second))] += link.count;
      } else if (a != position.end() || b != position.end()) {
        elsewhere[std::to_string(number(a != position.end() ? a->second : b->second))] += link.count;
      }
    }
    json list = json::array();
    for (const auto& [pair, count] : direct) list.push_back({pair.first, pair.second, count});
    if (!matrix_) put("direct_links", list);
    put("links_to_switch_or_unlisted", elsewhere);
  }

  // Devices that are neither GPU nor NIC: display chips (class 03) and other accelerators.
  void others() {
    json display = json::array(), accelerators = json::array(), leaves = json::array();
    std::map<std::pair<int, int>, std::size_t> place;
    for (const int v : graph_.all(VertexKind::accelerator)) {
      if (!at(v).pci) continue;
      const PciFunction& pci = *at(v).pci;
      const std::string busid = to_string(pci.address);
      if (pci.device_class >> 8 == 0x03) {
        display.push_back(fmt::format("{} {:04x}:{:04x}", busid, pci.vendor, pci.device));
      } else if (pci.device_class != 0) {
        accelerators.push_back(fmt::format("{} {:04x} {:04x}:{:04x}", busid, pci.device_class, pci.vendor, pci.device));
      } else if (at(v).numa >= 0) {
        const int parent = at(v).parent;
        const auto [group, added] = place.emplace(std::pair(at(v).numa, parent), leaves.size());
        const bool bridge = at(parent).kind == VertexKind::pci_bridge && at(parent).pci;
        if (added)
          leaves.push_back({{"numa", at(v).numa},
                            {"switch", bridge ? to_string(at(parent).pci->address) : "root"},
                            {"leaves", json::array()}});
        leaves[group->second]["leaves"].push_back(busid);
      }
    }
    put("not_gpus_display_only", display);
    put("other_accelerators", accelerators);
    put("leaves_by_numa_and_switch", leaves);
  }

  void columns() {
    for (const auto& [name, title] :
         {std::pair("gpu_cpu_affinity", "CPU Affinity"), std::pair("gpu_numa_affinity", "NUMA Affinity")}) {
      json list = json::array();
      bool any = false;
      for (const int gpu : gpus_) {
        json cell;
        for (const auto& [column, text] : at(gpu).printed)
          if (column == title) cell = text;
        any = any || !cell.is_null();
        list.push_back(cell);
      }
      if (any) out_[name] = list;
    }
    std::set<int> nodes;
    for (const int gpu : gpus_) nodes.insert(numa_of(graph_, gpu));
    if (!nodes.empty() && *nodes.begin() >= 0) out_["numa_nodes_with_gpus"] = nodes.size();
  }

  void near() {
    const std::vector<std::vector<int>> nearest = nearest_gpus(graph_);
    const bool none = std::all_of(nearest.begin(), nearest.end(), [](const auto& list) { return list.empty(); });
    if (!matrix_ || !none)
      for (std::size_t i = 0; i < nearest.size(); ++i) {
        out_["nearest_gpu"][key(i)] = numbers(nearest[i]);
        out_["nearest_gpu_level"][key(i)] =
            nearest[i].empty() ? to_string(Level::machine) : label(gpus_[i], gpus_[std::size_t(nearest[i][0])]);
      }
    if (const std::optional<Groups> groups = nearest_groups(graph_)) {
      out_["groups"] = numbers(groups);
    } else {
      out_["groups_omitted"] = matrix_ ? "the labels do not form groups, or some are not known"
                                       : "the nearest-GPU relation is not mutual, use nearest_gpu and groups_by_level";
    }
  }

  std::string label(int a, int b) const { return nearness(graph_, a, b).label; }

  void levels() {
    json by_level = json::object();
    if (matrix_) {
      label_levels(by_level);
    } else {
      by_level["SWITCH"] = numbers(groups_at(graph_, Level::pci_switch));
      if (has(VertexKind::host_bridge)) by_level["HOSTBRIDGE"] = numbers(groups_at(graph_, Level::host_bridge));
      if (has(VertexKind::numa)) by_level["NUMA"] = numbers(groups_at(graph_, Level::numa));
      if (has(VertexKind::package) && !packages_inferred(graph_))
        by_level["PACKAGE"] = numbers(groups_at(graph_, Level::package));
    }
    put("groups_by_level", by_level);
    const auto put_groups = [this](const char* name, const std::optional<Groups>& groups) {
      if (groups) out_[name] = numbers(groups);
    };
    put_groups("groups_by_numa", groups_within(graph_, VertexKind::numa));
    put_groups("groups_by_socket", groups_within(graph_, VertexKind::package));
    if (matrix_ && out_.count("groups_by_numa") == 0) put_groups("groups_by_cpu_affinity", groups_by_cpus(graph_));
  }

  // The best label, and the groups at each label but the crossings of sockets, from the best to the worst.
  void label_levels(json& by_level) {
    Nearness best;
    std::set<std::string> labels;
    for (std::size_t i = 0; i < gpus_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const Nearness n = nearness(graph_, gpus_[i], gpus_[j]);
        if (!n.known()) return;
        if (n.order > best.order) best = n;
        if (n.level != Level::machine) labels.insert(n.label);
      }
    if (names_link(best.label)) {
      out_["closest_level"] = "LINK";
      return;
    }
    if (best.level == Level::machine) return;
    out_["closest_level"] = best.label;
    for (const std::string& text : labels) by_level[text] = numbers(groups_by_label(graph_, text));
  }

  void rings() {
    const Ring best = best_ring(graph_), plain = index_ring(graph_);
    out_["ring"] = numbers(best.order);
    if (packages_known(graph_)) {
      out_["min_cross_socket_hops_in_ring"] = best.cross_package;
      out_["cross_socket_hops_of_index_order"] = plain.cross_package;
    }
    if (groups_within(graph_, VertexKind::numa)) {
      out_["min_cross_numa_hops_in_ring"] = best.cross_numa;
      out_["cross_numa_hops_of_index_order"] = plain.cross_numa;
    }
  }

  void label_rings() {
    if (out_.count("closest_level") == 0) return;
    const Ring ring = label_ring(graph_);
    out_["ring_by_labels"] = numbers(ring.order);
    out_["min_sys_label_hops_in_ring"] = ring.cross_label;
    if (out_.count("groups_by_cpu_affinity") != 0)
      out_["min_cross_affinity_hops_in_ring"] = affinity_ring(graph_).cross_affinity;
  }

  json names(const std::vector<int>& nics) const {
    std::set<std::string> sorted;
    for (const int nic : nics)
      for (const std::string& name : names_of(at(nics_[std::size_t(nic)]))) sorted.insert(name);
    return sorted;
  }

  // {"GPU": names} of the GPUs that have any; the others go to `without`.
  json by_gpu(const std::vector<std::vector<int>>& nics, json& without) const {
    json map = json::object();
    for (std::size_t i = 0; i < nics.size(); ++i) {
      if (nics[i].empty()) {
        without.push_back(number(int(i)));
      } else {
        map[key(i)] = names(nics[i]);
      }
    }
    return map;
  }

  void near_nics() {
    if (gpus_.empty() || out_["nics"] == 0) return;
    const std::vector<std::vector<int>> nearest = nearest_nics(graph_), rdma = nearest_rdma_nics(graph_);
    json without = json::array(), without_rdma = json::array(), same_socket = json::object();
    out_["nearest_nic"] = by_gpu(nearest, without);
    out_["nearest_nic_level"] = json::object();
    for (std::size_t i = 0; i < nearest.size(); ++i)
      if (!nearest[i].empty()) out_["nearest_nic_level"][key(i)] = label(gpus_[i], nics_[std::size_t(nearest[i][0])]);
    if (!graph_.truncated) put("no_local_nic", without);
    const std::vector<std::vector<int>> of_package = package_nics(graph_);
    for (std::size_t i = 0; i < nearest.size(); ++i)
      if (nearest[i].empty() && !of_package[i].empty()) same_socket[key(i)] = names(of_package[i]);
    put("nearest_nic_same_socket", same_socket);
    const json map = by_gpu(rdma, without_rdma);
    const bool some = std::any_of(nics_.begin(), nics_.end(), [this](int nic) { return !at(nic).verbs_names.empty(); });
    if (matrix_ || !some || map == out_["nearest_nic"]) return;
    out_["nearest_rdma_nic"] = map;
    put("no_local_rdma_nic", without_rdma);
  }

  const Graph& graph_;
  std::vector<int> gpus_, nics_;
  bool matrix_;
  json out_ = json::object();
};

}  // namespace

std::vector<std::string> names_of(const Vertex& nic) {
  if (!nic.verbs_names.empty()) return nic.verbs_names;
  if (!nic.net_names.empty()) return nic.net_names;
  return {nic.pci ? to_string(nic.pci->address) : nic.name};
}

nlohmann::json describe(const Graph& graph) { return Description(graph).all(); }

}  // namespace tutti::topology
