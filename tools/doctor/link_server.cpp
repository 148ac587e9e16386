#include "tools/doctor/link_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "core/config.h"
#include "tools/doctor/flow.h"

namespace tutti::tools::doctor {
namespace {

constexpr std::chrono::seconds kConversation{8};  // the longest
constexpr std::chrono::milliseconds kLook{50};    // between looks whether it is time to end
constexpr std::size_t kMostDatagram = 65507, kMostConversations = 64;

SocketAddress any_address(int family, int port) {
  SocketAddress out;
  out.storage.ss_family = sa_family_t(family);
  out.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  out.set_port(port);
  return out;
}

void echo(int socket, Deadline deadline) {
  char frame[kFrame];
  while (receive_all(socket, frame, sizeof frame, deadline) && send_all(socket, frame, sizeof frame, deadline))
    continue;
}

void take(int socket, std::uint64_t bytes, Deadline deadline) {
  std::string all(std::min<std::uint64_t>(bytes, 1u << 20), '\0');
  if (receive_all(socket, all.data(), all.size(), deadline)) (void)send_all(socket, "k", 1, deadline);
}

// Rate in bytes a second and busy share in millionths, as the other end of 's' reads them.
void sink(int socket, Deadline deadline) {
  const auto end = receive_flow(socket, deadline);
  const std::uint64_t out[2] = {end ? std::uint64_t(end->bytes_per_second) : 0,
                                end ? std::uint64_t(end->busy * 1e6) : 0};
  std::string bytes;
  for (const std::uint64_t value : out)
    for (int i = 0; i < 8; ++i) bytes += char(value >> (8 * i));
  (void)send_all(socket, bytes.data(), bytes.size(), deadline);
}

// Until the other end has closed: closing first could take back what it has not read yet.
void source(int socket, Deadline deadline) {
  char rest = 0;
  if (send_flow(socket, deadline)) (void)receive_all(socket, &rest, 1, deadline);
}

}  // namespace

std::string encode(const std::string& token, LinkQuestion question) {
  std::string out = token + question.letter;
  for (int i = 0; i < 8; ++i) out += char(question.number >> (8 * i));
  return out;
}

bool decode(std::span<const char> bytes, const std::string& token, LinkQuestion& question) {
  if (bytes.size() < kQuestionBytes || std::memcmp(bytes.data(), token.data(), kTokenBytes) != 0) return false;
  question = {bytes[kTokenBytes], 0};
  for (std::size_t i = 0; i < 8; ++i)
    question.number |= std::uint64_t(std::uint8_t(bytes[kTokenBytes + 1 + i])) << (8 * i);
  return true;
}

Descriptor whole_datagrams(int family) {
  Descriptor out(socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1, probe = family == AF_INET ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE;
  if (family == AF_INET) {
    setsockopt(out.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
  } else {
    setsockopt(out.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    setsockopt(out.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe, sizeof probe);
  }
  return out;
}

Status LinkServer::open(int family, int port) {
  auto listener = listen_on(any_address(family, port));
  if (!listener) return listener.status();
  SocketAddress own;
  own.bytes = sizeof own.storage;
  getsockname(listener->get(), own.get(), &own.bytes);
  Descriptor udp = whole_datagrams(family);
  const SocketAddress same = any_address(family, own.port());
  if (bind(udp.get(), same.get(), same.bytes) == 0) datagrams_.push_back(std::move(udp));
  port_ = own.port();
  listeners_.push_back(std::move(*listener));
  return {};
}

Result<std::unique_ptr<LinkServer>> LinkServer::start(const std::string& token) {
  std::unique_ptr<LinkServer> out(new LinkServer(token));
  const auto range = parse_port_range(environment("TUTTI_PORT_RANGE"));
  const int first = range ? range->first : 0, last = range ? range->last : 0;
  Status status;
  for (int port = first; port <= last; ++port)
    if (status = out->open(AF_INET, port); status) break;
  if (!status) return status;
  (void)out->open(AF_INET6, out->port_);  // where there is IPv6
  out->thread_ = std::thread([server = out.get()] { server->run(); });
  return out;
}

LinkServer::~LinkServer() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
  for (std::thread& conversation : conversations_) conversation.join();
}

void LinkServer::run() {
  while (!ending_) {
    std::vector<pollfd> polled;
    for (const Descriptor& one : listeners_) polled.push_back({one.get(), POLLIN, 0});
    for (const Descriptor& one : datagrams_) polled.push_back({one.get(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), int(kLook.count())) <= 0) continue;
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (!(polled[i].revents & POLLIN)) continue;
      if (i >= listeners_.size()) {
        answer_datagram(polled[i].fd);
      } else if (Descriptor socket = accept_from(polled[i].fd); socket.get() >= 0) {
        const std::lock_guard lock(mutex_);
        if (conversations_.size() < kMostConversations)
          conversations_.emplace_back([this, s = std::move(socket)]() mutable { serve(std::move(s)); });
      }
    }
  }
}

void LinkServer::serve(Descriptor socket) {
  char start[kQuestionBytes];
  LinkQuestion question;
  const Deadline deadline = Clock::now() + kConversation;
  if (!receive_all(socket.get(), start, sizeof start, Clock::now() + std::chrono::seconds(2))) return;
  if (!decode(start, token_, question)) return;
  switch (question.letter) {
    case 'e': return echo(socket.get(), deadline);
    case 'l': return take(socket.get(), question.number, deadline);
    case 's': return sink(socket.get(), deadline);
    case 'g': return source(socket.get(), deadline);
    default: return;
  }
}

void LinkServer::answer_datagram(int socket) {
  std::string buffer(kMostDatagram, '\0');
  SocketAddress peer;
  peer.bytes = sizeof peer.storage;
  const ssize_t got = recvfrom(socket, buffer.data(), buffer.size(), 0, peer.get(), &peer.bytes);
  LinkQuestion question;
  if (got < 0 || !decode(std::span(buffer).first(std::size_t(got)), token_, question)) return;
  std::string answer = encode(token_, {question.letter, question.letter == 'd' ? std::uint64_t(got) : question.number});
  if (question.letter == 'r') answer.resize(std::clamp<std::uint64_t>(question.number, kQuestionBytes, kMostDatagram));
  sendto(socket, answer.data(), answer.size(), MSG_DONTWAIT, peer.get(), peer.bytes);
}

}  // namespace tutti::tools::doctor
