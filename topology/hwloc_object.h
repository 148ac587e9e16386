#pragma once
// HwlocObject: hwloc's tree as its XML says it, in the form of version 2 (memory beside the tree, not in it), checked
// and without what may not be used. It is only the way from the text to the Graph; nobody keeps one.
//
// hwloc's own importer trusts its input (version 2.9 ends the process on some of it), so XML is read here; libhwloc is
// used for what only it can do (hwloc_load.h), and what it finds comes through the same XML.
#include <tutti/status.h>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

// A set of CPUs or NUMA nodes, as hwloc writes it: "0x0000000f,,0xff000000", the highest word first.
struct HwlocBits {
  std::vector<std::uint32_t> words;  // lowest first, no zero word at the end
  bool endless = false;              // "0xf...f": everything above, too

  bool empty() const { return words.empty() && !endless; }
  int first() const;  // -1: none
  int count() const;  // of the listed words
  bool contains(int bit) const;
  void insert(int bit);
  void add(const HwlocBits& other);
  void keep(const HwlocBits& other);
  bool operator==(const HwlocBits&) const = default;
};
std::optional<HwlocBits> parse_hwloc_bits(const std::string& text);
std::string to_string(const HwlocBits& bits);
CpuSet to_cpu_set(const HwlocBits& bits);
HwlocBits to_hwloc_bits(const CpuSet& cpus);

enum class HwlocType : std::uint8_t {
  machine,
  package,
  group,
  numa,
  memory_cache,
  cache,
  core,
  pu,  // group: also a die and what this reader does not know
  bridge,
  pci_device,
  os_device,
  misc,
};

struct HwlocObject {
  HwlocType type = HwlocType::group;
  int line = 0;
  std::string type_text;  // as written
  int os_index = -1;
  std::uint64_t number = 0;  // gp_index, what distances refer to; 0: none
  std::string name, subtype;
  HwlocBits cpus, nodes;
  bool has_cpus = false;                // the text names them, however few
  int order = -1;                       // among brothers: the first CPU, forbidden ones included
  std::uint64_t bytes = 0;              // of a cache, of a NUMA node
  int cache_depth = 0, cache_type = 0;  // cache_type 2: instructions
  int os_device_type = -1;              // 1 GPU, 2 network, 3 OpenFabrics, 5 co-processor
  bool host_bridge = false;
  std::optional<PciFunction> pci;
  double link_gigabytes = 0;  // per second, of a PCI function; 0: unknown
  std::vector<std::pair<std::string, std::string>> infos;
  std::vector<HwlocObject> children;  // CPU side
  std::vector<HwlocObject> memory;    // NUMA nodes and the caches before them
  std::vector<HwlocObject> devices;   // bridges, PCI and operating-system devices

  const std::string* info(const std::string& key) const;  // the first of that name, or nullptr
};

// A square of figures between objects, as hwloc's <distances2> and <distances2hetero>.
struct HwlocDistances {
  std::string name;                    // "NVLinkBandwidth"
  std::vector<std::uint64_t> objects;  // HwlocObject::number, or operating-system indices of NUMA nodes
  bool by_os_index = false;
  std::vector<std::uint64_t> values;  // objects.size() squared
};

struct HwlocMemoryFigure {
  std::uint64_t target = 0;     // HwlocObject::number of a NUMA node
  std::uint64_t bandwidth = 0;  // MB/s, the best initiator's
  std::uint64_t latency = 0;    // ns
};

struct HwlocTree {
  std::string version;  // "1", "2.0"
  HwlocObject root;
  std::vector<HwlocDistances> distances;
  std::vector<HwlocMemoryFigure> memory;
  std::vector<std::string> distrusted, notes;
};

// Limits of what is believed to be a machine.
inline constexpr std::size_t kMaxHwlocText = 64u << 20;  // the largest known export is 6 MB
inline constexpr int kMaxHwlocDepth = 128;               // real trees have less than 40 levels
inline constexpr int kMaxHwlocIndex = 1 << 17;           // CPUs; the largest single images have 6,144

// invalid_argument: "NAME:LINE: ...", what was expected and what stands there. unsupported: XML 3.
Result<HwlocTree> parse_hwloc_xml(const std::string& text, const std::string& name);

// Takes away what lies outside of `cpus`, as hwloc does with what a cgroup forbids: PUs, then whatever holds nothing
// any more. Packages with memory or devices stay.
void restrict_to(HwlocTree& tree, const HwlocBits& cpus);

Graph build_graph(HwlocTree tree, const std::string& source, const std::string& format);

}  // namespace tutti::topology
