#pragma once
// A rank's part in a stress of stream order: all ranks call it with the same `rounds`. Returns what went wrong; empty:
// nothing.
#include <tutti/tutti.h>

#include <string>

namespace tutti::gpu {

std::string stress(Communicator& comm, int rounds);

}  // namespace tutti::gpu
