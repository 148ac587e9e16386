#include "tests/process/faulty_sockets.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>

namespace tutti::test {
namespace {

constexpr std::size_t kMost = 4096;             // descriptors that are looked after
constexpr std::size_t kLongEnough = 1000;       // bytes of a read: not a handshake's
constexpr std::size_t kSlowBytes = 64 << 10;
constexpr std::chrono::milliseconds kSlowPause{2};

std::array<std::atomic<std::size_t>, kMost> sent;
std::array<std::atomic<Fault>, kMost> faults;
std::array<std::atomic<std::chrono::steady_clock::rep>, kMost> paused_until;
std::atomic<int> struck{0};
std::atomic<bool> any{false};

bool known(int fd) { return fd >= 0 && std::size_t(fd) < kMost; }

Fault fault_of(int fd) {
  if (!any.load(std::memory_order_relaxed) || !known(fd)) return Fault::none;
  return faults[std::size_t(fd)].load(std::memory_order_relaxed);
}

bool is_tcp(int fd) {
  int family = 0;
  socklen_t bytes = sizeof family;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && (family == AF_INET || family == AF_INET6);
}

// Whether the call is over with `result`, instead of being made.
bool replaced(int fd, std::size_t& room, ssize_t& result) {
  switch (fault_of(fd)) {
    case Fault::none:
    case Fault::flip: return false;
    case Fault::reset:
      faults[std::size_t(fd)] = Fault::none;
      ++struck;
      ::shutdown(fd, SHUT_RDWR);
      return false;
    case Fault::silent:
      ++struck;
      errno = EAGAIN;
      result = -1;
      return true;
    case Fault::slow: {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      if (now.count() < paused_until[std::size_t(fd)]) {
        errno = EAGAIN;
        result = -1;
        return true;
      }
      ++struck;
      room = std::min(room, kSlowBytes);
      paused_until[std::size_t(fd)] = (now + kSlowPause).count();
      return false;
    }
  }
  return false;
}

void count(int fd, ssize_t moved) {
  if (moved > 0 && known(fd)) sent[std::size_t(fd)] += std::size_t(moved);
}

}  // namespace

bool inject(Fault fault, std::size_t least) {
  int best = -1;
  for (std::size_t fd = 0; fd < kMost; ++fd) {
    if (sent[fd] < least || (best >= 0 && sent[fd] <= sent[std::size_t(best)]) || faults[fd] != Fault::none ||
        !is_tcp(int(fd)))
      continue;
    best = int(fd);
  }
  if (best < 0) return false;
  faults[std::size_t(best)] = fault;
  any = true;
  return true;
}

int strikes() { return struck; }

void forget_traffic() {
  any = false;
  struck = 0;
  for (std::size_t fd = 0; fd < kMost; ++fd) sent[fd] = 0, faults[fd] = Fault::none, paused_until[fd] = 0;
}

}  // namespace tutti::test

using namespace tutti::test;

extern "C" ssize_t recv(int fd, void* into, std::size_t bytes, int flags) {
  ssize_t result = 0;
  if (replaced(fd, bytes, result)) return result;
  result = ::syscall(SYS_recvfrom, fd, into, bytes, flags, nullptr, nullptr);
  if (result >= ssize_t(kLongEnough) && fault_of(fd) == Fault::flip) {
    faults[std::size_t(fd)] = Fault::none;
    ++struck;
    static_cast<unsigned char*>(into)[result / 2] ^= 0x10;
  }
  return result;
}

extern "C" ssize_t send(int fd, const void* from, std::size_t bytes, int flags) {
  ssize_t result = 0;
  if (replaced(fd, bytes, result)) return result;
  result = ::syscall(SYS_sendto, fd, from, bytes, flags, nullptr, 0);
  count(fd, result);
  return result;
}

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  ssize_t result = 0;
  std::size_t room = ~std::size_t(0);
  if (replaced(fd, room, result)) return result;
  if (room != ~std::size_t(0) && message->msg_iovlen > 0) {          // slow: the first part, or some of it
    result = ::syscall(SYS_sendto, fd, message->msg_iov[0].iov_base, std::min(room, message->msg_iov[0].iov_len), flags,
                       nullptr, 0);
  } else {
    result = ::syscall(SYS_sendmsg, fd, message, flags);
  }
  count(fd, result);
  return result;
}
