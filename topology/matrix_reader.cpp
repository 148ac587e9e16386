// read_matrix: a Graph from the tables of nvidia-smi topo -m and rocm-smi --showtopo. They name no PCI functions: the
// graph has relations, and a tree only as far as the affinity columns tell one.
#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "topology/answers.h"
#include "topology/describe.h"
#include "topology/matrix_text.h"
#include "topology/package_guess.h"
#include "topology/read.h"

namespace tutti::topology {
namespace {

constexpr int kMaxNuma = 1 << 12;
constexpr int kMaxLinks = 64;  // NVLink 5 has 18 a GPU
constexpr std::size_t kMaxBytes = std::size_t(8) << 20;
constexpr std::size_t kMaxRemarks = 1000;

std::optional<int> parse_number(const std::string& text, int limit) {
  int value = -1;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && rest == text.data() + text.size() && value >= 0 && value < limit
             ? std::optional<int>(value)
             : std::nullopt;
}

// One device of either form, before it becomes a vertex.
struct Device {
  std::string name;
  int gpu = -1;
  std::vector<std::string> cells;
  std::vector<std::pair<std::string, std::string>> columns;
  CpuSet cpus;
  int numa = -1;
  int package = -1;  // of the guess
};

class Builder {
 public:
  Builder(std::vector<Device> devices, const std::string& name, std::string format) : devices_(std::move(devices)) {
    graph_.source = name;
    graph_.format = std::move(format);
  }

  // Of rocm-smi: how far a PCIE pair is. 2 hops: one package; 3 and more: not told.
  std::vector<std::vector<std::string>> hops;

  Graph build() {
    make_symmetric();
    for (Device& device : devices_)
      if (device.gpu >= 0) read_columns(device);
    doubt_columns();
    guess();
    place();
    relate();
    find_missing();
    return std::move(graph_);
  }

 private:
  void distrust(std::string what) {
    if (graph_.distrusted.size() < kMaxRemarks) graph_.distrusted.push_back(std::move(what));
  }
  std::size_t count() const { return devices_.size(); }
  const std::string& cell(std::size_t i, std::size_t j) const { return devices_[i].cells[j]; }
  bool is_gpu(std::size_t i) const { return devices_[i].gpu >= 0; }

  static bool known(const std::string& label) {
    if (names_link(label)) return links_of(label) > 0;
    return names_socket_crossing(label) || label == "NODE" || label == "PHB" || label == "PXB" || label == "PIX" ||
           label == "PCIE";
  }
  // "NV4": 4, "XGMI": 1, "NV0" and "NV999": 0, which no GPU has.
  static int links_of(const std::string& label) {
    if (label == "XGMI" || label == "MX") return 1;
    return parse_number(label.substr(2), kMaxLinks + 1).value_or(0);
  }
  static int distance(const std::string& label) {
    const std::vector<std::string> order = {"PIX", "PXB", "PHB", "NODE"};
    return names_link(label) ? -1 : int(std::find(order.begin(), order.end(), label) - order.begin());
  }

  static bool farther(const std::string& a, const std::string& b) {
    if (!names_link(a) || !names_link(b)) return distance(a) > distance(b);
    return links_of(a) < links_of(b);
  }

