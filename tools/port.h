#pragma once
// TCP ports: one that is free, and whether one can be had here. It listens on none.
#include <string>
#include <tutti/status.h>

namespace tutti::tools {

// A port of this host that nobody listens on and that the kernel gives to nobody by itself (below its ephemeral range),
// chosen at random so that launchers started together differ. `check`: try it here; false when it is for another host.
Result<int> free_port(bool check);

// ok when this host owns `address` and could listen there. Otherwise invalid_argument, which names what is wrong.
Status listenable(const std::string& address, int port);

}  // namespace tutti::tools
