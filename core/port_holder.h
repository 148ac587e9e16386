#pragma once
// Who listens on a TCP port of this host, as far as /proc tells this user.
#include <string>

namespace tutti {

// "pid 1234 (python3)"; "" when it cannot be found out (another user's process, another pid namespace).
std::string port_holder(int port);

}  // namespace tutti
