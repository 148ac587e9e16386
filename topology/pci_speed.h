#pragma once
// PciSpeed: transfer rate and width of a PCI Express link, and what they carry. It knows no devices.
#include <optional>
#include <string>

namespace tutti::topology {

struct PciSpeed {
  double gigatransfers = 0;  // a second and lane: 2.5, 5, 8, 16, 32, 64
  int width = 0;             // lanes
  bool operator==(const PciSpeed&) const = default;
};

// "16.0 GT/s PCIe", "8 GT/s" and "16"; nullopt for anything else, such as "Unknown speed", "" or a width of 0 or 255.
std::optional<PciSpeed> parse_pci_speed(const std::string& speed, const std::string& width);
double bytes_per_second(const PciSpeed& speed);  // one direction, after line coding
PciSpeed nearest_pci_speed(double bytes_per_second);
std::string to_string(const PciSpeed& speed);  // "16.0 GT/s x16"

}  // namespace tutti::topology
