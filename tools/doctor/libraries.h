#pragma once
// Which libnccl the processes of this host have loaded, by path: what a framework prints is the version of the one that
// it was built with. `root` stands before /proc, for tests.
#include "tools/doctor/facts.h"

namespace tutti::tools::doctor {

// Of the processes whose maps may be read. One for each file, by path.
std::vector<LoadedLibrary> loaded_nccl(const std::string& root);

}  // namespace tutti::tools::doctor
