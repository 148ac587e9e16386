#pragma once
// What /sys and /proc say of NICs, RDMA ports, PCI links and GPUs. `root` stands before /sys and /proc, for tests. What
// is not there gives nothing.
#include "tools/doctor/facts.h"

namespace tutti::tools::doctor {

std::vector<Interface> read_interfaces(
    const std::string& root);  // addresses and pause come from the kernel when root is ""
std::vector<RdmaPort> read_rdma(const std::string& root);
std::vector<PciLink> read_pci(const std::string& root);         // NICs, GPUs and NVMe disks
std::string nvidia_driver(const std::string& root);             // "535.54.03"
std::vector<std::string> nvidia_gpus(const std::string& root);  // models

std::vector<std::string> lines_of(const std::string& file);  // empty when it cannot be read
std::string line_of(const std::string& file);                // its first line, or ""

}  // namespace tutti::tools::doctor
