#include "tests/process/strangers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <stdexcept>
#include <tutti/version.h>

namespace tutti::test {
namespace {

sockaddr_in local(int port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(std::uint16_t(port));
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return out;
}

int listen_somewhere() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in any = local(0);
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 || ::listen(fd, 64) != 0)
    throw std::runtime_error("listen");
  return fd;
}

int port_of(int fd) {
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes);
  return ntohs(own.sin_port);
}

// The magic of every version, and the version behind this one.
std::string start_of_a_handshake(unsigned version) {
  std::string out = "TUTTI\xf6\r\n";
  for (int i = 0; i < 4; ++i) out.push_back(char(version >> (8 * i) & 0xff));
  return out;
}

void say(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) < 0) return;       // it may be gone
}

}  // namespace

int unused_port() {
  const int fd = listen_somewhere();
  const int port = port_of(fd);
  ::close(fd);
  return port;
}

Listening::Listening(Answers answers) : fd_(listen_somewhere()) {
  if (answers == Answers::nothing) return;
  thread_ = std::thread([this, answers] {
    while (!over_) {
      pollfd waits{fd_, POLLIN, 0};
      if (::poll(&waits, 1, 50) <= 0) continue;
      const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      char request[256];
      if (::recv(fd, request, sizeof request, 0) >= 0)
        say(fd, answers == Answers::http ? "HTTP/1.1 400 Bad Request\r\n\r\n" : start_of_a_handshake(kWireVersion + 1));
      ::shutdown(fd, SHUT_WR);
      waits = {fd, POLLIN, 0};
      ::poll(&waits, 1, 50);
      ::close(fd);
    }
  });
}

Listening::~Listening() {
  over_ = true;
  if (thread_.joinable()) thread_.join();
  ::close(fd_);
}

std::string Listening::address() const { return "127.0.0.1:" + std::to_string(port_of(fd_)); }

Strangers::Strangers(const std::string& address, int count) {
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  thread_ = std::thread([this, port, count] {
    std::mt19937 random(1);
    for (int i = 0; i < count; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in to = local(port);
      if (fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
        ++connected_;
        std::string noise(1 + random() % 500, 0);
        for (char& c : noise) c = char(random());
        switch (i % 4) {
          case 0: break;
          case 1: say(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); break;
          case 2: say(fd, noise); break;
          default: say(fd, start_of_a_handshake(kWireVersion) + noise); break;
        }
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (fd >= 0) ::close(fd);
    }
    over_ = true;
  });
}

}  // namespace tutti::test
