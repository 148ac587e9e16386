#include "tools/doctor/flow.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "core/errno_text.h"

namespace tutti::tools::doctor {
namespace {

constexpr std::size_t kBlock = 256u << 10;
constexpr auto kWarmUp = kFlowTime / 4;
constexpr std::size_t kTrailer = 8;  // the sender's busy share in millionths, little endian

// Of the calling thread: seconds running or waiting for a core.
double processor_seconds() {
  std::ifstream file("/proc/thread-self/schedstat");
  double running = 0, waiting = 0;
  if (file >> running >> waiting) return (running + waiting) / 1e9;
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return double(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + double(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

// Of this host: seconds in which some thread was ready and had no core (PSI); 0 where the kernel does not count it.
double starved_seconds() {
  std::ifstream file("/proc/pressure/cpu");
  std::string line;
  std::getline(file, line);
  const auto total = line.find("total=");
  return line.starts_with("some") && total != std::string::npos ? std::strtod(line.c_str() + total + 6, nullptr) / 1e6
                                                                : 0;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Busy {
 public:
  double share() const {
    const double wall = seconds_since(start_);
    return wall > 0 ? std::min(1.0, std::max(processor_seconds() - used_, starved_seconds() - starved_) / wall) : 0;
  }

 private:
  Clock::time_point start_ = Clock::now();
  double used_ = processor_seconds(), starved_ = starved_seconds();
};

}  // namespace

Result<FlowEnd> send_flow(int socket, Deadline deadline) {
  // What is queued here would arrive after the time; the kernel then wakes us with this much left.
  const int queued = int(kBlock);
  setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &queued, sizeof queued);
  const std::string block(kBlock, 'x');
  const Busy busy;
  const auto start = Clock::now();
  while (Clock::now() - start < kFlowTime) {
    if (!wait_for(socket, POLLOUT, deadline)) return Status(Code::timeout, "it took nothing in time");
    const ssize_t sent = send(socket, block.data(), block.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return Status(Code::network, errno_text(errno));
  }
  const FlowEnd end{0, busy.share()};
  char trailer[kTrailer];
  const auto millionths = std::uint64_t(end.busy * 1e6);
  for (std::size_t i = 0; i < kTrailer; ++i) trailer[i] = char(millionths >> (8 * i));
  if (Status status = send_all(socket, trailer, sizeof trailer, deadline); !status) return status;
  shutdown(socket, SHUT_WR);
  return end;
}

Result<FlowEnd> receive_flow(int socket, Deadline deadline) {
  std::string block(kBlock, '\0'), tail;
  Clock::time_point first{}, last{};
  std::uint64_t total = 0, before = 0;
  if (!wait_for(socket, POLLIN, deadline)) return Status(Code::timeout, "nothing came in time");
  const Busy busy;
  double counted_from = 0;
  first = Clock::now();
  for (;;) {
    const ssize_t got = recv(socket, block.data(), block.size(), MSG_DONTWAIT);
    if (got == 0) break;
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Status(Code::network, errno_text(errno));
    if (got < 0 && !wait_for(socket, POLLIN, deadline))
      return Status(Code::timeout, fmt::format("it stopped after {} bytes", total));
    if (got < 0) continue;
    total += std::uint64_t(got);
    last = Clock::now();
    if (counted_from == 0 && last - first >= kWarmUp) {
      counted_from = std::chrono::duration<double>(last - first).count();
      before = total;
    }
    const std::size_t kept = std::min(std::size_t(got), kTrailer);
    tail.append(block.data() + (std::size_t(got) - kept), kept);
    if (tail.size() > kTrailer) tail.erase(0, tail.size() - kTrailer);
  }
  const double seconds = std::chrono::duration<double>(last - first).count() - counted_from;
  if (tail.size() < kTrailer || seconds <= 0)
    return Status(Code::network, fmt::format("it closed after {} bytes", total));
  std::uint64_t millionths = 0;
  for (std::size_t i = 0; i < kTrailer; ++i) millionths |= std::uint64_t(std::uint8_t(tail[i])) << (8 * i);
  // Where the ends take turns, each waits for the other: together they were busy.
  return FlowEnd{double(total - before) / seconds, std::min(1.0, busy.share() + double(millionths) / 1e6)};
}

}  // namespace tutti::tools::doctor
