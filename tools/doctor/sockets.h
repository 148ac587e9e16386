#pragma once
// Plain TCP sockets with a deadline on every call, and how a connect came out. No protocol; nothing of the library's
// own connections, so that it works where they do not.
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "core/socket_address.h"
#include "tools/child.h"
#include "tools/doctor/pair.h"

namespace tutti::tools::doctor {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Whether one of poll()'s `events` came before the deadline; errors and hang-ups count as having come.
bool wait_for(int socket, short events, Deadline deadline);

// All bytes. timeout; network (closed or failed, with the system's text).
Status send_all(int socket, const void* data, std::size_t bytes, Deadline deadline);
Status receive_all(int socket, void* data, std::size_t bytes, Deadline deadline);

// A numeric address with port. `attempt` tells how it came out; the socket is there when it is connected.
struct Connection {
  Descriptor socket;
  Attempt attempt;
};
Connection connect_to(const std::string& address, Deadline deadline);

// For an address that stays silent: whether its host answers on any of two other ports (refusing is an answer). A
// second at most.
bool host_answers(const std::string& address);

// Non-blocking, TCP, on one family. network: with the holder of the port where that can be found out.
Result<Descriptor> listen_on(const SocketAddress& address);
// Empty descriptor: nobody came.
Descriptor accept_from(int listener);

std::string own_end(int socket);  // "10.0.0.1:4000"; v4 addresses in v6 are shown as v4
std::string other_end(int socket);
std::string host_of(const std::string& address);  // without the port

}  // namespace tutti::tools::doctor