  // A cell that is missing is what its mirror says; of two that differ the farther is taken.
  void make_symmetric() {
    for (std::size_t i = 0; i < count(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        std::string& a = devices_[i].cells[j];
        std::string& b = devices_[j].cells[i];
        for (std::string* label : {&a, &b})
          if (!label->empty() && !known(*label)) {
            distrust(fmt::format("{} to {}: label \"{:.20}\" is not one that is known", devices_[i].name,
                                 devices_[j].name, *label));
            label->clear();
          }
        if (!a.empty() && !b.empty() && a != b) {
          distrust(fmt::format("{} to {} is {}, back it is {}: the farther is taken", devices_[i].name,
                               devices_[j].name, a, b));
          (farther(a, b) ? b : a).clear();
        }
        if (a.empty()) a = b;
        b = a;
      }
  }

  void read_columns(Device& device) {
    for (const auto& [title, text] : device.columns) {
      if (text == "N/A") continue;
      if (title == "CPU Affinity") {
        if (const auto cpus = parse_cpu_list(text); cpus && !cpus->empty()) {
          device.cpus = *cpus;
        } else {
          distrust(fmt::format("{}: CPU affinity \"{:.40}\" is not a list of CPUs", device.name, text));
        }
      } else if (title == "NUMA Affinity") {
        if (const auto numa = parse_number(text, kMaxNuma)) {
          device.numa = *numa;
        } else {
          distrust(fmt::format("{}: NUMA affinity \"{:.40}\" is not one node", device.name, text));
        }
      }
    }
  }

  // An affinity that is the same for GPUs which a socket crossing parts is that of the process (a cpuset), not of the
  // GPUs; and so is the CPU affinity where the NUMA affinity names several nodes.
  void doubt_columns() {
    bool apart = false, several = false, differ = false;
    const Device* first = nullptr;
    for (std::size_t i = 0; i < count(); ++i) {
      if (!is_gpu(i)) continue;
      first = first != nullptr ? first : &devices_[i];
      differ = differ || devices_[i].cpus != first->cpus;
      for (std::size_t j = 0; j < i; ++j) apart = apart || (is_gpu(j) && names_socket_crossing(cell(i, j)));
      for (const auto& [title, text] : devices_[i].columns)
        several = several || (title == "NUMA Affinity" && devices_[i].numa < 0 && text != "N/A");
    }
    if (first == nullptr || first->cpus.empty() || differ || !(apart || several)) return;
    distrust(fmt::format("CPU affinity {} is the same for all GPUs, though {}: it is the process's",
                         first->cpus.to_string(),
                         several ? "they have several NUMA nodes" : "some are joined only across sockets"));
    for (Device& device : devices_) device.cpus = CpuSet();
  }

  void guess() {
    std::map<int, NumaFacts> nodes;
    bool all = true;
    for (std::size_t i = 0; i < count(); ++i) {
      if (!is_gpu(i)) continue;
      all = all && devices_[i].numa >= 0;
      if (devices_[i].numa < 0) continue;
      nodes[devices_[i].numa].os_index = devices_[i].numa;
      if (nodes[devices_[i].numa].cpus.empty()) nodes[devices_[i].numa].cpus = devices_[i].cpus;
    }
    PackageGuess guess;
    if (all) {
      std::vector<NumaFacts> facts;
      for (const auto& [id, node] : nodes) facts.push_back(node);
      guess = guess_packages(facts);
      for (Device& device : devices_)
        for (std::size_t n = 0; n < guess.package.size(); ++n)
          if (device.numa == facts[n].os_index) device.package = guess.package[n];
    } else if (nodes.empty()) {
      guess = guess_by_labels();
    }
    packages_ = guess.count;
    if (!guess.basis.empty()) graph_.notes.push_back(kSocketsNote + guess.basis);
  }

  // Without NUMA columns: sets of devices that something nearer than SYS joins. One set or two tell packages; more may
  // be NUMA nodes.
  PackageGuess guess_by_labels() {
    std::vector<int> set(count());
    std::iota(set.begin(), set.end(), 0);
    const auto root = [&set](int i) {
      while (set[std::size_t(i)] != i) i = set[std::size_t(i)];
      return i;
    };
    bool node = false;
    for (std::size_t i = 0; i < count(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const std::string& label = cell(i, j);
        if (label.empty() || label == "PCIE" || label == "XGMI") return {};
        if (names_link(label) || names_socket_crossing(label)) continue;
        node = node || label == "NODE";
        set[std::size_t(root(int(i)))] = root(int(j));
      }
    std::map<int, int> packages;  // of the sets that hold GPUs
    for (std::size_t i = 0; i < count(); ++i)
      if (is_gpu(i)) packages.emplace(root(int(i)), int(packages.size()));
    if (packages.empty() || packages.size() > 2) return {};
    for (std::size_t i = 0; i < count(); ++i)
      if (const auto found = packages.find(root(int(i))); found != packages.end()) devices_[i].package = found->second;
    PackageGuess guess;
    guess.count = int(packages.size());
    guess.basis = guess.count == 2 ? "inferred: two sets of devices, joined by SYS or links only"
                  : node           ? "inferred: no pair of GPUs is SYS, all share a NUMA node"
                                   : "inferred: no pair is SYS or NODE, one host bridge complex";
    return guess;
  }

  int add(VertexKind kind, int parent, std::string name) {
    Vertex v;
    v.kind = kind;
    v.parent = parent;
    v.name = std::move(name);
    graph_.vertices.push_back(std::move(v));
    return int(graph_.vertices.size()) - 1;
  }

  // A NIC stands where the GPUs stand that it is at most NODE away from.
  void place_nic(std::size_t nic) {
    for (std::size_t gpu = 0; gpu < count(); ++gpu) {
      const std::string& label = cell(nic, gpu);
      if (!is_gpu(gpu) || label.empty() || names_socket_crossing(label) || label == "PCIE") continue;
      devices_[nic].numa = devices_[gpu].numa;
      if (devices_[nic].package < 0) devices_[nic].package = devices_[gpu].package;
    }
  }

  void place() {
    add(VertexKind::machine, -1, "machine");
    std::map<int, int> package, numa;
    for (int p = 0; p < packages_; ++p) {
      package[p] = add(VertexKind::package, 0, fmt::format("package {}", p));
      graph_.vertices.back().index = p;
    }
    for (std::size_t i = 0; i < count(); ++i)
      if (!is_gpu(i)) place_nic(i);
    std::map<int, const Device*> nodes;
    for (const Device& device : devices_)
      if (device.gpu >= 0 && device.numa >= 0) nodes.emplace(device.numa, &device);
    for (const auto& [id, device] : nodes) {
      numa[id] =
          add(VertexKind::numa, device->package >= 0 ? package[device->package] : 0, fmt::format("NUMA node {}", id));
      graph_.vertices.back().index = int(numa.size()) - 1;
      graph_.vertices.back().os_index = id;
      graph_.vertices.back().cpus = device->cpus;
    }
    int nics = 0;
    for (const Device& device : devices_) {
      const int parent = numa.count(device.numa) != 0 ? numa[device.numa]
                         : device.package >= 0        ? package[device.package]
                                                      : 0;
      vertex_.push_back(add(device.gpu >= 0 ? VertexKind::gpu : VertexKind::nic, parent,
                            device.gpu >= 0 ? fmt::format("GPU {}", device.gpu) : device.name));
      Vertex& v = graph_.vertices.back();
      v.index = device.gpu >= 0 ? device.gpu : nics++;
      v.cpus = device.cpus;
      v.numa = device.numa;
      v.printed = device.columns;
      const bool placeholder = device.name.rfind("NIC", 0) == 0 && parse_number(device.name.substr(3), kMaxNuma);
      if (device.gpu < 0 && !placeholder) v.verbs_names = {device.name};
    }
  }

  Level level_of(std::size_t i, std::size_t j) const {
    const std::string& label = cell(i, j);
    if (label == "PIX" || label == "PXB") return Level::pci_switch;
    if (label == "PHB") return Level::host_bridge;
    if (label == "NODE") return Level::numa;
    const bool same = devices_[i].numa >= 0 && devices_[i].numa == devices_[j].numa;
    if (names_link(label) && same) return Level::numa;
    if (label == "PCIE" && (same || (!hops.empty() && hops[i][j] == "2"))) return Level::numa;
    return Level::machine;
  }

  void relate() {
    int contradictions = 0;
    std::string contradiction;
    for (std::size_t i = 0; i < count(); ++i)
      for (std::size_t j = 0; j < count(); ++j) {
        if (vertex_[i] >= vertex_[j] || cell(i, j).empty()) continue;
        graph_.relations.push_back({vertex_[i], vertex_[j], level_of(i, j), cell(i, j)});
        if (names_link(cell(i, j))) add_link(i, j);
        const bool same = devices_[i].numa >= 0 && devices_[i].numa == devices_[j].numa && is_gpu(i) && is_gpu(j);
        if (same && names_socket_crossing(cell(i, j)) && contradictions++ == 0)
          contradiction = fmt::format("{} to {} is {}, yet both are near NUMA node {}", devices_[i].name,
                                      devices_[j].name, cell(i, j), devices_[i].numa);
      }
    if (contradictions > 0)
      distrust(fmt::format("{}{}: the node is believed", contradiction,
                           contradictions > 1 ? fmt::format(", and {} more such pairs", contradictions - 1) : ""));
    std::sort(graph_.relations.begin(), graph_.relations.end(),
              [](const Relation& x, const Relation& y) { return std::pair(x.a, x.b) < std::pair(y.a, y.b); });
  }

  void add_link(std::size_t i, std::size_t j) {
    Link link;
    link.a = vertex_[i];
    link.b = vertex_[j];
    link.kind = cell(i, j) == "XGMI" ? LinkKind::xgmi : LinkKind::nvlink;
    link.count = links_of(cell(i, j));
    graph_.links.push_back(link);
  }

  // Truncated: a pair of GPUs, or of a GPU and a NIC, of which neither row tells.
  void find_missing() {
    for (std::size_t i = 0; i < count(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if ((is_gpu(i) || is_gpu(j)) && cell(i, j).empty()) graph_.truncated = true;
    if (graph_.truncated)
      graph_.notes.push_back("rows or cells are missing: nothing is said of pairs that no row tells");
  }

  std::vector<Device> devices_;
  std::vector<int> vertex_;  // of each device
  int packages_ = 0;
  Graph graph_;
};

Result<Graph> read_nvidia(const std::string& text, const std::string& name) {
  Result<MatrixText> matrix = parse_nvidia_matrix(text, name);
  if (!matrix.ok()) return matrix.status();
  std::vector<Device> devices;
  for (const MatrixText::Device& d : matrix->devices) {
    Device device;
    device.name = d.legend.empty() ? d.name : d.legend;
    device.gpu = d.gpu;
    device.cells = d.cells;
    device.columns = d.columns;
    devices.push_back(std::move(device));
  }
  return Builder(std::move(devices), name, "nvidia-smi").build();
}

Result<Graph> read_rocm(const std::string& text, const std::string& name) {
  Result<RocmText> rocm = parse_rocm_matrix(text, name);
  if (!rocm.ok()) return rocm.status();
  const auto types = rocm->tables.find("Link Type");
  const auto hops = rocm->tables.find("Hops");
  const MatrixText* const table =
      types != rocm->tables.end() && !types->second.devices.empty() ? &types->second : nullptr;
  if (table == nullptr)
    return Status(
        Code::invalid_argument,
        fmt::format("{}:1: no table \"Link Type between two GPUs\"; expected one with a row for each GPU", name));
  std::vector<Device> devices;
  for (std::size_t i = 0; i < table->devices.size(); ++i) {
    const MatrixText::Device& d = table->devices[i];
    Device device;
    device.name = d.name;
    device.gpu = d.gpu;
    device.cells = d.cells;
    if (device.cells[i] == "0" || device.cells[i] == "X") device.cells[i].clear();
    if (const auto columns = rocm->columns.find(d.gpu); columns != rocm->columns.end())
      device.columns = columns->second;
    devices.push_back(std::move(device));
  }
  Builder builder(std::move(devices), name, "rocm-smi");
  const auto same_order = [&](const MatrixText& t) {
    return t.devices.size() == table->devices.size() &&
           std::equal(t.devices.begin(), t.devices.end(), table->devices.begin(),
                      [](const auto& a, const auto& b) { return a.gpu == b.gpu; });
  };
  if (hops != rocm->tables.end() && same_order(hops->second))
    for (const MatrixText::Device& d : hops->second.devices) builder.hops.push_back(d.cells);
  return builder.build();
}

}  // namespace

Result<Graph> read_matrix(const std::string& text, const std::string& name) {
  if (text.size() > kMaxBytes)
    return Status(Code::invalid_argument,
                  fmt::format("{}:1: {} bytes; expected at most {}", name, text.size(), kMaxBytes));
  return looks_like_rocm(text) ? read_rocm(text, name) : read_nvidia(text, name);
}

}  // namespace tutti::topology
