// read_nccl_xml: topologies in the form of NCCL_TOPO_FILE, NCCL's and RCCL's. It believes the containment that the file
// states and only those figures that can be true; what the file omits stays unknown.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "topology/describe.h"
#include "topology/device_kind.h"
#include "topology/package_guess.h"
#include "topology/pci_speed.h"
#include "topology/read.h"

namespace tutti::topology {
namespace {

constexpr int kMaxDepth = 64;  // PCI has 256 buses; real trees are 12 deep
constexpr std::size_t kMaxVertices = 65536;
constexpr std::size_t kMaxBytes = std::size_t(64) << 20;
constexpr std::size_t kMaxRemarks = 1000;  // of a hostile file
constexpr int kMaxCpus = 1 << 16;
constexpr int kMaxLinkCount = 64;  // NVLink 5 has 18 a GPU

// Below this a GPU's PCI link is what a virtual machine makes up, or a link asleep.
constexpr double kLeastGpuBandwidth = 1e9;
constexpr double kMostNetMegabits = 3.2e6;

template <class T>
std::optional<T> parse_whole(const char* text, int base = 10) {
  const std::size_t length = std::strlen(text);
  if (base == 16 && length > 2 && text[0] == '0' && (text[1] | 0x20) == 'x') text += 2;
  T value{};
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value, base);
  return error == std::errc() && rest == end && rest != text ? std::optional<T>(value) : std::nullopt;
}

// "000000ff,ffff0000": 32-bit words, the highest first.
std::optional<CpuSet> parse_affinity(const std::string& text) {
  CpuSet cpus;
  std::vector<std::uint32_t> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const auto word = parse_whole<std::uint32_t>(text.substr(at, comma - at).c_str(), 16);
    if (!word || words.size() * 32 >= std::size_t(kMaxCpus)) return std::nullopt;
    words.push_back(*word);
    at = comma + 1;
  }
  std::reverse(words.begin(), words.end());
  const int bits = int(words.size()) * 32;
  const auto set = [&words](int i) { return (words[std::size_t(i / 32)] >> (i % 32) & 1) != 0; };
  for (int first = 0; first < bits; ++first) {
    if (!set(first)) continue;
    int last = first;
    while (last + 1 < bits && set(last + 1)) ++last;
    cpus.insert(first, last);
    first = last;
  }
  return cpus;
}

enum class PciKind { bridge, gpu, nic, gpu_switch, accelerator, display, unknown };

class Reader {
 public:
  Reader(const std::string& text, const std::string& name) : text_(text), name_(name) {
    graph_.source = name;
    graph_.format = "nccl-xml";
  }

