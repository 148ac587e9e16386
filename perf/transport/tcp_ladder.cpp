// The ladder of the tcp transport on loopback: what bare non-blocking sockets do, and what frames, checksums and
// acknowledgements add. Two processes; the rungs take turns, round by round, so that a slow minute hits all of them;
// medians.
//
//   tcp_ladder [rounds] [sockets]
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/posix_loop.h"
#include "perf/driver/median.h"
#include "transport/tcp/tcp_transport.h"

namespace {

using namespace tutti;
using namespace tutti::transport;

constexpr std::size_t kLarge = 16 << 20;
constexpr int kPings = 60;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A connected pair across fork(): side 0 is the parent.
std::vector<std::unique_ptr<Stream>> streams(PosixLoop& loop, int side, int port_pipe[2], int count) {
  std::vector<std::unique_ptr<Stream>> out;
  if (side == 1) {
    const auto on_accept = [&](std::unique_ptr<Stream> stream) { out.push_back(std::move(stream)); };
    auto acceptor = loop.network().listen("127.0.0.1:0", on_accept);
    TUTTI_CHECK(acceptor.ok());
    const int port = (*acceptor)->port();
    TUTTI_CHECK(write(port_pipe[1], &port, sizeof port) == sizeof port);
    while (out.size() < std::size_t(count)) loop.run(Nanoseconds(-1));
    return out;
  }
  int port = 0;
  TUTTI_CHECK(::read(port_pipe[0], &port, sizeof port) == sizeof port);
  for (int i = 0; i < count; ++i) {
    const auto on_connect = [&](Result<std::unique_ptr<Stream>> stream) {
      TUTTI_CHECK(stream.ok());
      out.push_back(std::move(*stream));
    };
    const auto attempt = loop.network().connect(fmt::format("127.0.0.1:{}", port), on_connect);
    while (out.size() < std::size_t(i + 1)) loop.run(Nanoseconds(-1));
  }
  return out;
}

// Bare: as little as one can do with a non-blocking socket.
struct Bare {
  Stream& stream;
  void send_all(const std::byte* data, std::size_t bytes) {
    while (bytes) {
      const iovec part{const_cast<std::byte*>(data), bytes};
      const IoResult result = stream.write({&part, 1});
      TUTTI_CHECK(result.status.ok());
      data += result.bytes;
      bytes -= result.bytes;
    }
  }
  void receive_all(std::byte* data, std::size_t bytes) {
    while (bytes) {
      const IoResult result = stream.read({data, bytes});
      TUTTI_CHECK(result.status.ok() && !result.closed);
      data += result.bytes;
      bytes -= result.bytes;
    }
  }
  void exchange(const std::byte* out, std::byte* in, std::size_t bytes) {
    constexpr std::size_t kPart = 128 << 10;
    std::size_t sent = 0, got = 0;
    while (sent < bytes || got < bytes) {
      if (sent < bytes) {
        const iovec part{const_cast<std::byte*>(out + sent), std::min(kPart, bytes - sent)};
        sent += stream.write({&part, 1}).bytes;
      }
      if (got < bytes) got += stream.read({in + got, std::min(kPart, bytes - got)}).bytes;
    }
  }
};

// Ours: one message at a time, in place.
class Ours final : public Listener {
 public:
  Ours(Loop& loop, std::vector<std::unique_ptr<Stream>> sockets, const TcpOptions& options)
      : transport_(loop, *this, options), connection_(transport_.connect(0, std::move(sockets))) {}

  void post(std::byte* into, std::size_t bytes) {
    into_ = into;
    missing_ = bytes;
    connection_->expect({.key = {1, ++receiving_, 0}, .message_bytes = bytes}, Readiness::lands, nullptr);
    for (auto& early : early_) take(early.first, early.second.data());
    early_.clear();
  }
  void begin_send(const std::byte* data, std::size_t bytes) {
    from_ = data;
    bytes_ = bytes;
    offset_ = 0;
    ++sending_;
    offer();
  }
  void offer() {
    while (offset_ < bytes_) {
      SegmentHeader header{.key = {1, sending_, 0}, .offset = offset_, .message_bytes = bytes_};
      header.bytes = std::uint32_t(std::min<std::uint64_t>(transport_.segment_bytes(bytes_), bytes_ - offset_));
      const Sent sent = connection_->send(header, from_ + offset_, 1);
      if (sent == Sent::again) return;
      if (sent == Sent::pending) ++pending_;
      offset_ += header.bytes;
    }
  }
  void wait() {
    while (missing_ || offset_ < bytes_ || pending_) {
      offer();
      transport_.poll();
    }
  }
  std::byte* landing(int, const SegmentHeader& header) override {
    return header.key.operation == receiving_ && missing_ ? into_ + header.offset : nullptr;
  }
  void on_segment(int, const SegmentHeader& header, const std::byte* data, Lease lease) override {
    if (header.key.operation == receiving_ && missing_) take(header, data);
    else early_.emplace_back(header, std::vector<std::byte>(data, data + header.bytes));
    lease.release();
  }
  void on_sent(int, std::uint64_t) override { --pending_; }
  void on_damaged(int, const transport::SegmentHeader&) override {}
  void on_lost(int, const Status& why) override {
    std::fprintf(stderr, "%s\n", why.to_string().c_str());
    std::exit(1);
  }
  const TcpCounters& counters() const { return transport_.counters(); }

