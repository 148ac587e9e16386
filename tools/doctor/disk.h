#pragma once
// How fast a folder takes what must not be lost: one small file, written, synced and removed.
#include "tools/doctor/facts.h"

namespace tutti::tools::doctor {

// At most 32 MiB and half a second of writing, and one fsync. Disk::error when the folder cannot be written.
Disk measure_disk(const std::string& folder);

}  // namespace tutti::tools::doctor