  Result<Graph> read() {
    if (text_.size() > kMaxBytes)
      return Status(Code::invalid_argument,
                    fmt::format("{}: {} bytes; expected at most {}", name_, text_.size(), kMaxBytes));
    pugi::xml_document document;
    const pugi::xml_parse_result parsed =
        document.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed)
      return Status(Code::invalid_argument,
                    fmt::format("{}:{}: not XML: {}; expected <system> with <cpu> and <pci> elements, all closed",
                                name_, line_at(parsed.offset), parsed.description()));
    const pugi::xml_node system = document.document_element();
    if (std::strcmp(system.name(), "system") != 0)
      return wrong(system, fmt::format("expected <system>, found <{}>", system.name()));
    graph_.version = system.attribute("version").value();
    Status status = read_system(system);
    if (!status.ok()) return status;
    return finish();
  }

 private:
  struct Cpu {
    pugi::xml_node node;
    int numa = -1;
    NumaFacts facts;
    std::string affinity, basis;  // basis: as write_nccl_xml notes it
    int socket = -1, socket_logical = -1;
    int package = -1;  // vertex
  };
  struct PendingLink {
    pugi::xml_node node;
    int gpu;
  };

  int line_at(std::ptrdiff_t offset) const {
    const std::size_t end = std::min(std::size_t(std::max<std::ptrdiff_t>(offset, 0)), text_.size());
    return 1 + int(std::count(text_.begin(), text_.begin() + std::ptrdiff_t(end), '\n'));
  }
  Status wrong(const pugi::xml_node& node, const std::string& what) const {
    return {Code::invalid_argument, fmt::format("{}:{}: {}", name_, line_at(node.offset_debug()), what)};
  }
  void distrust(std::string what) {
    if (graph_.distrusted.size() < kMaxRemarks) graph_.distrusted.push_back(std::move(what));
  }
  void note(std::string what) {
    if (graph_.notes.size() < kMaxRemarks) graph_.notes.push_back(std::move(what));
  }
  Vertex& at(int vertex) { return graph_.vertices[std::size_t(vertex)]; }
  int add(VertexKind kind, int parent, std::string name) {
    Vertex v;
    v.kind = kind;
    v.parent = parent;
    v.name = std::move(name);
    graph_.vertices.push_back(std::move(v));
    return int(graph_.vertices.size()) - 1;
  }

  Status read_system(const pugi::xml_node& system) {
    add(VertexKind::machine, -1, "machine");
    survey(system);
    std::vector<Cpu> cpus;
    std::set<std::string> hosts;
    for (const pugi::xml_node& child : system.children()) {
      if (std::strcmp(child.name(), "cpu") != 0) continue;
      Cpu cpu;
      const Status status = read_cpu_facts(child, cpu);
      if (!status.ok()) return status;
      hosts.insert(child.attribute("host_hash").value());
      cpus.push_back(std::move(cpu));
    }
    if (hosts.size() > 1)
      return {Code::unsupported,
              fmt::format("{}: describes {} hosts (host_hash differs); a topology is of one host: give one file a host",
                          name_, hosts.size())};
    if (cpus.empty() && !system.child("pci"))
      return wrong(system, "expected a <cpu> or <pci> element inside of <system>, found none");
    check_numa_ids(cpus);
    check_affinities(cpus);
    place_packages(cpus);
    std::map<int, int> vertex_of;
    for (Cpu& cpu : cpus) {
      const int vertex = place_cpu(cpu, vertex_of);
      const Status status = read_children(cpu.node, vertex, cpu.numa, 1);
      if (!status.ok()) return status;
    }
    return read_children(system, 0, -1, 1);
  }

  // Whether the file has <gpu> elements and <net> elements behind a PCI function at all: where it has, only those
  // count.
  void survey(const pugi::xml_node& system) {
    struct Walker : pugi::xml_tree_walker {
      bool gpu = false, net = false;
      bool for_each(pugi::xml_node& node) override {
        gpu = gpu || std::strcmp(node.name(), "gpu") == 0;
        net = net || (std::strcmp(node.name(), "net") == 0 && std::strcmp(node.parent().parent().name(), "pci") == 0) ||
              (std::strcmp(node.name(), "net") == 0 && std::strcmp(node.parent().name(), "pci") == 0);
        return true;
      }
    } walker;
    pugi::xml_node root = system;
    root.traverse(walker);
    has_gpus_ = walker.gpu;
    has_nets_ = walker.net;
  }

  Status read_cpu_facts(const pugi::xml_node& node, Cpu& cpu) {
    cpu.node = node;
    const auto numa = parse_whole<int>(node.attribute("numaid").value());
    if (!numa)
      return wrong(node, fmt::format("numaid=\"{}\"; expected a whole number", node.attribute("numaid").value()));
    cpu.numa = *numa;
    cpu.affinity = node.attribute("affinity").value();
    if (!cpu.affinity.empty()) {
      const auto cpus = parse_affinity(cpu.affinity);
      if (!cpus)
        return wrong(node,
                     fmt::format("affinity=\"{:.80}\"; expected 32-bit hexadecimal words with commas", cpu.affinity));
      cpu.facts.cpus = *cpus;
    }
    cpu.facts.os_index = cpu.numa;
    cpu.facts.amd = std::strcmp(node.attribute("vendor").value(), "AuthenticAMD") == 0;
    cpu.facts.family = cpuid_family(parse_whole<int>(node.attribute("familyid").value()).value_or(-1), cpu.facts.amd);
    cpu.facts.model = parse_whole<int>(node.attribute("modelid").value()).value_or(-1);
    cpu.socket = parse_whole<int>(node.attribute("tutti_socket").value()).value_or(-1);
    cpu.socket_logical = parse_whole<int>(node.attribute("tutti_socket_index").value()).value_or(-1);
    cpu.basis = node.attribute("tutti_socket_basis").value();
    return {};
  }

  void check_numa_ids(std::vector<Cpu>& cpus) {
    for (Cpu& cpu : cpus) {
      if (cpu.numa >= 0) continue;
      if (cpus.size() == 1) {
        note(fmt::format("numaid {} of the only <cpu> is read as NUMA node 0", cpu.numa));
        cpu.numa = cpu.facts.os_index = 0;
      } else {
        distrust(fmt::format("numaid {}: no NUMA node; its devices are placed below the machine only", cpu.numa));
        cpu.numa = -1;
      }
    }
  }

  void check_affinities(std::vector<Cpu>& cpus) {
    std::vector<bool> bad(cpus.size(), false);
    for (std::size_t i = 0; i < cpus.size(); ++i) {
      if (cpus[i].affinity.empty()) continue;
      if (cpus[i].facts.cpus.empty()) distrust(fmt::format("NUMA node {}: an affinity without any CPU", cpus[i].numa));
      for (std::size_t j = 0; j < cpus.size(); ++j) {
        if (i == j || cpus[i].numa == cpus[j].numa) continue;
        if (cpus[i].facts.cpus.intersects(cpus[j].facts.cpus)) bad[i] = true;
        // Where one mask is filled up with zeros, all are of its width.
        if (cpus[j].affinity.rfind("00", 0) == 0 && cpus[i].affinity.size() < cpus[j].affinity.size()) short_[i] = true;
      }
    }
    for (std::size_t i = 0; i < cpus.size(); ++i) {
      if (bad[i])
        distrust(
            fmt::format("NUMA node {}: affinity {:.80} overlaps that of another node", cpus[i].numa, cpus[i].affinity));
      if (!bad[i] && short_[i])
        distrust(fmt::format("NUMA node {}: affinity {:.80} is shorter than the other nodes', a digit is missing",
                             cpus[i].numa, cpus[i].affinity));
      if (bad[i] || short_[i]) cpus[i].facts.cpus = CpuSet();
    }
  }

  // Packages come from the file where write_nccl_xml put them, else from a guess.
  void place_packages(std::vector<Cpu>& cpus) {
    std::vector<NumaFacts> facts;
    std::set<int> seen;
    bool stated = false;
    for (const Cpu& cpu : cpus) {
      if (cpu.numa >= 0 && seen.insert(cpu.numa).second) facts.push_back(cpu.facts);
      stated = stated || cpu.node.attribute("tutti_socket_index");
    }
    std::map<int, int> logical;  // by NUMA node
    std::map<int, int> os;       // by logical index
    if (stated) {
      for (const Cpu& cpu : cpus) {
        if (cpu.numa < 0 || cpu.socket_logical < 0 || cpu.socket_logical > 1024) continue;
        logical[cpu.numa] = cpu.socket_logical;
        os[cpu.socket_logical] = cpu.socket;
        basis_ = cpu.basis;
      }
      for (int p = os.empty() || basis_.empty() ? 0 : os.rbegin()->first; p > 0; --p)
        os.emplace(p - 1, -1);  // a guess has all of them
    } else {
      const PackageGuess guess = guess_packages(facts);
      for (std::size_t i = 0; i < guess.package.size(); ++i) logical[facts[i].os_index] = guess.package[i];
      for (int p = 0; p < guess.count; ++p) os[p] = -1;
      basis_ = guess.basis;
    }
    if (!basis_.empty()) note(kSocketsNote + basis_);
    std::map<int, int> vertex;
    for (const auto& [index, os_index] : os) {
      vertex[index] = add(VertexKind::package, 0, fmt::format("package {}", index));
      at(vertex[index]).index = index;
      at(vertex[index]).os_index = os_index;
    }
    for (Cpu& cpu : cpus)
      if (const auto found = logical.find(cpu.numa); found != logical.end()) cpu.package = vertex[found->second];
  }

  int place_cpu(const Cpu& cpu, std::map<int, int>& vertex_of) {
    if (cpu.numa < 0) return 0;
    const auto [found, added] = vertex_of.emplace(cpu.numa, 0);
    if (!added) {
      note(fmt::format("NUMA node {} occurs twice; both parts are one", cpu.numa));
      return found->second;
    }
    const int vertex = add(VertexKind::numa, std::max(cpu.package, 0), fmt::format("NUMA node {}", cpu.numa));
    at(vertex).index = int(vertex_of.size()) - 1;
    at(vertex).os_index = cpu.numa;
    at(vertex).cpus = cpu.facts.cpus;
    return found->second = vertex;
  }

  // Children of <system>, <cpu> or <pci>.
  Status read_children(const pugi::xml_node& node, int parent, int numa, int depth) {
    if (depth > kMaxDepth)
      return wrong(node, fmt::format("elements nested more than {} deep; expected a PCI tree", kMaxDepth));
    if (graph_.vertices.size() > kMaxVertices) return wrong(node, fmt::format("more than {} devices", kMaxVertices));
    for (const pugi::xml_node& child : node.children()) {
      const std::string tag = child.name();
      Status status;
      if (tag == "pci") {
        status = read_pci(child, parent, numa, depth);
      } else if (tag == "nic") {
        for (const pugi::xml_node& net : child.children("net")) read_net(net, parent, numa, std::nullopt);
      } else if (tag == "net") {
        read_net(child, parent, numa, std::nullopt);
      } else if (tag == "gpu") {
        status = wrong(child, fmt::format("<gpu> inside of <{}>; expected it inside of <pci>", node.name()));
      } else if (!tag.empty() && tag != "cpu" && ignored_.insert(tag).second) {
        note(fmt::format("elements <{:.40}> are not used", tag));
      }
      if (!status.ok()) return status;
    }
    return {};
  }

  PciKind kind_of(const pugi::xml_node& node, const PciFunction& pci) const {
    const int base = pci.device_class >> 8;
    const bool computes = pci.vendor == 0 || device_kind(pci) == VertexKind::gpu;  // the maker may be left out
    if (node.child("gpu")) return PciKind::gpu;
    if (node.child("nic") || node.child("net")) return PciKind::nic;
    if (node.child("pci") || base == 0x06)
      return pci.device_class == 0x0680 && !node.child("pci") ? PciKind::gpu_switch : PciKind::bridge;
    if (base == 0x03 || base == 0x12) return !has_gpus_ && computes ? PciKind::gpu : PciKind::display;
    if (base == 0x02) return has_nets_ ? PciKind::accelerator : PciKind::nic;
    return pci.device_class == 0 ? PciKind::unknown : PciKind::accelerator;
  }

  Status read_pci(const pugi::xml_node& node, int parent, int numa, int depth) {
    const char* const busid = node.attribute("busid").value();
    const std::optional<PciAddress> address = parse_pci_address(busid);
    if (!address) return wrong(node, fmt::format("busid=\"{:.40}\"; expected domain:bus:device.function", busid));
    for (int v = parent; v >= 0; v = at(v).parent)
      if (at(v).pci && at(v).pci->address == *address)
        return wrong(node, fmt::format("{} lies inside of itself; expected a tree", busid));
    PciFunction pci;
    pci.address = *address;
    pci.device_class = std::uint16_t(parse_whole<std::uint32_t>(node.attribute("class").value(), 16).value_or(0) >> 8);
    pci.vendor = std::uint16_t(parse_whole<std::uint32_t>(node.attribute("vendor").value(), 16).value_or(0));
    pci.device = std::uint16_t(parse_whole<std::uint32_t>(node.attribute("device").value(), 16).value_or(0));
    const PciKind kind = kind_of(node, pci);
    const bool again = !seen_.emplace(*address, kind).second;
    if (again && kind != PciKind::bridge) {
      distrust(fmt::format("{} is listed twice; only the first is taken", busid));
      return {};
    }
    if (again || !addresses_.insert(*address).second)
      distrust(fmt::format("{} is the address of two devices; each stays where it stands", busid));
    if (pci.vendor == 0xffff && kind == PciKind::bridge)
      distrust(fmt::format("bridge {} is a stand-in (vendor ffff): what is below it is believed, its address is not",
                           busid));
    if (const char* bridge = node.attribute("tutti_host_bridge").value(); *bridge != '\0')
      parent = host_bridge(parent, bridge);
    const std::size_t before = graph_.vertices.size();
    read_function(node, kind, pci, parent, numa);
    if (graph_.vertices.size() == before) return {};
    const int vertex = int(before);
    read_speed(node, vertex, kind);
    if (kind == PciKind::gpu || kind == PciKind::nic) return {};
    return read_children(node, vertex, numa, depth + 1);
  }

  int host_bridge(int parent, const std::string& name) {
    const auto [found, added] = host_bridges_.emplace(std::pair(parent, name), 0);
    if (added) found->second = add(VertexKind::host_bridge, parent, "host bridge " + name);
    return found->second;
  }

  void read_function(const pugi::xml_node& node, PciKind kind, const PciFunction& pci, int parent, int numa) {
    const std::string busid = to_string(pci.address);
    if (kind == PciKind::nic && node.child("nic")) {
      for (const pugi::xml_node& nic : node.children("nic"))
        for (const pugi::xml_node& net : nic.children("net")) read_net(net, parent, numa, pci);
      return;
    }
    if (kind == PciKind::nic && node.child("net")) {
      for (const pugi::xml_node& net : node.children("net")) read_net(net, parent, numa, pci);
      return;
    }
    static const std::map<PciKind, std::pair<VertexKind, const char*>> kKinds = {
        {PciKind::bridge, {VertexKind::pci_bridge, "PCI bridge"}},
        {PciKind::gpu, {VertexKind::gpu, "GPU"}},
        {PciKind::nic, {VertexKind::nic, "NIC"}},
        {PciKind::gpu_switch, {VertexKind::gpu_switch, "GPU switch"}},
        {PciKind::accelerator, {VertexKind::accelerator, "device"}},
        {PciKind::display, {VertexKind::accelerator, "display"}},
        {PciKind::unknown, {VertexKind::accelerator, "unknown device"}},
    };
    const auto& [vertex_kind, word] = kKinds.at(kind);
    const int vertex = add(vertex_kind, parent, fmt::format("{} {}", word, busid));
    at(vertex).pci = pci;
    at(vertex).numa = numa;
    if (kind == PciKind::nic) at(vertex).index = nics_++;
    if (kind == PciKind::unknown) unknown_ = true;
    if (kind == PciKind::gpu) read_gpus(node, vertex);
  }

  void read_gpus(const pugi::xml_node& node, int vertex) {
    int count = 0;
    for (const pugi::xml_node& gpu : node.children("gpu")) {
      if (count++ > 0) continue;
      numbers_[vertex] = {parse_whole<int>(gpu.attribute("rank").value()).value_or(-1),
                          parse_whole<int>(gpu.attribute("dev").value()).value_or(-1)};
      sm_[vertex] = parse_whole<int>(gpu.attribute("sm").value()).value_or(0);
      gcn_[vertex] = gpu.attribute("gcn").value();
      for (const char* tag : {"nvlink", "xgmi"})
        for (const pugi::xml_node& link : gpu.children(tag)) links_.push_back({link, vertex});
    }
    at(vertex).logical_devices = std::clamp(count, 1, 64);
  }

  void read_net(const pugi::xml_node& net, int parent, int numa, const std::optional<PciFunction>& pci) {
    const std::string name = net.attribute("name").value();
    const int vertex = add(VertexKind::nic, parent, name.empty() ? (pci ? to_string(pci->address) : "net") : name);
    at(vertex).pci = pci;
    at(vertex).numa = numa;
    at(vertex).index = nics_++;
    // The plugin of verbs counts ports from 1, the one of sockets has none.
    const bool verbs = parse_whole<int>(net.attribute("port").value()).value_or(0) > 0;
    if (!name.empty()) (verbs ? at(vertex).verbs_names : at(vertex).net_names).push_back(name);
    const char* const text = net.attribute("speed").value();
    if (*text == '\0') return;
    const double megabits = parse_whole<int>(text).value_or(-1);
    if (megabits <= 0 || megabits > kMostNetMegabits) {
      distrust(fmt::format("{}: speed {:.20} Mbit/s", at(vertex).name, text));
      return;
    }
    Link link;
    link.a = vertex;
    link.kind = LinkKind::network;
    link.bandwidth = {megabits * 1e6 / 8, Origin::read, fmt::format("NCCL XML speed {:.0f} Mbit/s", megabits)};
    graph_.links.push_back(link);
  }

  void read_speed(const pugi::xml_node& node, int vertex, PciKind kind) {
    const std::string speed = node.attribute("link_speed").value(), width = node.attribute("link_width").value();
    if (speed.empty() || width.empty()) return;
    const std::optional<PciSpeed> parsed = parse_pci_speed(speed, width);
    const double bandwidth = parsed ? bytes_per_second(*parsed) : 0;
    if (!parsed || (kind == PciKind::gpu && bandwidth < kLeastGpuBandwidth)) {
      distrust(fmt::format("{}: PCI link of {:.30} x{:.10}{}", at(vertex).name, speed, width,
                           parsed ? ": no GPU has that few lanes in use" : ""));
      return;
    }
    Link link;
    link.a = vertex;
    link.b = at(vertex).parent;
    link.kind = LinkKind::pci;
    link.bandwidth = {bandwidth, Origin::read, "NCCL XML link_speed " + to_string(*parsed)};
    graph_.links.push_back(link);
  }

  Result<Graph> finish() {
    number_gpus();
    read_links();
    if (unknown_) note("leaf <pci> elements without a class: the file alone cannot tell GPUs from NICs");
    return std::move(graph_);
  }

  // GPU numbers: ranks where they are 0..n-1, else device numbers where they differ, else the order of bus ids.
  void number_gpus() {
    std::vector<int> gpus = graph_.all(VertexKind::gpu);
    std::set<int> ranks, devs;
    for (const int gpu : gpus) {
      const auto [rank, dev] = numbers_.count(gpu) != 0 ? numbers_[gpu] : std::pair(-1, -1);
      if (rank >= 0 && rank < int(gpus.size())) ranks.insert(rank);
      if (dev >= 0 && dev < 4096) devs.insert(dev);
    }
    std::sort(gpus.begin(), gpus.end(), [this](int a, int b) { return at(a).pci->address < at(b).pci->address; });
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const int gpu = gpus[i];
      at(gpu).index = ranks.size() == gpus.size()  ? numbers_[gpu].first
                      : devs.size() == gpus.size() ? numbers_[gpu].second
                                                   : int(i);
      at(gpu).name = fmt::format("GPU {}", at(gpu).index);
    }
    if (!numbers_.empty() && ranks.size() != gpus.size() && devs.size() != gpus.size())
      distrust("GPU numbers (rank, dev) are missing or occur twice: GPUs are numbered in order of bus ids");
  }

  void read_links() {
    std::map<PciAddress, int> by_address;
    for (const VertexKind kind : {VertexKind::gpu, VertexKind::gpu_switch, VertexKind::accelerator})
      for (const int v : graph_.all(kind))
        if (at(v).pci) by_address.emplace(at(v).pci->address, v);
    std::map<std::pair<int, int>, Link> ends;  // as each end states it
    for (const PendingLink& pending : links_) read_link(pending, by_address, ends);
    for (const auto& [pair, link] : ends) {
      const auto back = ends.find({pair.second, pair.first});
      if (back != ends.end() && back->second.count != link.count && pair.first < pair.second)
        distrust(fmt::format("{} has {} links to {}, which has {} back: the lower number is taken", at(pair.first).name,
                             link.count, at(pair.second).name, back->second.count));
      if (back != ends.end() && pair.first > pair.second) continue;
      Link out = link;
      if (back != ends.end() && back->second.count < out.count) out = back->second;
      graph_.links.push_back(out);
    }
  }

  void read_link(const PendingLink& pending, std::map<PciAddress, int>& by_address,
                 std::map<std::pair<int, int>, Link>& ends) {
    const std::string target = pending.node.attribute("target").value();
    const int count = parse_whole<int>(pending.node.attribute("count").value()).value_or(1);
    const std::uint32_t tclass = parse_whole<std::uint32_t>(pending.node.attribute("tclass").value(), 16).value_or(0);
    const std::string who = at(pending.gpu).name;
    if (count <= 0 || count > kMaxLinkCount) return distrust(fmt::format("{}: {} links to {:.40}", who, count, target));
    const int other = end_of_link(pending.gpu, target, tclass, by_address);
    if (other == pending.gpu) return distrust(fmt::format("{}: {} links to itself", who, count));
    if (other < 0) return distrust(fmt::format("{}: {} links to \"{:.40}\"; expected a bus id", who, count, target));
    Link link;
    link.a = pending.gpu;
    link.b = other;
    link.kind = std::strcmp(pending.node.name(), "xgmi") == 0 ? LinkKind::xgmi : LinkKind::nvlink;
    link.count = count;
    link.bandwidth = link_bandwidth(pending.gpu, link.kind, count);
    const auto [found, added] = ends.emplace(std::pair(link.a, link.b), link);
    if (!added) {
      found->second.count += count;
      found->second.bandwidth = link_bandwidth(pending.gpu, link.kind, found->second.count);
    }
  }

  int end_of_link(int gpu, const std::string& target, std::uint32_t tclass, std::map<PciAddress, int>& by_address) {
    if (tclass == 0x068001) return graph_.ancestor(gpu, VertexKind::numa);  // POWER's processors
    const std::optional<PciAddress> address = parse_pci_address(target);
    const bool to_switch = tclass >> 8 == 0x0680;
    if (!address && !to_switch) return -1;
    if (!address) {  // "fffffff:ffff:ff"
      if (any_switch_ < 0) any_switch_ = add(VertexKind::gpu_switch, 0, "GPU switch");
      return any_switch_;
    }
    const auto [found, added] = by_address.emplace(*address, 0);
    if (added) {
      found->second = add(to_switch ? VertexKind::gpu_switch : VertexKind::accelerator, 0,
                          (to_switch ? "GPU switch " : "a GPU that is not listed, ") + to_string(*address));
      at(found->second).pci = PciFunction{*address};
    }
    return found->second;
  }

  // What the generation of the link carries in one direction, by data sheets.
  Figure link_bandwidth(int gpu, LinkKind kind, int count) const {
    const int sm = sm_.count(gpu) != 0 ? sm_.at(gpu) : 0;
    const std::string gcn = gcn_.count(gpu) != 0 ? gcn_.at(gpu) : "";
    double each = 0;
    if (kind == LinkKind::nvlink) {
      each = sm >= 100 ? 50e9 : sm >= 70 ? 25e9 : sm >= 60 ? 20e9 : 0;
    } else {
      each = gcn.find("94") != std::string::npos || gcn.find("95") != std::string::npos ? 64e9
             : gcn.find("90a") != std::string::npos || gcn == "910"                     ? 50e9
                                                                                        : 46e9;
    }
    if (each <= 0) return {};
    return {each * count, Origin::assumed,
            fmt::format("{} of {:.0f} GB/s by generation", kind == LinkKind::nvlink ? "NVLink" : "xGMI", each / 1e9)};
  }

  const std::string& text_;
  const std::string& name_;
  Graph graph_;
  bool has_gpus_ = false, has_nets_ = false, unknown_ = false;
  int nics_ = 0, any_switch_ = -1;
  std::string basis_;
  std::set<std::string> ignored_;
  std::set<std::pair<PciAddress, PciKind>> seen_;
  std::set<PciAddress> addresses_;
  std::map<std::size_t, bool> short_;
  std::map<std::pair<int, std::string>, int> host_bridges_;
  std::map<int, std::pair<int, int>> numbers_;  // of a GPU's vertex: rank, dev
  std::map<int, int> sm_;
  std::map<int, std::string> gcn_;
  std::vector<PendingLink> links_;
};

}  // namespace

Result<Graph> read_nccl_xml(const std::string& text, const std::string& name) { return Reader(text, name).read(); }

}  // namespace tutti::topology
