#pragma once
// What only libhwloc can find out, as the XML it writes: this machine, a synthetic one, an unpacked snapshot of /sys.
#include <tutti/status.h>
#include <string>

namespace tutti::topology {

// unsupported: hwloc could not load it.
Result<std::string> hwloc_xml_of_this_machine();
// invalid_argument: names the word that is wrong. At most kMaxSyntheticPus. In a
// child process: hwloc 2.9 aborts on some texts.
Result<std::string> hwloc_xml_of_synthetic(const std::string& text);
// `root` is the folder that holds sys/. In a child process: hwloc is told the folder by its environment, and the files
// may be anything.
Result<std::string> hwloc_xml_of_sysfs(const std::string& root);

inline constexpr long kMaxSyntheticPus = 1 << 14;   // hwloc needs seconds for so many

}  // namespace tutti::topology
