#pragma once
// Graph: what is wired to what, as a value. Vertices form the containment tree of a machine (machine, package, NUMA
// node, cache, core, PU; host bridge, PCI bridges, devices), links carry figures, each with where it came from. A Graph
// knows no files, no libraries, no ranks and no algorithms; readers make it (read.h), answers.h asks it.
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::topology {

enum class Origin : std::uint8_t { assumed, read, measured };

// A number with its pedigree. 0: unknown.
struct Figure {
  double value = 0;
  Origin origin = Origin::assumed;
  std::string source;               // "sysfs current_link_speed", "NCCL XML speed", "PCIe 4.0 x16 by generation"
  bool known() const { return value > 0; }
  bool operator==(const Figure&) const = default;
};

enum class VertexKind : std::uint8_t {
  machine, package, numa, cache, core, pu,
  host_bridge, pci_bridge,          // a bridge below a host bridge: switch port or root port
  gpu, nic, accelerator,            // accelerator: FPGA, class 0b40: never in a ring of GPUs
  gpu_switch,                       // NVSwitch and its like
};

struct PciAddress {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0, device = 0, function = 0;
  auto operator<=>(const PciAddress&) const = default;
};
std::string to_string(const PciAddress& address);                          // "0000:13:00.0"
std::optional<PciAddress> parse_pci_address(const std::string& text);       // with or without domain

struct PciFunction {
  PciAddress address;
  std::uint16_t device_class = 0;   // 0x0302
  std::uint16_t vendor = 0, device = 0;
  bool operator==(const PciFunction&) const = default;
};

// Indices of processing units as the operating system counts them.
class CpuSet {
 public:
  void insert(int first, int last);                       // inclusive
  bool empty() const { return ranges_.empty(); }
  int count() const;
  bool contains(int cpu) const;
  bool intersects(const CpuSet& other) const;
  const std::vector<std::pair<int, int>>& ranges() const { return ranges_; }   // ascending, disjoint, not adjacent
  std::string to_string() const;                          // "0-3,8"
  bool operator==(const CpuSet&) const = default;

 private:
  std::vector<std::pair<int, int>> ranges_;
};

// "0-3,8" as in /sys; nullopt: something else, or an index from kMaxCpu on.
inline constexpr int kMaxCpu = 1 << 16;
std::optional<CpuSet> parse_cpu_list(const std::string& text);

struct Vertex {
  VertexKind kind = VertexKind::machine;
  int parent = -1;                  // in Graph::vertices; -1: the root, which comes first. Parents come before children
  int index = -1;                   // GPU number, logical index of packages and NUMA nodes; in the order of the source
  int os_index = -1;                // the operating system's
  std::string name;                 // for people: "GPU 0", "mlx5_0", "L3 32 MB"
  std::optional<PciFunction> pci;
  CpuSet cpus;                      // of machine..pu: inside; of devices: near, where the source says so
  int numa = -1;                    // devices: os_index of the NUMA node, -1 unknown
  std::uint64_t bytes = 0;          // memory of a NUMA node, size of a cache
  std::vector<std::string> net_names, verbs_names;        // of a NIC: eth0, mlx5_0
  int logical_devices = 1;          // of a GPU: how many devices the driver makes of it (tiles, partitions)
  std::vector<std::pair<std::string, std::string>>
      printed;  // what the source prints beside it: ("NUMA Affinity", "N/A")
  bool operator==(const Vertex&) const = default;
};

enum class LinkKind : std::uint8_t { memory, pci, nvlink, xgmi, socket, network };

// Between a vertex and its parent, or between any two; network: from a NIC out of the
// machine, b is -1. Figures are for one direction.
struct Link {
  int a = -1, b = -1;
  LinkKind kind = LinkKind::memory;
  int count = 1;                    // bonded links; bandwidth is of all together
  Figure latency;                   // seconds
  Figure bandwidth;                 // bytes a second
  bool operator==(const Link&) const = default;
};

// How near two devices are: the kind of their deepest common ancestor.
enum class Level : std::uint8_t { same_device, pci_switch, host_bridge, numa, package, machine };

// Sources that give labels instead of a tree (nvidia-smi topo -m): nearness of a pair, as printed.
struct Relation {
  int a = -1, b = -1;               // vertices, a < b
  Level level = Level::machine;
  std::string label;                // "NV12", "PIX", "SYS"
  bool operator==(const Relation&) const = default;
};

struct Graph {
  std::string source;               // "live", or the file
  std::string format;               // "hwloc", "hwloc-xml", "nccl-xml", "nvidia-smi", "rocm-smi", "synthetic", "fsroot"
  std::string version;              // of the format, where the source names one
  bool truncated = false;           // the source lacks rows or cells: nothing is claimed of what they would say
  std::vector<Vertex> vertices;
  std::vector<Link> links;
  std::vector<Relation> relations;  // where there are any, they stand above the tree; in order of (a, b)
  std::vector<std::string> distrusted;   // what the source said and was not believed, with the reason
  std::vector<std::string> notes;        // what was inferred ("sockets inferred from CPU affinity")

  std::vector<int> all(VertexKind kind) const;             // in order of Vertex::index, then of vertices
  int ancestor(int vertex, VertexKind kind) const;         // the nearest of that kind above (or itself); -1: none
  bool operator==(const Graph&) const = default;
};

}  // namespace tutti::topology
