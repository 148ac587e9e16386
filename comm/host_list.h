#pragma once
// Slurm's compressed lists: "node[01-03,07],gpu5" of hosts, "4(x2),3" of numbers per host.
#include <tutti/status.h>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::comm {

// In the list's order. invalid_argument: malformed, or more than 65,536 hosts.
Result<std::vector<std::string>> expand_host_list(std::string_view text);
Result<std::vector<int>> expand_counts(std::string_view text);

}  // namespace tutti::comm
