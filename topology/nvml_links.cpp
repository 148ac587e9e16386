#include "topology/nvml_links.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <memory>

#include "topology/pci_speed.h"

namespace tutti::topology {
namespace {

constexpr unsigned kMostLinks = 18, kMostDevices = 256;  // NVML_NVLINK_MAX_LINKS
constexpr double kRates[] = {0, 2.5, 5, 8, 16, 32, 64};  // GT/s of PCI Express generations

// GB/s of one link in one direction. NVML numbers the versions 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0 from 1.
double link_bytes(unsigned version) {
  if (version == 1) return 20e9;
  return version < 7 ? 25e9 : 50e9;
}

std::optional<PciAddress> address_of(const NvmlPciInfo& info) {
  if (info.domain == 0 && info.bus == 0 && info.device == 0) return std::nullopt;  // hidden
  if (info.bus > 0xff || info.device > 0x1f) return std::nullopt;
  return PciAddress{info.domain, std::uint8_t(info.bus), std::uint8_t(info.device), 0};
}

NvmlLink read_link(const NvmlFunctions& f, void* device, unsigned link) {
  NvmlLink out;
  unsigned version = 2, type = 255;
  if (f.link_version) (void)f.link_version(device, link, &version);
  out.bytes_per_second = link_bytes(version);
  if (f.link_remote_type && f.link_remote_type(device, link, &type) == 0 && type <= 2)
    out.remote = NvmlLink::Remote(type);
  NvmlPciInfo info{};
  if (f.link_remote && f.link_remote(device, link, &info) == 0) out.address = address_of(info);
  return out;
}

std::optional<NvmlDevice> read_device(const NvmlFunctions& f, unsigned index) {
  void* device = nullptr;
  NvmlPciInfo info{};
  if (f.device(index, &device) != 0 || f.pci_info(device, &info) != 0) return std::nullopt;
  NvmlDevice out;
  out.address = {info.domain, std::uint8_t(info.bus), std::uint8_t(info.device), 0};
  char name[97] = {};
  if (f.name && f.name(device, name, 96) == 0) out.name = name;
  unsigned value = 0;
  if (f.pcie_generation && f.pcie_generation(device, &value) == 0) out.pcie_generation = int(std::min(value, 100u));
  if (f.pcie_width && f.pcie_width(device, &value) == 0) out.pcie_width = int(std::min(value, 100u));
  for (unsigned link = 0; link < kMostLinks && f.link_state; ++link) {
    unsigned active = 0;
    if (f.link_state(device, link, &active) == 0 && active != 0) out.links.push_back(read_link(f, device, link));
  }
  return out;
}

class Merge {
 public:
  explicit Merge(Graph& graph) : graph_(graph) {
    for (const VertexKind kind : {VertexKind::gpu, VertexKind::gpu_switch})
      for (const int v : graph.all(kind))
        if (at(v).pci) vertex_[at(v).pci->address] = v;
  }

  void add(const std::vector<NvmlDevice>& devices) {
    for (const NvmlDevice& device : devices) {
      const auto found = vertex_.find(device.address);
      if (found == vertex_.end()) {
        graph_.notes.push_back(fmt::format("NVML lists {} ({}), which is not among the PCI functions",
                                           to_string(device.address), device.name));
        continue;
      }
      Vertex& gpu = graph_.vertices[std::size_t(found->second)];
      if (!device.name.empty() && gpu.printed.empty()) gpu.printed.emplace_back("GPUModel", device.name);
      pci_link(found->second, device);
      for (const NvmlLink& link : device.links) one(found->second, link);
    }
    std::erase_if(graph_.links, [](const Link& l) { return l.kind == LinkKind::nvlink; });
    for (const auto& [ends, seen] : seen_) finish(ends, seen);
  }

 private:
  struct Seen {
    int forward = 0, backward = 0;  // links reported by the lower and the higher end
    double bytes = 0;               // of one
  };
  const Vertex& at(int v) const { return graph_.vertices[std::size_t(v)]; }

  // Only where /sys said nothing.
  void pci_link(int v, const NvmlDevice& device) {
    const bool there = std::any_of(graph_.links.begin(), graph_.links.end(),
                                   [v](const Link& l) { return l.kind == LinkKind::pci && l.b == v; });
    if (there || device.pcie_generation < 1 || device.pcie_generation > 6) return;
    const auto speed =
        parse_pci_speed(fmt::format("{:.1f} GT/s", kRates[device.pcie_generation]), std::to_string(device.pcie_width));
    if (!speed) return;
    graph_.links.push_back({at(v).parent,
                            v,
                            LinkKind::pci,
                            1,
                            {},
                            {bytes_per_second(*speed), Origin::read, "NVML PCIe link, " + to_string(*speed)}});
  }

