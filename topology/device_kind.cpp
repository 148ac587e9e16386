#include "topology/device_kind.h"

namespace tutti::topology {
namespace {

constexpr std::uint16_t kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086;

// ATI's chips from before shaders (R100 to R500, Rage; ES1000 of servers is 515e): they cannot compute.
bool ancient_ati(std::uint16_t device) {
  return (device >= 0x3000 && device <= 0x5fff) || (device >= 0x7100 && device <= 0x72ff) ||
         (device >= 0x7800 && device <= 0x79ff);
}

}  // namespace

std::optional<VertexKind> device_kind(const PciFunction& f) {
  const int base = f.device_class >> 8;
  if (base == 0x02 || f.device_class == 0x0c06) return VertexKind::nic;
  if (f.device_class == 0x0680 && f.vendor == kNvidia) return VertexKind::gpu_switch;
  if (base == 0x0b) return f.device_class == 0x0b40 ? std::optional(VertexKind::accelerator) : std::nullopt;
  if (base != 0x03 && base != 0x12) return std::nullopt;
  const bool gpu = f.vendor == kNvidia || (f.vendor == kAmd && !ancient_ati(f.device)) ||
                   (f.vendor == kIntel && f.device_class == 0x0380);
  return gpu ? VertexKind::gpu : VertexKind::accelerator;
}

bool emulated(const PciFunction& f) {
  switch (f.vendor) {
    case 0x1b36:                                                   // QEMU (Red Hat)
    case 0x1414:                                                   // Hyper-V
    case 0x80ee: return true;                                      // VirtualBox
    case 0x15ad: return f.device == 0x0790 || f.device == 0x07a0;  // VMware
    default: return false;
  }
}

}  // namespace tutti::topology
