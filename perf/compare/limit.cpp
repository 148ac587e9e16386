// What the machine itself does, without any library: the bounds in the comparison.
//
//   limit machine                                  named figures, a line each
//   limit shm|tcp all_reduce BYTES,... SECONDS     as a contender among two ranks:
//     shm  two threads, each adds half of both inputs into both outputs, then they meet
//     tcp  two processes send each other as many bytes as the vector has, both ways at once, over one socket; nothing
//     is added
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "perf/compare/contender.h"

namespace tutti::perf::compare {
namespace {

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void must(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// Median over five batches, of one call.
double batches(int calls, const std::function<void()>& call) {
  std::vector<double> times;
  const int batch = std::max(1, calls / 5);
  call();
  for (int b = 0; b < 5; ++b) {
    const double start = now_us();
    for (int i = 0; i < batch; ++i) call();
    times.push_back((now_us() - start) / batch);
  }
  std::sort(times.begin(), times.end());
  return times[2];
}

// Two threads that take turns: each sets its own word and waits for the other's.
struct alignas(64) Word {
  std::atomic<std::uint32_t> value{0};
};

class Pair {
 public:
  // `step` on both threads, `calls` times and some; the time of one step, as side 0 sees it.
  double time(int calls, const std::function<void(int side)>& step) {
    std::atomic<bool> over{false};
    const auto meet = [&](int side) {
      const std::uint32_t mine = words_[side].value.load(std::memory_order_relaxed) + 1;
      words_[side].value.store(mine, std::memory_order_release);
      while (words_[1 - side].value.load(std::memory_order_acquire) < mine) pause_cpu();
    };
    std::thread other([&] {
      for (;;) {
        meet(1);
        if (over) return;
        step(1);
        meet(1);
      }
    });
    const double us = batches(calls, [&] {
      meet(0);
      step(0);
      meet(0);
    });
    over = true;
    meet(0);
    other.join();
    return us;
  }

 private:
  Word words_[2];
};

double floor_us(std::size_t count, int calls) {
  std::unique_ptr<float[]> in[2], out[2];
  for (int r = 0; r < 2; ++r) {
    in[r].reset(new float[count]);
    out[r].reset(new float[count]);
    for (std::size_t i = 0; i < count; ++i) in[r][i] = value(r, i), out[r][i] = 0;
  }
  return Pair().time(calls, [&](int side) {
    const std::size_t half = count / 2, from = side ? half : 0, to = side ? count : half;
    const float *a = in[0].get(), *b = in[1].get();
    float *c = out[0].get(), *d = out[1].get();
    for (std::size_t i = from; i < to; ++i) c[i] = d[i] = a[i] + b[i];
  });
}

// A connected pair of sockets; forks: side 1 is the child.
struct Sockets {
  int side = 0, fd = -1;
  pid_t child = 0;
  Sockets() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    must(bind(listener, address, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, address, &size) == 0,
         "listen");
    child = fork();
    side = child == 0;
    if (side) {
      fd = socket(AF_INET, SOCK_STREAM, 0);
      must(connect(fd, address, size) == 0, "connect");
    } else {
      fd = accept(listener, nullptr, nullptr);
      must(fd >= 0, "accept");
    }
    const int on = 1, buffer = 4 << 20;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    close(listener);
  }
  ~Sockets() {
    close(fd);
    if (side) _exit(0);
    waitpid(child, nullptr, 0);
  }
  // Both ways at once, in pieces, without blocking.
  void exchange(const std::byte* out, std::byte* in, std::size_t bytes) const {
    constexpr std::size_t kPiece = 1 << 18;
    for (std::size_t sent = 0, got = 0; sent < bytes || got < bytes;) {
      if (sent < bytes) {
        const ssize_t n = send(fd, out + sent, std::min(kPiece, bytes - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
        must(n >= 0 || errno == EAGAIN, "send");
        if (n > 0) sent += std::size_t(n);
      }
      if (got < bytes) {
        const ssize_t n = recv(fd, in + got, std::min(kPiece, bytes - got), MSG_DONTWAIT);
        must(n > 0 || (n < 0 && errno == EAGAIN), "recv");
        if (n > 0) got += std::size_t(n);
      }
    }
  }
};

void compete_tcp(const Wish& wish) {
  const Sockets sockets;
  std::vector<std::byte> out(*std::max_element(wish.bytes.begin(), wish.bytes.end()), std::byte(1)), in(out.size());
  for (const std::size_t bytes : wish.bytes) {
    const double us = batches(calls_of(bytes, 2, wish.budget), [&] { sockets.exchange(out.data(), in.data(), bytes); });
    if (sockets.side == 0) std::printf("%zu %.4f\n", bytes, us), std::fflush(stdout);
  }
}

double futex_round_trip() {
  std::atomic<std::uint32_t> turn{0};
  const auto wait_for = [&](std::uint32_t mine) {
    for (std::uint32_t now = turn; now != mine; now = turn)
      syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, now, nullptr, nullptr, 0);
  };
  const auto give = [&](std::uint32_t to) {
    turn = to;
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  };
  constexpr int kTrips = 5000;
  std::thread other([&] {
    for (int i = 0; i < kTrips; ++i) wait_for(1), give(0);
  });
  const double start = now_us();
  for (int i = 0; i < kTrips; ++i) give(1), wait_for(0);
  const double us = (now_us() - start) / kTrips;
  other.join();
  return us;
}

void tell_machine() {
  constexpr std::size_t kCount = 16 << 20;
  std::vector<float> a(kCount, 1), b(kCount, 2), c(kCount, 3);
  const double copy = batches(10, [&] { std::memcpy(c.data(), a.data(), kCount * sizeof(float)); });
  const double add = batches(10, [&] {
    for (std::size_t i = 0; i < kCount; ++i) c[i] = a[i] + b[i];
  });
  std::printf("memcpy of 64 MB, one thread        %8.2f GB/s\n", double(kCount) * 4 / copy / 1e3);
  std::printf("add of two 64 MB, one thread       %8.2f GB/s of result\n", double(kCount) * 4 / add / 1e3);
  std::printf("two threads meet, spinning         %8.3f us there and back\n", Pair().time(100000, [](int) {}));
  std::printf("two threads take turns by futex    %8.2f us there and back\n", futex_round_trip());
  std::fflush(stdout);
  const Sockets sockets;
  std::byte out[8]{}, in[8]{};
  const auto ping = [&] {
    std::size_t got = 0;
    const auto receive = [&] {
      while (got < 8) {
        const ssize_t n = recv(sockets.fd, in + got, 8 - got, MSG_DONTWAIT);
        if (n > 0) got += std::size_t(n);
      }
    };
    if (sockets.side == 0) send(sockets.fd, out, 8, MSG_NOSIGNAL), receive();
    else receive(), send(sockets.fd, out, 8, MSG_NOSIGNAL);
  };
  const double us = batches(20000, ping);
  if (sockets.side == 0) std::printf("8 bytes over loopback TCP, spinning %7.2f us there and back\n", us);
}

}  // namespace
}  // namespace tutti::perf::compare

int main(int argc, char** argv) {
  using namespace tutti::perf::compare;
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "machine") return tell_machine(), 0;
    const Wish wish = wish_of(argc - 1, argv + 1);
    if (what == "tcp") return compete_tcp(wish), 0;
    if (what != "shm") throw std::runtime_error("want machine, shm or tcp");
    for (const std::size_t bytes : wish.bytes)
      std::printf("%zu %.4f\n", bytes,
                  floor_us(std::max<std::size_t>(2, bytes / sizeof(float)), calls_of(bytes, 2, wish.budget)));
    return 0;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "limit: %s\n", error.what()), 1;
  }
}