 private:
  void take(const SegmentHeader& header, const std::byte* data) {
    std::byte* into = into_ + header.offset;
    if (data != into) std::copy(data, data + header.bytes, into);
    missing_ -= header.bytes;
  }
  TcpTransport transport_;
  Connection* connection_;
  std::uint32_t sending_ = 0, receiving_ = 0;
  const std::byte* from_ = nullptr;
  std::byte* into_ = nullptr;
  std::uint64_t bytes_ = 0, offset_ = 0, missing_ = 0;
  int pending_ = 0;
  std::vector<std::pair<SegmentHeader, std::vector<std::byte>>> early_;
};

// Seconds of one 8-byte hop: half a round trip, median.
using SendEight = std::function<void(const std::byte*)>;
using ReceiveEight = std::function<void(std::byte*)>;
double hop(int side, const SendEight& send, const ReceiveEight& receive) {
  alignas(8) std::byte out[8] = {}, in[8];
  std::vector<double> trips;
  double start = now();
  for (int i = 0; i < kPings; ++i) {
    if (side == 0) send(out);
    receive(in);
    if (side == 1) send(out);
    const double end = now();
    trips.push_back(end - start);
    start = end;
  }
  return perf::median(trips) / 2;
}

double hop(int side, Bare& bare) {
  return hop(side, [&](const std::byte* out) { bare.send_all(out, 8); },
             [&](std::byte* in) { bare.receive_all(in, 8); });
}

double hop(int side, Ours& ours) {
  return hop(side, [&](const std::byte* out) { ours.begin_send(out, 8); },
             [&](std::byte* in) {
               ours.post(in, 8);
               ours.wait();
             });
}

struct Rung {
  std::string name;
  std::unique_ptr<Ours> ours;              // null: bare
  std::vector<double> hops, rates;         // seconds; GB/s each way
};

std::vector<Rung> make_rungs(PosixLoop& loop, int side, int pipe[2], int sockets) {
  std::vector<Rung> rungs;
  rungs.push_back({"bare", nullptr, {}, {}});
  const auto add = [&](std::string name, bool crc, std::size_t segment) {
    const TcpOptions options{.crc = crc, .segment_bytes = segment};
    auto ours = std::make_unique<Ours>(loop, streams(loop, side, pipe, sockets), options);
    rungs.push_back({std::move(name), std::move(ours), {}, {}});
  };
  add("tcp", false, 0);
  add("tcp+crc", true, 0);
  for (const std::size_t segment : {64, 256, 512}) add(fmt::format("tcp {}K", segment), false, segment << 10);
  return rungs;
}

void print(const std::vector<Rung>& rungs) {
  const double bare_hop = perf::median(rungs[0].hops), bare_rate = perf::median(rungs[0].rates);
  fmt::print("{:8}  {:>12}  {:>6}  {:>14}  {:>6}\n", "", "8 B hop us", "x bare", "16 MB GB/s/way", "x bare");
  for (const Rung& rung : rungs) {
    const double seconds = perf::median(rung.hops), rate = perf::median(rung.rates);
    fmt::print("{:8}  {:12.2f}  {:6.2f}  {:14.2f}  {:6.2f}\n", rung.name, seconds * 1e6, seconds / bare_hop, rate,
               rate / bare_rate);
  }
  const TcpCounters& c = rungs[2].ours->counters();
  fmt::print("{}: {} frames out, {} writes, {} reads, {} empty reads, {} acks of their own\n", rungs[2].name,
             c.frames_out, c.writes, c.reads, c.empty_reads, c.acks_out);
}

void run(int side, int pipe[2], int rounds, int sockets) {
  auto loop = make_posix_loop();
  auto bare_stream = std::move(streams(*loop, side, pipe, 1)[0]);
  Bare bare{*bare_stream};
  std::vector<Rung> rungs = make_rungs(*loop, side, pipe, sockets);
  std::vector<std::byte> out(kLarge, std::byte{1}), in(kLarge, std::byte{2});
  const auto meet = [&] {
    std::byte token{};
    if (side == 0) bare.send_all(&token, 1), bare.receive_all(&token, 1);
    else bare.receive_all(&token, 1), bare.send_all(&token, 1);
  };
  const auto exchange = [&](Ours* ours) {
    if (!ours) return bare.exchange(out.data(), in.data(), kLarge);
    ours->post(in.data(), kLarge);
    ours->begin_send(out.data(), kLarge);
    ours->wait();
  };
  for (int round = 0; round <= rounds; ++round) {      // the first warms up
    for (Rung& rung : rungs) {
      meet();
      const double seconds = rung.ours ? hop(side, *rung.ours) : hop(side, bare);
      meet();
      const double start = now();
      exchange(rung.ours.get());
      const double rate = double(kLarge) / (now() - start) / 1e9;
      if (round == 0) continue;
      rung.hops.push_back(seconds);
      rung.rates.push_back(rate);
    }
  }
  meet();
  if (side == 0) print(rungs);
  meet();
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 15;
  const int sockets = count > 2 ? std::atoi(arguments[2]) : 1;
  int pipe[2];
  TUTTI_CHECK(::pipe(pipe) == 0);
  const pid_t child = fork();
  TUTTI_CHECK(child >= 0);
  run(child == 0 ? 1 : 0, pipe, rounds, sockets);
  int status = 0;
  if (child != 0) waitpid(child, &status, 0);
  return status != 0;
}