  int switch_at(const std::optional<PciAddress>& address) {
    const PciAddress key = address.value_or(PciAddress{~0u, 0, 0, 0});
    const auto found = vertex_.find(key);
    if (found != vertex_.end()) return found->second;
    Vertex v;
    v.kind = VertexKind::gpu_switch;
    v.parent = 0;
    v.index = int(graph_.all(VertexKind::gpu_switch).size());
    v.name = address ? "NVSwitch " + to_string(*address) : "NVSwitch";
    if (address) v.pci = PciFunction{*address, 0x0680, 0x10de, 0};
    graph_.vertices.push_back(std::move(v));
    return vertex_[key] = int(graph_.vertices.size()) - 1;
  }

  void one(int gpu, const NvmlLink& link) {
    int other = -1;
    if (link.remote == NvmlLink::Remote::npu) {
      other = graph_.ancestor(gpu, VertexKind::package);  // POWER: the link ends in the processor
    } else if (link.remote == NvmlLink::Remote::gpu_switch) {
      other = switch_at(link.address);
    } else if (link.address && vertex_.count(*link.address) != 0) {
      other = vertex_[*link.address];
    }
    if (other < 0 || other == gpu) {
      graph_.distrusted.push_back(fmt::format("{}: a NVLink to {}", at(gpu).name,
                                              other == gpu   ? "itself"
                                              : link.address ? to_string(*link.address) + ", which is not there"
                                                             : "an unknown device"));
      return;
    }
    Seen& seen = seen_[std::minmax(gpu, other)];
    ++(gpu < other ? seen.forward : seen.backward);
    seen.bytes = seen.bytes > 0 ? std::min(seen.bytes, link.bytes_per_second) : link.bytes_per_second;
  }

  void finish(const std::pair<int, int>& ends, const Seen& seen) {
    const bool both = at(ends.first).kind == VertexKind::gpu && at(ends.second).kind == VertexKind::gpu;
    const int count = both ? std::min(seen.forward, seen.backward) : seen.forward + seen.backward;
    if (both && seen.forward != seen.backward)
      graph_.distrusted.push_back(fmt::format("NVLinks between {} and {}: one end reports {}, the other {}",
                                              at(ends.first).name, at(ends.second).name, seen.forward, seen.backward));
    if (count > 0)
      graph_.links.push_back({ends.first,
                              ends.second,
                              LinkKind::nvlink,
                              count,
                              {},
                              {count * seen.bytes, Origin::read, "NVML NVLink version"}});
  }

  Graph& graph_;
  std::map<PciAddress, int> vertex_;
  std::map<std::pair<int, int>, Seen> seen_;
};

template <class F>
void bind(std::function<F>& out, const std::shared_ptr<void>& library, const char* name) {
  if (void* const found = dlsym(library.get(), name))
    out = [library, call = reinterpret_cast<F*>(found)](auto... arguments) { return call(arguments...); };
}

}  // namespace

std::optional<NvmlFunctions> open_nvml() {
  void* const opened = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return std::nullopt;
  const std::shared_ptr<void> library(opened, dlclose);
  NvmlFunctions f;
  bind(f.init, library, "nvmlInit_v2");
  bind(f.shutdown, library, "nvmlShutdown");
  bind(f.device_count, library, "nvmlDeviceGetCount_v2");
  bind(f.device, library, "nvmlDeviceGetHandleByIndex_v2");
  bind(f.pci_info, library, "nvmlDeviceGetPciInfo_v3");
  bind(f.name, library, "nvmlDeviceGetName");
  bind(f.link_state, library, "nvmlDeviceGetNvLinkState");
  bind(f.link_version, library, "nvmlDeviceGetNvLinkVersion");
  bind(f.link_remote, library, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  bind(f.link_remote_type, library, "nvmlDeviceGetNvLinkRemoteDeviceType");
  bind(f.pcie_generation, library, "nvmlDeviceGetMaxPcieLinkGeneration");
  bind(f.pcie_width, library, "nvmlDeviceGetCurrPcieLinkWidth");
  return f;
}

Result<std::vector<NvmlDevice>> read_nvml(const NvmlFunctions& f) {
  if (!f.init || !f.shutdown || !f.device_count || !f.device || !f.pci_info)
    return Status(Code::unsupported, "NVML is too old: functions of version 2 are missing");
  if (const int error = f.init(); error != 0)
    return Status(Code::unsupported,
                  fmt::format("NVML does not start (error {}): is the NVIDIA driver loaded?", error));
  unsigned count = 0;
  std::vector<NvmlDevice> devices;
  const int error = f.device_count(&count);
  for (unsigned i = 0; error == 0 && i < std::min(count, kMostDevices); ++i)
    if (std::optional<NvmlDevice> device = read_device(f, i)) devices.push_back(std::move(*device));
  (void)f.shutdown();
  if (error != 0) return Status(Code::unsupported, fmt::format("NVML does not count its devices (error {})", error));
  return devices;
}

void add_nvml(Graph& graph, const std::vector<NvmlDevice>& devices) { Merge(graph).add(devices); }

}  // namespace tutti::topology
