#pragma once
// LinkServer: the end of a pair that listens. It serves the questions of link_probe.h to whoever knows the token, from
// threads of its own, until it goes away.
//
// A TCP connection begins with the token, a letter and a number: echo frames of kFrame bytes ('e'); take that many
// bytes and answer one ('l'); be the receiver ('s') or the sender ('g') of a flow. A datagram begins with the token and
// a letter: 'd' is answered by its own size, 'r' by a datagram of the size that is asked for; neither is ever
// fragmented.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tools/doctor/sockets.h"

namespace tutti::tools::doctor {

inline constexpr std::size_t kTokenBytes = 16, kFrame = 64;

struct LinkQuestion {
  char letter = 0;
  std::uint64_t number = 0;
};
inline constexpr std::size_t kQuestionBytes = kTokenBytes + 1 + 8;
std::string encode(const std::string& token, LinkQuestion question);
// Whether the token was right.
bool decode(std::span<const char> bytes, const std::string& token, LinkQuestion& question);

// UDP that is never fragmented, whatever the kernel believes of the path.
Descriptor whole_datagrams(int family);
// IP and UDP headers.
constexpr int datagram_overhead(int family) { return family == AF_INET ? 28 : 48; }

class LinkServer {
 public:
  // Listens on all addresses of this host, on a port of TUTTI_PORT_RANGE or any.
  static Result<std::unique_ptr<LinkServer>> start(const std::string& token);
  ~LinkServer();
  int port() const { return port_; }

 private:
  explicit LinkServer(std::string token) : token_(std::move(token)) {}
  Status open(int family, int port);
  void run();
  void serve(Descriptor socket);
  void answer_datagram(int socket);

  const std::string token_;
  int port_ = 0;
  std::vector<Descriptor> listeners_, datagrams_;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::vector<std::thread> conversations_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace tutti::tools::doctor
