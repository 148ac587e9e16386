#include "core/posix_net.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/check.h"
#include "core/errno_text.h"
#include "core/fork.h"
#include "core/interfaces.h"
#include "core/log.h"
#include "core/port_holder.h"
#include "core/posix_loop.h"

namespace tutti {
namespace {

// Owns a descriptor and its watch.
class Socket {
 public:
  Socket(std::shared_ptr<Poller> poller, int descriptor)
      : poller_(std::move(poller)), descriptor_(descriptor), watch_(poller_->add(descriptor)) {}
  ~Socket() {
    poller_->remove(watch_);
    close_kept(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }
  void set(std::uint32_t event, Poller::Callback callback) { poller_->set(watch_, event, std::move(callback)); }
  const std::shared_ptr<Poller>& poller() const { return poller_; }

 private:
  std::shared_ptr<Poller> poller_;
  int descriptor_;
  Poller::WatchId watch_;
};

int new_socket(int family) {
  return kept_from_children([family] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);
SocketAddress name_of(int descriptor, NameOf which) {
  SocketAddress out;
  out.bytes = sizeof out.storage;
  if (which(descriptor, out.get(), &out.bytes) != 0) out.bytes = 0;
  return out;
}

void set_option(int descriptor, int level, int name, int value) {
  ::setsockopt(descriptor, level, name, &value, sizeof value);
}

// TCP only: no waiting for more to send; and a host that vanished is noticed on an idle connection within about 25 s.
void set_stream_options(int descriptor, int family) {
  if (family == AF_UNIX) return;
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 5);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

Status system_status(std::string what, int error) {
  bool resources = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
  return {resources ? Code::out_of_resources : error == ETIMEDOUT ? Code::timeout : Code::network, std::move(what) + ": " + errno_text(error)};
}

// Why the kernel finds no port by itself: connections of other programs hold all, or closed ones in TIME_WAIT.
std::string no_local_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0, last = 0;
  file >> first >> last;
  return fmt::format("no local port is free (net.ipv4.ip_local_port_range is {}-{}; `ss -tan` shows who has them)", first, last);
}

constexpr std::size_t kMostDescriptors = 64;  // in one message; the kernel's limit is 253

class SocketStream final : public Stream {
 public:
  explicit SocketStream(std::unique_ptr<Socket> socket, std::string remote)
      : socket_(std::move(socket)),
        remote_(std::move(remote)),
        family_(name_of(socket_->get(), ::getsockname).family()) {}

  IoResult read(std::span<std::byte> into) override {
    for (;;) {
      ssize_t got = ::recv(socket_->get(), into.data(), into.size(), MSG_DONTWAIT);
      if (got > 0) return {std::size_t(got), false, {}};
      if (got == 0) return {0, !into.empty(), {}};
      if (would_block(errno)) return {};
      if (errno != EINTR) return {0, false, system_status("read from " + remote_, errno)};
    }
  }

