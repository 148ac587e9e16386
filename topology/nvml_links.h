#pragma once
// NvmlLinks: NVLink and PCI links as NVIDIA's management library tells them. The library is opened when asked for and
// not needed to build; its functions come in through a table, so that a test can be the driver.
#include <tutti/status.h>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

// nvmlPciInfo_t of version 3 (NVML's documentation, "Device Structs").
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

// Functions of nvml.h by what they are asked; each returns nvmlReturn_t, 0 for success. A function may be missing (old
// drivers): not called.
struct NvmlFunctions {
  std::function<int()> init, shutdown;                                      // nvmlInit_v2, nvmlShutdown
  std::function<int(unsigned*)> device_count;                               // nvmlDeviceGetCount_v2
  std::function<int(unsigned, void**)> device;                              // nvmlDeviceGetHandleByIndex_v2
  std::function<int(void*, NvmlPciInfo*)> pci_info;                         // nvmlDeviceGetPciInfo_v3
  std::function<int(void*, char*, unsigned)> name;                          // nvmlDeviceGetName
  std::function<int(void*, unsigned, unsigned*)> link_state, link_version;  // nvmlDeviceGetNvLinkState, ...Version
  std::function<int(void*, unsigned, NvmlPciInfo*)> link_remote;            // nvmlDeviceGetNvLinkRemotePciInfo_v2
  std::function<int(void*, unsigned, unsigned*)>
      link_remote_type;  // nvmlDeviceGetNvLinkRemoteDeviceType: 0 GPU, 1 NPU, 2 switch
  std::function<int(void*, unsigned*)> pcie_generation,
      pcie_width;  // nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkWidth
};

// libnvidia-ml.so.1, kept open as long as the functions live. nullopt: not installed.
std::optional<NvmlFunctions> open_nvml();

struct NvmlLink {
  enum class Remote : unsigned { gpu = 0, npu = 1, gpu_switch = 2, unknown = 255 };
  Remote remote = Remote::unknown;
  std::optional<PciAddress> address;  // of the other end; a virtual machine may hide it
  double bytes_per_second = 0;        // one direction
};
struct NvmlDevice {
  PciAddress address;
  std::string name;
  std::vector<NvmlLink> links;  // the active ones
  int pcie_generation = 0, pcie_width = 0;
};

// unsupported: the driver is not loaded, or what else init returned.
Result<std::vector<NvmlDevice>> read_nvml(const NvmlFunctions& functions);

// NVLinks of GPUs in the graph, in place of those that were there; switches that are not in it become vertices of the
// machine. A link that only one end reports, or to a device that is not there, is listed as distrusted.
void add_nvml(Graph& graph, const std::vector<NvmlDevice>& devices);

}  // namespace tutti::topology
