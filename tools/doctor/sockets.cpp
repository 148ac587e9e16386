#include "tools/doctor/sockets.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/errno_text.h"
#include "core/port_holder.h"

namespace tutti::tools::doctor {
namespace {

int milliseconds_to(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return int(std::clamp<long long>(left, 0, 3'600'000));
}

Reach reach_of(int error) {
  switch (error) {
    case 0: return Reach::connected;
    case ECONNREFUSED: return Reach::refused;
    case ETIMEDOUT: return Reach::filtered;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN: return Reach::unreachable;
    default: return Reach::failed;
  }
}

std::string end_of(int socket, int (*name)(int, sockaddr*, socklen_t*)) {
  SocketAddress address;
  address.bytes = sizeof address.storage;
  if (name(socket, address.get(), &address.bytes) != 0 || address.family() == AF_UNIX) return "";
  return to_text(address);
}

// 0 or an errno; ETIMEDOUT by our own clock.
int finish_connect(int socket, Deadline deadline) {
  if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t bytes = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

}  // namespace

bool wait_for(int socket, short events, Deadline deadline) {
  for (;;) {
    pollfd one{socket, events, 0};
    const int came = poll(&one, 1, milliseconds_to(deadline));
    if (came > 0) return true;
    if (came == 0 && Clock::now() >= deadline) return false;
    if (came < 0 && errno != EINTR) return true;  // the call that follows says what is wrong
  }
}

Status send_all(int socket, const void* data, std::size_t bytes, Deadline deadline) {
  auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0)
      at += sent, bytes -= std::size_t(sent);
    else if (errno != EAGAIN && errno != EINTR)
      return {Code::network, errno_text(errno)};
    else if (!wait_for(socket, POLLOUT, deadline))
      return {Code::timeout, "it took nothing in time"};
  }
  return {};
}

Status receive_all(int socket, void* data, std::size_t bytes, Deadline deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, MSG_DONTWAIT);
    if (got > 0)
      at += got, bytes -= std::size_t(got);
    else if (got == 0)
      return {Code::network, "it closed the connection"};
    else if (errno != EAGAIN && errno != EINTR)
      return {Code::network, errno_text(errno)};
    else if (!wait_for(socket, POLLIN, deadline))
      return {Code::timeout, "nothing came in time"};
  }
  return {};
}

Connection connect_to(const std::string& address, Deadline deadline) {
  Connection out;
  out.attempt.address = address;
  const auto parsed = parse_address(address);
  if (!parsed) {
    out.attempt.reach = Reach::failed;
    out.attempt.text = parsed.status().text();
    return out;
  }
  Descriptor socket(::socket(parsed->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = socket.get() < 0 ? errno : 0;
  if (error == 0 && connect(socket.get(), parsed->get(), parsed->bytes) != 0) {
    error = errno == EINPROGRESS ? finish_connect(socket.get(), deadline) : errno;
  }
  out.attempt.reach = reach_of(error);
  out.attempt.text = error == 0 ? "connected" : errno_text(error);
  if (error == 0 && own_end(socket.get()) == address) {  // a connect to a free ephemeral port can meet itself
    out.attempt.reach = Reach::refused;
    out.attempt.text = errno_text(ECONNREFUSED);
  } else if (error == 0) {
    const int yes = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    out.socket = std::move(socket);
  }
  return out;
}

bool host_answers(const std::string& address) {
  for (const int port : {22, 1}) {
    const auto limit = Clock::now() + std::chrono::milliseconds(500);
    const Reach reach = connect_to(join_address(host_of(address), port), limit).attempt.reach;
    if (reach == Reach::connected || reach == Reach::refused) return true;
  }
  return false;
}

Result<Descriptor> listen_on(const SocketAddress& address) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address.family() == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  if (bind(socket.get(), address.get(), address.bytes) == 0 && listen(socket.get(), 64) == 0) return socket;
  const int error = errno;
  std::string text = fmt::format("cannot listen on {}: {}", to_text(address), errno_text(error));
  if (error == EADDRINUSE)
    if (const std::string holder = port_holder(address.port()); !holder.empty()) text += ", held by " + holder;
  return Status(error == EADDRINUSE ? Code::out_of_resources : Code::network, text);
}

Descriptor accept_from(int listener) {
  return Descriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::string own_end(int socket) { return end_of(socket, getsockname); }
std::string other_end(int socket) { return end_of(socket, getpeername); }

std::string host_of(const std::string& address) {
  const auto split = split_address(address);
  return split ? split->host : address;
}

}  // namespace tutti::tools::doctor
