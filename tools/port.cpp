// See port.h.
#include "tools/port.h"
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <netdb.h>
#include <random>
#include <sys/socket.h>
#include "tools/child.h"

namespace tutti::tools {
namespace {

constexpr int kLowestPort = 10240;        // above what services are usually given
constexpr int kUsualEphemeral = 32768;
constexpr int kAttempts = 200;

int lowest_ephemeral_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int lowest = 0;
  return file >> lowest && lowest > kLowestPort + 1000 ? lowest : kUsualEphemeral;
}

// 0, or the errno of the last attempt.
int try_bind(const addrinfo* list) {
  int error = EADDRNOTAVAIL;
  for (; list; list = list->ai_next) {
    const Descriptor socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;      // as a listener does it: a port in TIME_WAIT is free
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(socket.get(), list->ai_addr, list->ai_addrlen) == 0 && listen(socket.get(), 1) == 0) return 0;
    error = errno;
  }
  return error;
}

}  // namespace

Status listenable(const std::string& address, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (const int failed = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found); failed != 0) {
    return Status(Code::invalid_argument,
                  fmt::format("cannot resolve the address '{}': {}", address, gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  const int error = try_bind(list.get());
  if (error == 0) return {};
  if (error == EADDRINUSE) {
    return Status(Code::invalid_argument,
                  fmt::format("port {} of {} is taken: another process listens there", port, address));
  }
  if (error == EADDRNOTAVAIL) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is not an address of this host, and rank 0 must listen there", address));
  }
  return Status(Code::invalid_argument,
                fmt::format("cannot listen on {} port {}: {}", address, port, std::strerror(error)));
}

Result<int> free_port(bool check) {
  std::random_device random;
  std::uniform_int_distribution<int> ports(kLowestPort, lowest_ephemeral_port() - 1);
  for (int i = 0; i < kAttempts; ++i) {
    const int port = ports(random);
    if (!check || listenable("0.0.0.0", port).ok()) return port;
  }
  return Status(Code::out_of_resources, fmt::format("found no free port after {} attempts", kAttempts));
}

}  // namespace tutti::tools
