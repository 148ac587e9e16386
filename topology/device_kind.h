#pragma once
// DeviceKind: what a PCI function is to a collective, by class and maker. It knows no drivers.
#include <optional>

#include "topology/graph.h"

namespace tutti::topology {

// gpu: display or processing classes of NVIDIA, AMD and Intel's compute cards. accelerator: other processors, FPGAs,
// and chips that only drive a display (class 03). gpu_switch: NVSwitch. nic: network and InfiniBand classes. nullopt:
// nothing of interest.
std::optional<VertexKind> device_kind(const PciFunction& function);

// A bridge that a hypervisor made up: what hangs below need not share a switch in the machine.
bool emulated(const PciFunction& function);

}  // namespace tutti::topology
