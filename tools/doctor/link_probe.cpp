#include "tools/doctor/link_probe.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>

#include "tools/doctor/facts.h"
#include "tools/doctor/flow.h"

namespace tutti::tools::doctor {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnect{2000}, kFirstEcho{3000}, kLarge{4000}, kFlow{8000}, kAllEchoes{300};
constexpr int kEchoes = 200, kMostAddresses = 6;
constexpr std::uint64_t kLargeBytes = 256u << 10;

Deadline in(milliseconds limit) { return Clock::now() + limit; }

// Connected, and the question asked.
Connection ask(const std::string& address, const std::string& token, LinkQuestion question) {
  Connection out = connect_to(address, in(kConnect));
  if (out.socket.get() < 0) return out;
  const std::string start = encode(token, question);
  if (Status status = send_all(out.socket.get(), start.data(), start.size(), in(kConnect)); !status) {
    out.socket.close();
    out.attempt.reach = Reach::failed;
    out.attempt.text = status.text();
  }
  return out;
}

Status echo_once(int socket, Deadline deadline) {
  char frame[kFrame] = {};
  if (Status status = send_all(socket, frame, sizeof frame, deadline); !status) return status;
  return receive_all(socket, frame, sizeof frame, deadline);
}

// The first echo proves that the one who answers knows the token.
Connection reach(const std::string& address, const std::string& token) {
  Connection out = ask(address, token, {'e', 0});
  if (out.socket.get() < 0) {
    if (out.attempt.reach == Reach::filtered) out.attempt.host_answers = host_answers(address);
    return out;
  }
  const Status status = echo_once(out.socket.get(), in(kFirstEcho));
  if (status) return out;
  out.socket.close();
  out.attempt.reach = Reach::stranger;
  out.attempt.text =
      "it takes the connection and does not answer as the doctor that should listen there: " + status.text();
  return out;
}

void measure_round_trip(Pair& pair, int socket) {
  std::vector<double> microseconds;
  const Deadline end = in(kAllEchoes);
  while (int(microseconds.size()) < kEchoes && Clock::now() < end) {
    const auto start = Clock::now();
    if (const Status status = echo_once(socket, in(kFirstEcho)); !status) {
      pair.error = "small messages back and forth: " + status.text();
      return;
    }
    microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(microseconds.begin(), microseconds.end());
  pair.round_trip_us = microseconds[microseconds.size() / 2];
  pair.round_trip_p99_us = microseconds[microseconds.size() * 99 / 100];
}

void read_path_mtu(Pair& pair, int socket, int family) {
  socklen_t bytes = sizeof pair.path_mtu;
  const bool v4 = family == AF_INET;
  getsockopt(socket, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &pair.path_mtu, &bytes);
}

// One question by datagram, sent up to three times; whether the wanted answer came.
bool ask_datagram(int socket, std::string question, const std::string& token, std::uint64_t wanted) {
  for (const milliseconds patience : {milliseconds(100), milliseconds(200), milliseconds(400)}) {
    if (send(socket, question.data(), question.size(), MSG_DONTWAIT) < 0 && errno == EMSGSIZE) return false;
    const Deadline end = in(patience);
    while (wait_for(socket, POLLIN, end)) {
      std::string answer(65536, '\0');
      const ssize_t got = recv(socket, answer.data(), answer.size(), MSG_DONTWAIT);
      LinkQuestion about;
      if (got > 0 && decode(std::span(answer).first(std::size_t(got)), token, about) && about.number == wanted)
        return true;
      if (got < 0) break;  // nobody listens for datagrams
    }
  }
  return false;
}

// The largest IP packet that arrives, of those worth trying; 0 when not even a small one does.
int largest(int wanted, int family, const std::function<bool(std::uint64_t payload)>& passes) {
  if (!passes(kQuestionBytes)) return 0;
  for (const int size : {wanted, 9000, 4200, 1500, 1450, 1400, 1280})
    if (size <= wanted && passes(std::uint64_t(size - datagram_overhead(family)))) return size;
  return int(kQuestionBytes) + datagram_overhead(family);
}

void measure_datagrams(Pair& pair, const ProbeOrder& order, const SocketAddress& peer) {
  const Descriptor socket = whole_datagrams(peer.family());
  const std::string token = from_hex(order.token);
  if (connect(socket.get(), peer.get(), peer.bytes) != 0) return;
  const auto limit = [&](int mtu) { return std::min(mtu, 65507 + datagram_overhead(peer.family())); };
  pair.wanted_datagram = limit(order.mtu);
  pair.back_wanted = limit(order.other_mtu);
  if (pair.wanted_datagram >= 576) {
    pair.datagram = largest(pair.wanted_datagram, peer.family(), [&](std::uint64_t payload) {
      std::string question = encode(token, {'d', 0});
      question.resize(payload);
      return ask_datagram(socket.get(), question, token, payload);
    });
  }
  if (pair.back_wanted >= 576 && pair.datagram > 0) {
    pair.back_datagram = largest(pair.back_wanted, peer.family(), [&](std::uint64_t payload) {
      return ask_datagram(socket.get(), encode(token, {'r', payload}), token, payload);
    });
  }
}

// What is larger than any packet: a path that swallows full-size segments shows here, as a stall.
void send_large(Pair& pair, const std::string& address, const std::string& token) {
  const Connection connection = ask(address, token, {'l', kLargeBytes});
  const std::string bytes(kLargeBytes, 'x');
  char answer = 0;
  Status status = connection.socket.get() < 0 ? Status(Code::network, connection.attempt.text) : Status();
  const Deadline deadline = in(kLarge);
  if (status) status = send_all(connection.socket.get(), bytes.data(), bytes.size(), deadline);
  if (status) status = receive_all(connection.socket.get(), &answer, 1, deadline);
  pair.large_passed = status.ok();
  if (!status) pair.error = "256 KiB at once: " + status.text();
}

Result<FlowEnd> flow_there(int socket) {
  const Deadline deadline = in(kFlow);
  const auto own = send_flow(socket, deadline);
  if (!own) return own.status();
  unsigned char answer[16];
  if (Status status = receive_all(socket, answer, sizeof answer, deadline); !status) return status;
  std::uint64_t values[2] = {};
  for (int i = 0; i < 16; ++i) values[i / 8] |= std::uint64_t(answer[i]) << (8 * (i % 8));
  if (values[0] == 0) return Status(Code::timeout, "the other end did not get to its end in time");
  return FlowEnd{double(values[0]), std::max(own->busy, double(values[1]) / 1e6)};
}

Flow measure_flow(const std::string& address, const std::string& token, int streams, bool there) {
  std::vector<Result<FlowEnd>> ends(std::size_t(streams), Status(Code::internal, "not run"));
  std::vector<std::thread> threads;
  for (auto& end : ends) {
    threads.emplace_back([&end, &address, &token, there] {
      const Connection connection = ask(address, token, {there ? 's' : 'g', 0});
      const int socket = connection.socket.get();
      if (socket < 0)
        end = Status(Code::network, connection.attempt.text);
      else
        end = there ? flow_there(socket) : receive_flow(socket, in(kFlow));
    });
  }
  for (std::thread& thread : threads) thread.join();
  Flow out;
  for (const auto& end : ends) {
    if (!end) out.error = end.status().text();
    if (!end) continue;
    out.bytes_per_second += end->bytes_per_second;
    out.busy = std::max(out.busy, end->busy);
  }
  return out;
}

void measure(Pair& pair, const ProbeOrder& order, const Connection& connection) {
  const int socket = connection.socket.get();
  const auto peer = parse_address(connection.attempt.address);
  const std::string token = from_hex(order.token), address = connection.attempt.address;
  pair.from_address = own_end(socket);
  pair.to_address = address;
  pair.streams = std::clamp(order.streams, 1, 16);
  measure_round_trip(pair, socket);
  read_path_mtu(pair, socket, peer->family());
  if (!pair.error.empty()) return;
  measure_datagrams(pair, order, *peer);
  send_large(pair, address, token);
  if (!pair.large_passed) return;
  std::uint64_t sent = 0, resent = 0, sent_then = 0, resent_then = 0;
  read_tcp_counters("", sent, resent);
  pair.there = measure_flow(address, token, pair.streams, true);
  pair.here = measure_flow(address, token, pair.streams, false);
  read_tcp_counters("", sent_then, resent_then);
  if (sent_then > sent) pair.resent = double(resent_then - resent) / double(sent_then - sent);
}

}  // namespace

std::string to_hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", std::uint8_t(c));
  return out;
}

std::string from_hex(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out += char(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16));
  return out;
}

Pair probe(const ProbeOrder& order) {
  Pair pair{.from = order.from, .to = order.to};
  bool measured = false;
  const std::string token = from_hex(order.token);
  for (std::size_t i = 0; i < std::min(order.addresses.size(), std::size_t(kMostAddresses)); ++i) {
    const Connection connection = reach(join_address(order.addresses[i], order.port), token);
    pair.attempts.push_back(connection.attempt);
    if (connection.attempt.reach != Reach::connected) continue;
    if (order.measure && !measured) measure(pair, order, connection);
    measured = true;
  }
  return pair;
}

}  // namespace tutti::tools::doctor
