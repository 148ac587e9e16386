#pragma once
// Figures as people read them, and footnotes that tell where each came from.
#include <string>
#include <vector>

#include "topology/graph.h"

namespace tutti::tools {

std::string rate_text(double bytes_per_second);    // "31.5 GB/s"
std::string memory_text(std::uint64_t bytes);      // "62.5 GiB"
std::string time_text(double seconds);             // "120 ns"
std::string origin_text(topology::Origin origin);  // "read"

class Footnotes {
 public:
  // "31.5 GB/s [1]"; "" for an unknown figure. Equal origin and source share a number.
  std::string rate(const topology::Figure& figure);
  std::string time(const topology::Figure& figure);
  // "read: hwloc pci_link_speed", from [1] on.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::string mark(const topology::Figure& figure);
  std::vector<std::string> notes_;
};

}  // namespace tutti::tools
