// The way from hwloc's XML to its tree: text in, HwlocTree or a Status with line and expectation out. Versions 1 and 2.
// It does not know what the objects mean for communication; hwloc_graph.cpp does.
#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <pugixml.hpp>

#include "topology/hwloc_object.h"
#include "topology/read.h"
#include "topology/text_lines.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMaxDistanceObjects = 4096;

struct TypeName {
  const char* text;
  HwlocType type;
  int cache_depth = 0, cache_type = 0;
};
constexpr TypeName kTypeNames[] = {
    {"Machine", HwlocType::machine},
    {"System", HwlocType::machine},
    {"Package", HwlocType::package},
    {"Socket", HwlocType::package},
    {"Die", HwlocType::group},
    {"Group", HwlocType::group},
    {"NUMANode", HwlocType::numa},
    {"Node", HwlocType::numa},
    {"MemCache", HwlocType::memory_cache},
    {"Cache", HwlocType::cache},
    {"L1Cache", HwlocType::cache, 1},
    {"L2Cache", HwlocType::cache, 2},
    {"L3Cache", HwlocType::cache, 3},
    {"L4Cache", HwlocType::cache, 4},
    {"L5Cache", HwlocType::cache, 5},
    {"L1iCache", HwlocType::cache, 1, 2},
    {"L2iCache", HwlocType::cache, 2, 2},
    {"L3iCache", HwlocType::cache, 3, 2},
    {"Core", HwlocType::core},
    {"PU", HwlocType::pu},
    {"Proc", HwlocType::pu},
    {"Bridge", HwlocType::bridge},
    {"PCIDev", HwlocType::pci_device},
    {"OSDev", HwlocType::os_device},
    {"Misc", HwlocType::misc},
};

template <class T>
bool number(const char* text, T& out, int base = 10) {
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, out, base);
  return error == std::errc() && rest == end && rest != text;
}

class Reader {
 public:
  Reader(const std::string& text, std::string name) : text_(text), lines_(text), name_(std::move(name)) {}

