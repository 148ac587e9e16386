#include "topology/hwloc_load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/errno_text.h"
#include "topology/child_process.h"
#include "topology/hwloc_object.h"

namespace tutti::topology {
namespace {

constexpr std::chrono::seconds kSnapshotLimit{120}, kSyntheticLimit{20};

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Topology make() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // NVSwitches are bridges of another class, which is not important to hwloc.
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
  // These open the devices: seconds, and memory on every GPU. pci is libpciaccess, which leaks; /sys says the same.
  for (const char* component : {"cuda", "opencl", "gl", "pci"})
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  return Topology(topology);
}

Result<std::string> load(const Topology& topology, const std::string& what) {
  if (hwloc_topology_load(topology.get()) != 0)
    return Status(Code::unsupported, fmt::format("hwloc cannot load {}: {}", what, errno_text(errno)));
  char* text = nullptr;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(topology.get(), &text, &length, 0) != 0)
    return Status(Code::unsupported, fmt::format("hwloc cannot describe {}: {}", what, errno_text(errno)));
  std::string out(text);
  hwloc_free_xmlbuffer(topology.get(), text);
  return out;
}

Status wrong_word(const std::string& text, std::size_t at, const std::string& expected) {
  return Status(Code::invalid_argument,
                fmt::format("synthetic topology \"{:.80}\": at position {} (\"{:.20}\"): expected {}", text, at + 1,
                            text.substr(at), expected));
}

// Numbers after indexes=, which hwloc takes for bits of a set.
bool has_huge_index(const std::string& attributes) {
  std::size_t at = attributes.find("indexes=");
  for (at = at == std::string::npos ? at : at + 8; at < attributes.size() && attributes[at] != ' '; ++at) {
    long value = 0;
    const char* const end = attributes.data() + attributes.size();
    const auto [rest, error] = std::from_chars(attributes.data() + at, end, value);
    if (error == std::errc::result_out_of_range || (error == std::errc() && value >= kMaxHwlocIndex)) return true;
    if (error == std::errc()) at = std::size_t(rest - attributes.data()) - 1;
  }
  return false;
}

// Word by word: TYPE:COUNT or COUNT, attributes in (), memory in []. hwloc's own parser builds whatever it is told,
// however large.
Status check_synthetic(const std::string& text) {
  long pus = 1;
  int words = 0;
  for (std::size_t at = text.find_first_not_of(" \t\n"); at != std::string::npos;
       at = text.find_first_not_of(" \t\n", at)) {
    if (++words > kMaxHwlocDepth) return wrong_word(text, at, fmt::format("at most {} levels", kMaxHwlocDepth));
    const char open = text[at];
    if (open == '[' || open == '(') {
      const std::size_t close = text.find(open == '[' ? ']' : ')', at);
      if (close == std::string::npos) return wrong_word(text, at, open == '[' ? "a closing ]" : "a closing )");
      if (has_huge_index(text.substr(at, close - at)))
        return wrong_word(text, at, fmt::format("indexes below {}", kMaxHwlocIndex));
      at = close + 1;
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(" \t\n([", at), text.size()), colon = text.find(':', at);
    const std::size_t digits = colon < end ? colon + 1 : at;
    long count = 0;
    const auto [rest, error] = std::from_chars(text.data() + digits, text.data() + end, count);
    if (error != std::errc() || rest != text.data() + end || count < 1)
      return wrong_word(text, at, "TYPE:COUNT, such as numa:2, package:2 or pu:4");
    if (count > kMaxSyntheticPus || (pus *= count) > kMaxSyntheticPus)
      return wrong_word(text, at, fmt::format("at most {} PUs in all", kMaxSyntheticPus));
    at = end;
  }
  return words > 0
             ? Status()
             : Status(Code::invalid_argument, "synthetic topology: expected words such as \"numa:2 pu:4\", found none");
}

// In the child: the XML, or why there is none, to the descriptor.
int export_to(int out, const std::string& what, const std::function<bool(hwloc_topology_t)>& prepare) {
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nothing, 2);
  for (const char* name :
       {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_COMPONENTS", "HWLOC_THISSYSTEM", "HWLOC_CPUID_PATH"})
    unsetenv(name);
  const Topology topology = make();
  if (!topology || !prepare(topology.get())) return 1;
  const Result<std::string> xml = load(topology, what);
  const std::string& text = xml ? *xml : xml.status().text();
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(out, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return 1;
    done += wrote > 0 ? std::size_t(wrote) : 0;
  }
  return xml ? 0 : 1;
}

}  // namespace

Result<std::string> hwloc_xml_of_this_machine() {
  const Topology topology = make();
  if (!topology) return Status(Code::unsupported, "hwloc cannot be started: " + errno_text(errno));
  return load(topology, "this machine");
}

Result<std::string> hwloc_xml_of_synthetic(const std::string& text) {
  if (Status wrong = check_synthetic(text); !wrong) return wrong;
  const std::string what = fmt::format("synthetic topology \"{:.200}\"", text);
  Result<std::string> xml = run_in_child(
      what,
      [&](int out) {
        return export_to(out, what,
                         [&text](hwloc_topology_t t) { return hwloc_topology_set_synthetic(t, text.c_str()) == 0; });
      },
      kSyntheticLimit, kMaxHwlocText);
  if (xml || xml.status().code() != Code::invalid_argument) return xml;
  return Status(Code::invalid_argument,
                what +
                    ": hwloc refuses it: expected levels from the outermost to pu, each once, such as "
                    "\"package:2 numa:2 core:4 pu:2\"");
}

Result<std::string> hwloc_xml_of_sysfs(const std::string& root) {
  return run_in_child(
      "reading " + root,
      [&root](int out) {
        setenv("HWLOC_FSROOT", root.c_str(), 1);
        // hwloc's x86 component would describe the processor that this runs on.
        return export_to(out, root, [](hwloc_topology_t t) {
          return hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86") == 0;
        });
      },
      kSnapshotLimit, kMaxHwlocText);
}

}  // namespace tutti::topology