  IoResult read_past(std::span<std::byte> into, std::span<std::byte> behind) override {
    iovec parts[2] = {{into.data(), into.size()}, {behind.data(), behind.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    for (;;) {
      const ssize_t got = ::recvmsg(socket_->get(), &message, MSG_DONTWAIT);
      if (got > 0) return {std::size_t(got), false, {}};
      if (got == 0) return {0, true, {}};
      if (would_block(errno)) return {};
      if (errno != EINTR) return {0, false, system_status("read from " + remote_, errno)};
    }
  }

  IoResult write(std::span<const iovec> from) override {
    constexpr std::size_t kMostParts = 1024;  // IOV_MAX
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(from.data());
    message.msg_iovlen = std::min(from.size(), kMostParts);
    for (;;) {
      // One part goes without the kernel reading a msghdr and its vector: half a microsecond of eight, for a small frame.
      ssize_t sent = from.size() == 1 ? ::send(socket_->get(), from[0].iov_base, from[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
                                      : ::sendmsg(socket_->get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) return {std::size_t(sent), false, {}};
      if (would_block(errno)) return {};
      if (errno != EINTR) return {0, false, system_status("write to " + remote_, errno)};
    }
  }

  void when_readable(std::function<void()> callback) override { socket_->set(EPOLLIN, std::move(callback)); }
  void when_writable(std::function<void()> callback) override { socket_->set(EPOLLOUT, std::move(callback)); }

  Status send_descriptors(std::span<const int> descriptors) override;
  Result<std::vector<int>> receive_descriptors() override;

  std::size_t unsent_bytes() const override {
    int bytes = 0;
    return ::ioctl(socket_->get(), SIOCOUTQ, &bytes) == 0 && bytes > 0 ? std::size_t(bytes) : 0;
  }
  std::uint64_t retransmitted() const override {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    return ::getsockopt(socket_->get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 ? info.tcpi_total_retrans : 0;
  }
  std::string local_address() const override { return to_text(name_of(socket_->get(), ::getsockname)); }
  std::string remote_address() const override { return remote_; }

 private:
  std::unique_ptr<Socket> socket_;
  std::string remote_;
  int family_;
};

Status SocketStream::send_descriptors(std::span<const int> descriptors) {
  if (family_ != AF_UNIX)
    return {Code::unsupported, "descriptors can be passed on Unix sockets only, not to " + remote_};
  if (descriptors.empty() || descriptors.size() > kMostDescriptors)
    return {Code::invalid_argument,
            fmt::format("want 1 to {} descriptors at once, not {}", kMostDescriptors, descriptors.size())};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)] = {};
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  ssize_t sent;
  while ((sent = ::sendmsg(socket_->get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (sent == 1) return {};
  return system_status("pass descriptors to " + remote_, errno);
}

Result<std::vector<int>> SocketStream::receive_descriptors() {
  if (family_ != AF_UNIX)
    return Status(Code::unsupported, "descriptors can be passed on Unix sockets only, not from " + remote_);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)] = {};
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  while ((got = ::recvmsg(socket_->get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (got < 0 && would_block(errno)) return std::vector<int>{};
  if (got < 0) return system_status("receive descriptors from " + remote_, errno);
  std::vector<int> out;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    std::size_t before = out.size();
    out.resize(before + count);
    std::memcpy(out.data() + before, CMSG_DATA(header), count * sizeof(int));
  }
  if (got > 0 && !out.empty() && !(message.msg_flags & MSG_CTRUNC)) return out;
  for (int descriptor : out) ::close(descriptor);
  if (got == 0) return Status(Code::network, "receive descriptors from " + remote_ + ": closed by the other side");
  if (message.msg_flags & MSG_CTRUNC) return system_status("receive descriptors from " + remote_, EMFILE);
  return Status(Code::network, "receive descriptors from " + remote_ + ": a byte came without any");
}

class SocketAcceptor final : public Acceptor {
 public:
  SocketAcceptor(PosixLoop& loop, int descriptor, Network::OnAccept on_accept)
      : loop_(loop),
        socket_(loop.poller(), descriptor),
        on_accept_(std::make_shared<Network::OnAccept>(std::move(on_accept))) {
    watch();
  }
  std::string address() const override { return to_text(name_of(socket_.get(), ::getsockname)); }
  int port() const override { return name_of(socket_.get(), ::getsockname).port(); }

 private:
  void watch() {
    pause_ = nullptr;
    socket_.set(EPOLLIN, [this] { accept_some(); });
  }
  void accept_some() {
    constexpr int kAtOnce = 64;
    // Held here: the callback may destroy this acceptor.
    std::shared_ptr<Network::OnAccept> on_accept = on_accept_;
    std::weak_ptr<Network::OnAccept> alive = on_accept_;
    for (int i = 0; i < kAtOnce && on_accept_.use_count() > 0; ++i) {
      SocketAddress from;
      from.bytes = sizeof from.storage;
      int descriptor = kept_from_children([&] { return ::accept4(socket_.get(), from.get(), &from.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC); });
      if (descriptor < 0) return after_failure(errno);
      set_stream_options(descriptor, from.family());
      auto stream =
          std::make_unique<SocketStream>(std::make_unique<Socket>(socket_.poller(), descriptor), to_text(from));
      (*on_accept)(std::move(stream));
      if (on_accept.use_count() == 1) return;  // destroyed meanwhile
    }
  }
  void after_failure(int error) {
    if (error == EINTR || error == ECONNABORTED || would_block(error)) return;
    if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) return;
    // The connection stays in the queue, so watching on would spin. Descriptors may come free.
    log::write_once(log::Level::warning, "cannot accept connections: " + errno_text(error));
    socket_.set(EPOLLIN, nullptr);
    pause_ = loop_.at(loop_.now() + std::chrono::milliseconds(100), [this] { watch(); });
  }

  PosixLoop& loop_;
  Socket socket_;
  std::shared_ptr<Network::OnAccept> on_accept_;
  std::shared_ptr<void> pause_;
};

// One connect() on its way. Owned by the handle that Network::connect returns; the poller's callbacks go with it.
class Connecting {
 public:
  Connecting(PosixLoop& loop, std::string address, Network::OnConnect on_connect)
      : loop_(loop), address_(std::move(address)), on_connect_(std::move(on_connect)) {
    timer_ = loop_.at(loop_.now(), [this] { begin(); });  // never from within connect() itself
  }

 private:
  void begin() {
    auto parsed = parse_address(address_);
    if (!parsed) return finish(parsed.status());
    int descriptor = new_socket(parsed->family());
    if (descriptor < 0) return finish(failed(errno));
    socket_ = std::make_unique<Socket>(loop_.poller(), descriptor);
    set_stream_options(descriptor, parsed->family());
    if (::connect(descriptor, parsed->get(), parsed->bytes) == 0) return finish_connected();
    if (errno == EINPROGRESS || errno == EINTR) return socket_->set(EPOLLOUT, [this] { on_writable(); });
    if (!would_block(errno)) return finish(failed(errno));
    // A Unix listener's queue is full: it will be shorter soon.
    socket_.reset();
    timer_ = loop_.at(loop_.now() + std::chrono::milliseconds(2), [this] { begin(); });
  }
  void on_writable() {
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(socket_->get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error != 0) return finish(failed(error));
    finish_connected();
  }
  void finish_connected() {
    // A connect to a free local port of the ephemeral range may meet itself.
    auto local = name_of(socket_->get(), ::getsockname);
    if (local.family() != AF_UNIX && local == name_of(socket_->get(), ::getpeername))
      return finish(failed(ECONNREFUSED));
    socket_->set(EPOLLOUT, nullptr);
    finish(std::unique_ptr<Stream>(std::make_unique<SocketStream>(std::move(socket_), address_)));
  }
  Status failed(int error) const {
    const std::string what = "connect to " + address_;
    if (error != EADDRNOTAVAIL) return system_status(what, error);
    return Status(Code::network, what + ": " + (address_[0] == '[' ? "this host has no IPv6 address to call from, or no port is left" : no_local_port()));
  }
  void finish(Result<std::unique_ptr<Stream>> result) {
    auto callback = std::move(on_connect_);  // may drop the handle, and so this
    socket_.reset();
    callback(std::move(result));
  }

  PosixLoop& loop_;
  std::string address_;
  Network::OnConnect on_connect_;
  std::unique_ptr<Socket> socket_;
  std::shared_ptr<void> timer_;
};

PortRange checked_range(const Settings& settings) {
  auto range = parse_port_range(settings.port_range);
  return range ? *range : PortRange{};
}

}  // namespace

PosixNetwork::PosixNetwork(PosixLoop& loop, const Settings& settings)
    : loop_(loop), interface_(settings.interface), ports_(checked_range(settings)) {}
PosixNetwork::~PosixNetwork() = default;

Result<int> PosixNetwork::bind_and_listen(SocketAddress address, const std::string& text) {
  constexpr int kQueue = 4096;  // all ranks come at once; the kernel caps it at net.core.somaxconn
  int descriptor = new_socket(address.family());
  if (descriptor < 0) return system_status("listen on " + text, errno);
  if (address.family() != AF_UNIX) set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set_option(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(descriptor, address.get(), address.bytes) == 0 && ::listen(descriptor, kQueue) == 0) return descriptor;
  int error = errno;
  close_kept(descriptor);
  Status status = system_status("listen on " + text, error);
  if (error == EADDRINUSE && address.family() != AF_UNIX && address.port() == 0) return Status(Code::network, "listen on " + text + ": " + no_local_port());
  std::string holder = error == EADDRINUSE && address.family() != AF_UNIX ? port_holder(address.port()) : "";
  if (!holder.empty()) return Status(status.code(), status.text() + ", held by " + holder);
  return status;
}

Result<std::unique_ptr<Acceptor>> PosixNetwork::listen(const std::string& address, OnAccept on_accept) {
  auto parsed = parse_address(address);
  if (!parsed) return parsed.status();
  Result<int> descriptor = Status();
  if (parsed->family() == AF_UNIX || parsed->port() != 0 || ports_.first == 0) {
    descriptor = bind_and_listen(*parsed, address);
  } else {
    int count = ports_.last - ports_.first + 1;
    int start = int(loop_.random() % std::uint64_t(count));
    for (int i = 0; i < count; ++i) {
      parsed->set_port(ports_.first + (start + i) % count);
      descriptor = bind_and_listen(*parsed, to_text(*parsed));
      if (descriptor || descriptor.status().code() != Code::network) break;
    }
    if (!descriptor)
      return Status(descriptor.status().code(), fmt::format("no port of TUTTI_PORT_RANGE={}-{} can be had: {}",
                                                            ports_.first, ports_.last, descriptor.status().text()));
  }
  if (!descriptor) return descriptor.status();
  return std::unique_ptr<Acceptor>(std::make_unique<SocketAcceptor>(loop_, *descriptor, std::move(on_accept)));
}

std::shared_ptr<void> PosixNetwork::connect(const std::string& address, OnConnect on_connect) {
  return std::make_shared<Connecting>(loop_, address, std::move(on_connect));
}

std::vector<std::string> PosixNetwork::local_addresses(bool loopback) {
  auto hosts = choose_addresses(interface_addresses(), interface_, loopback);
  if (hosts) return std::move(hosts).value();
  log::write_once(log::Level::error, "TUTTI_INTERFACE=" + interface_ + ": " + hosts.status().text());
  return {};
}

Result<std::vector<std::string>> PosixNetwork::resolve(const std::string& host_and_port) {
  std::vector<std::string> out;
  if (parse_address(host_and_port)) {
    out.push_back(host_and_port);
    return out;
  }
  auto split = split_address(host_and_port);
  if (!split) return split.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  int error = ::getaddrinfo(split->host.c_str(), nullptr, &hints, &list);
  if (error != 0)
    return Status(Code::network, fmt::format("look up host {}: {}", split->host,
                                             error == EAI_SYSTEM ? errno_text(errno) : ::gai_strerror(error)));
  for (addrinfo* at = list; at; at = at->ai_next) {
    SocketAddress address;
    address.bytes = at->ai_addrlen;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.set_port(split->port);
    std::string text = to_text(address);
    if (std::find(out.begin(), out.end(), text) == out.end()) out.push_back(text);
  }
  ::freeaddrinfo(list);
  return out;
}

}  // namespace tutti