  Result<HwlocTree> read() {
    pugi::xml_document document;
    if (text_.size() > kMaxHwlocText)
      return Status(Code::invalid_argument, fmt::format("{}: {} MB, expected a topology of at most {} MB", name_,
                                                        text_.size() >> 20, kMaxHwlocText >> 20));
    const pugi::xml_parse_result parsed =
        document.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed)
      return Status(
          Code::invalid_argument,
          fmt::format("{}:{}: expected well-formed XML: {}{}", name_, lines_.at(parsed.offset), parsed.description(),
                      std::size_t(parsed.offset) + 2 >= text_.size() ? " (the file ends too early)" : ""));
    const pugi::xml_node topology = document.document_element();
    if (std::strcmp(topology.name(), "topology") != 0)
      return fail(topology, fmt::format("expected <topology>, found <{}>", topology.name()));
    if (read_version(topology) && read_root(topology) && read_beside(topology)) return std::move(tree_);
    return error_;
  }

 private:
  Status fail(pugi::xml_node where, const std::string& what) {
    error_ = Status(Code::invalid_argument, fmt::format("{}:{}: {}", name_, lines_.at(where.offset_debug()), what));
    return error_;
  }
  bool refuse(pugi::xml_node where, const std::string& what) { return fail(where, what).ok(); }

  bool read_version(pugi::xml_node topology) {
    const std::string version = topology.attribute("version").value();
    tree_.version = version.empty() ? "1" : version;
    int major = 0;
    if (!number(tree_.version.substr(0, tree_.version.find('.')).c_str(), major) || major < 0)
      return refuse(topology, fmt::format("version=\"{}\": expected 1 or 2, such as 2.0", version));
    if (major <= 2) return true;
    error_ = Status(
        Code::unsupported,
        fmt::format("{}:{}: hwloc XML version {}: only versions 1 and 2 can be read; export it again for version 2: "
                    "`lstopo --export-xml-flags v2 FILE.xml`, or `lstopo FILE.xml` of hwloc 2",
                    name_, lines_.at(topology.offset_debug()), version));
    return false;
  }

  bool read_root(pugi::xml_node topology) {
    const pugi::xml_node first = topology.child("object");
    if (!first) return refuse(topology, "expected <object type=\"Machine\"> in <topology>, found none");
    if (first.next_sibling("object"))
      return refuse(first.next_sibling("object"), "expected one root object, found a second");
    if (!read_object(first, 1, tree_.root)) return false;
    if (tree_.root.type != HwlocType::machine)
      return refuse(first, fmt::format("expected the root to be a Machine, found {}", tree_.root.type_text));
    if (pus_ == 0) return refuse(first, "expected at least one object of type PU, found none");
    settle(tree_.root);
    if (!keep_allowed(first)) return false;
    if (numa_nodes_ == 0) add_numa_node();
    return true;
  }

  // Version 1 files of machines without NUMA have no node; hwloc 2 always has one.
  void add_numa_node() {
    HwlocObject node;
    node.type = HwlocType::numa;
    node.type_text = "NUMANode";
    node.os_index = 0;
    node.cpus = tree_.root.cpus;
    node.has_cpus = true;
    node.nodes.insert(0);
    tree_.root.memory.push_back(std::move(node));
    tree_.notes.emplace_back("no NUMA node in the file: the machine is taken as one");
  }

  bool read_type(pugi::xml_node node, HwlocObject& out) {
    out.type_text = node.attribute("type").value();
    if (out.type_text.empty()) return refuse(node, "<object>: expected an attribute type");
    for (const TypeName& known : kTypeNames)
      if (out.type_text == known.text) {
        out.type = known.type;
        out.cache_depth = known.cache_depth;
        out.cache_type = known.cache_type;
        return true;
      }
    if (++unknown_types_ <= 3)
      tree_.notes.push_back(
          fmt::format("line {}: object type {} is not known, only what it holds is", out.line, out.type_text));
    return true;
  }

  template <class T>
  bool read_number(pugi::xml_node node, const char* attribute, T& out, T most) {
    const pugi::xml_attribute found = node.attribute(attribute);
    if (!found) return true;
    T value = 0;
    if (number(found.value(), value) && value >= 0 && value <= most) {
      out = value;
      return true;
    }
    return refuse(node, fmt::format("{}=\"{}\": expected a number from 0 to {}", attribute, found.value(), most));
  }

  bool read_bits(pugi::xml_node node, const char* attribute, HwlocBits& out, bool* there = nullptr) {
    const pugi::xml_attribute found = node.attribute(attribute);
    if (!found) return true;
    const std::optional<HwlocBits> bits = parse_hwloc_bits(found.value());
    if (!bits)
      return refuse(node, fmt::format("{}=\"{:.40}\": expected a set such as 0x0000000f,,0xff000000 of at most {} bits",
                                      attribute, std::string(found.value()), kMaxHwlocIndex));
    out = *bits;
    if (there) *there = true;
    return true;
  }

  bool read_os_index(pugi::xml_node node, HwlocObject& out) {
    long long index = -1;
    if (!read_number(node, "os_index", index, 0xffffffffLL)) return false;
    const bool counts = out.type == HwlocType::pu || out.type == HwlocType::numa;
    if (counts && (index < 0 || index >= kMaxHwlocIndex))
      return refuse(node, fmt::format("{}: expected os_index from 0 to {}, found \"{}\"", out.type_text,
                                      kMaxHwlocIndex - 1, node.attribute("os_index").value()));
    out.os_index = index < kMaxHwlocIndex ? int(index) : -1;
    return true;
  }

  bool read_pci(pugi::xml_node node, HwlocObject& out) {
    out.host_bridge =
        out.type == HwlocType::bridge && std::strncmp(node.attribute("bridge_type").value(), "0-", 2) == 0;
    if (out.host_bridge) return true;
    const std::string where = node.attribute("pci_busid").value(), what = node.attribute("pci_type").value();
    const std::optional<PciAddress> address = parse_pci_address(where);
    if (!address)
      return refuse(
          node, fmt::format("{}: pci_busid=\"{}\": expected an address such as 0000:13:00.0", out.type_text, where));
    unsigned device_class = 0, vendor = 0, device = 0;
    if (std::sscanf(what.c_str(), "%4x [%4x:%4x]", &device_class, &vendor, &device) != 3)
      return refuse(node, fmt::format("{}: pci_type=\"{}\": expected class and ids such as 0302 [10de:1db1]",
                                      out.type_text, what));
    out.pci = PciFunction{*address, std::uint16_t(device_class), std::uint16_t(vendor), std::uint16_t(device)};
    const pugi::xml_attribute speed = node.attribute("pci_link_speed");
    char* end = nullptr;
    out.link_gigabytes = speed ? std::strtod(speed.value(), &end) : 0;
    if (speed && (end == speed.value() || *end != 0 || !(out.link_gigabytes >= 0) || std::isinf(out.link_gigabytes)))
      return refuse(node, fmt::format("pci_link_speed=\"{}\": expected GB/s, 0 or more", speed.value()));
    return true;
  }

  bool read_attributes(pugi::xml_node node, HwlocObject& out) {
    HwlocBits complete;
    bool has_complete = false;
    const bool ok =
        read_type(node, out) && read_os_index(node, out) && read_bits(node, "cpuset", out.cpus, &out.has_cpus) &&
        read_bits(node, "complete_cpuset", complete, &has_complete) && read_bits(node, "nodeset", out.nodes) &&
        read_number(node, "gp_index", out.number, ~std::uint64_t(0)) &&
        read_number(node, "osdev_type", out.os_device_type, 1000);
    if (!ok) return false;
    out.name = node.attribute("name").value();
    out.subtype = node.attribute("subtype").value();
    out.order = (has_complete ? complete : out.cpus).first();
    switch (out.type) {
      case HwlocType::cache:
        return read_number(node, "cache_size", out.bytes, ~std::uint64_t(0)) &&
               read_number(node, "depth", out.cache_depth, 16) && read_number(node, "cache_type", out.cache_type, 2);
      case HwlocType::numa: return ++numa_nodes_, read_number(node, "local_memory", out.bytes, ~std::uint64_t(0));
      case HwlocType::pu: return ++pus_ > 0;
      case HwlocType::bridge:
      case HwlocType::pci_device: return read_pci(node, out);
      default: return true;
    }
  }

  bool read_object(pugi::xml_node node, int depth, HwlocObject& out) {
    out.line = lines_.at(node.offset_debug());
    if (depth > kMaxHwlocDepth)
      return refuse(node, fmt::format("expected at most {} objects inside of each other", kMaxHwlocDepth));
    if (!read_attributes(node, out)) return false;
    for (const pugi::xml_node info : node.children("info"))
      out.infos.emplace_back(info.attribute("name").value(), info.attribute("value").value());
    for (const pugi::xml_node below : node.children("object")) {
      HwlocObject child;
      if (!read_object(below, depth + 1, child) || !accept(below, out, std::move(child))) return false;
    }
    return true;
  }

  // Version 1 has NUMA nodes in the tree, with the CPUs in them: what they hold becomes a group beside their memory.
  static HwlocObject group_of(HwlocObject&& node) {
    HwlocObject group;
    group.line = node.line;
    group.type_text = "Group";
    group.cpus = node.cpus;
    group.nodes = node.nodes;
    group.has_cpus = node.has_cpus;
    group.order = node.order;
    group.children = std::move(node.children);
    group.devices = std::move(node.devices);
    group.memory = std::move(node.memory);
    node.children.clear();
    node.devices.clear();
    node.memory.clear();
    group.memory.insert(group.memory.begin(), std::move(node));
    return group;
  }

  bool accept(pugi::xml_node where, HwlocObject& parent, HwlocObject&& child) {
    const bool device = child.type >= HwlocType::bridge;
    if (parent.type >= HwlocType::bridge && !device)
      return refuse(where, fmt::format("expected a device inside of {}, found {}", parent.type_text, child.type_text));
    if (parent.type == HwlocType::pu && !device)
      return refuse(where, fmt::format("expected nothing but devices inside of a PU, found {}", child.type_text));
    if (child.type == HwlocType::misc) return true;
    const bool holds = !child.children.empty() || !child.devices.empty();
    if (device) {
      parent.devices.push_back(std::move(child));
    } else if (child.type == HwlocType::numa && holds) {
      parent.children.push_back(group_of(std::move(child)));
    } else if (child.type == HwlocType::numa || child.type == HwlocType::memory_cache) {
      parent.memory.push_back(std::move(child));
    } else {
      parent.children.push_back(std::move(child));
    }
    return true;
  }

  void distrust(int line, const std::string& text) {
    if (tree_.distrusted.size() < 32) tree_.distrusted.push_back(fmt::format("line {}: {}", line, text));
  }

  // Sets where there are none, children in hwloc's order.
  void settle(HwlocObject& object) {
    if (object.type == HwlocType::pu) {
      HwlocBits own;
      own.insert(object.os_index);
      if (object.has_cpus && object.cpus != own && !object.cpus.empty())
        distrust(object.line,
                 fmt::format("PU {} with cpuset {}: its number is believed", object.os_index, to_string(object.cpus)));
      if (!object.has_cpus || !object.cpus.empty()) object.cpus = own;
    }
    for (HwlocObject& child : object.children) {
      settle(child);
      if (!object.has_cpus) object.cpus.add(child.cpus);
    }
    const auto unset = [](int order) { return order < 0 ? kMaxHwlocIndex * 2 : order; };
    std::stable_sort(object.children.begin(), object.children.end(),
                     [&unset](const HwlocObject& a, const HwlocObject& b) { return unset(a.order) < unset(b.order); });
    std::stable_sort(object.memory.begin(), object.memory.end(),
                     [](const HwlocObject& a, const HwlocObject& b) { return first_node(a) < first_node(b); });
  }

  static int first_node(const HwlocObject& object) {
    if (object.type == HwlocType::numa) return object.os_index;
    return object.memory.empty() ? object.nodes.first() : first_node(object.memory.front());
  }

  // What the root's allowed sets forbid is dropped, as hwloc does by default.
  bool keep_allowed(pugi::xml_node root) {
    HwlocBits cpus, nodes;
    bool has_cpus = false, has_nodes = false;
    if (!read_bits(root, "allowed_cpuset", cpus, &has_cpus) || !read_bits(root, "allowed_nodeset", nodes, &has_nodes))
      return false;
    if (has_nodes && !nodes.empty()) drop_nodes(tree_.root, nodes);
    if (has_cpus && !cpus.empty()) restrict_to(tree_, cpus);
    return true;
  }

  static void drop_nodes(HwlocObject& object, const HwlocBits& allowed) {
    object.nodes.keep(allowed);
    for (HwlocObject& child : object.children) drop_nodes(child, allowed);
    for (HwlocObject& memory : object.memory) drop_nodes(memory, allowed);
    std::erase_if(object.memory, [&allowed](const HwlocObject& m) {
      return m.type == HwlocType::numa ? !allowed.contains(m.os_index) : m.memory.empty();
    });
  }

  bool read_beside(pugi::xml_node topology) {
    for (const pugi::xml_node node : topology.children()) {
      const bool same_kind = std::strcmp(node.name(), "distances2") == 0;
      if ((same_kind || std::strcmp(node.name(), "distances2hetero") == 0) && !read_distances(node, same_kind))
        return false;
      if (std::strcmp(node.name(), "memattr") == 0) read_memory_figures(node);
    }
    return true;
  }

  // Words such as "332" or "OSDev:332", spread over several elements.
  bool read_words(pugi::xml_node distances, const char* element, std::size_t count, std::vector<std::uint64_t>& out) {
    for (const pugi::xml_node part : distances.children(element)) {
      const std::string text = part.child_value();
      for (std::size_t at = text.find_first_not_of(" \n\t\r"); at != std::string::npos;
           at = text.find_first_not_of(" \n\t\r", at)) {
        std::string word = text.substr(at, text.find_first_of(" \n\t\r", at) - at);
        at += word.size();
        if (const std::size_t colon = word.find(':'); colon != std::string::npos) word.erase(0, colon + 1);
        std::uint64_t value = 0;
        if (!number(word.c_str(), value))
          return refuse(part, fmt::format("<{}>: expected numbers, found \"{:.40}\"", element, word));
        if (out.size() == count)
          return refuse(part, fmt::format("<{}>: expected {} numbers, found more", element, count));
        out.push_back(value);
      }
    }
    return out.size() == count ||
           refuse(distances, fmt::format("<{}>: expected {} numbers, found {}", element, count, out.size()));
  }

  bool read_distances(pugi::xml_node node, bool same_kind) {
    HwlocDistances distances;
    distances.name = node.attribute("name").value();
    std::size_t count = 0;
    if (!read_number(node, "nbobjs", count, kMaxDistanceObjects)) return false;
    distances.by_os_index = same_kind && std::strcmp(node.attribute("indexing").value(), "os") == 0;
    if (!read_words(node, "indexes", count, distances.objects) ||
        !read_words(node, "u64values", count * count, distances.values))
      return false;
    tree_.distances.push_back(std::move(distances));
    return true;
  }

  void read_memory_figures(pugi::xml_node node) {
    const std::string name = node.attribute("name").value();
    if (name != "Bandwidth" && name != "Latency") return;
    std::map<std::uint64_t, HwlocMemoryFigure> best;
    for (const pugi::xml_node entry : node.children("memattr_value")) {
      const std::uint64_t target = entry.attribute("target_obj_gp_index").as_ullong(),
                          value = entry.attribute("value").as_ullong();
      if (target == 0 || value == 0) continue;
      HwlocMemoryFigure& figure = best[target];
      figure.target = target;
      if (name == "Bandwidth") figure.bandwidth = std::max(figure.bandwidth, value);
      if (name == "Latency") figure.latency = figure.latency ? std::min(figure.latency, value) : value;
    }
    for (const auto& [target, figure] : best) tree_.memory.push_back(figure);
  }

  const std::string& text_;
  const TextLines lines_;
  const std::string name_;
  HwlocTree tree_;
  Status error_;
  int pus_ = 0, numa_nodes_ = 0, unknown_types_ = 0;
};

void restrict_object(HwlocObject& object, const HwlocBits& cpus) {
  object.cpus.keep(cpus);
  for (HwlocObject& child : object.children) restrict_object(child, cpus);
  for (HwlocObject& memory : object.memory) restrict_object(memory, cpus);
  std::erase_if(object.children, [](const HwlocObject& child) {
    return child.cpus.empty() && child.children.empty() && child.memory.empty() && child.devices.empty();
  });
}

}  // namespace

const std::string* HwlocObject::info(const std::string& key) const {
  const auto found = std::find_if(infos.begin(), infos.end(), [&key](const auto& i) { return i.first == key; });
  return found == infos.end() ? nullptr : &found->second;
}

void restrict_to(HwlocTree& tree, const HwlocBits& cpus) { restrict_object(tree.root, cpus); }

Result<HwlocTree> parse_hwloc_xml(const std::string& text, const std::string& name) {
  return Reader(text, name).read();
}

Result<Graph> read_hwloc_xml(const std::string& text, const std::string& name) {
  Result<HwlocTree> tree = parse_hwloc_xml(text, name);
  if (!tree) return tree.status();
  return build_graph(std::move(*tree), name, "hwloc-xml");
}

}  // namespace tutti::topology
