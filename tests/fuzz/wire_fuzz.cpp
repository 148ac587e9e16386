// libFuzzer target of the tcp transport's frames. A finding is a crash, a hang, memory without bounds, or a frame
// delivered that lies outside of its message. The handshake that stands before them has a target of its own.
//   fuzz_wire -max_total_time=60 FOUND tests/fuzz/wire
// Header checksums would end nearly all inputs at once: the last four bytes of
// each header are made right before it is fed.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/crc32c.h"
#include "tests/transport/memory_stream.h"
#include "transport/tcp/tcp_transport.h"

namespace {

using namespace tutti;
using tests::MemoryLoop;
using tests::MemoryStream;
using tests::Pipe;

void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

class Sink final : public transport::Listener {
 public:
  std::byte* landing(int, const transport::SegmentHeader&) override { return nullptr; }
  void on_segment(int, const transport::SegmentHeader& header, const std::byte* data, transport::Lease lease) override {
    if (header.offset > header.message_bytes || header.bytes > header.message_bytes - header.offset)
      fail("a segment outside of its message");
    for (std::uint32_t i = 0; i < header.bytes; ++i) sum += std::to_integer<unsigned>(data[i]);
    lease.release();
  }
  void on_sent(int, std::uint64_t) override { fail("something was sent"); }
  void on_damaged(int, const transport::SegmentHeader&) override { fail("no shared memory here"); }
  void on_lost(int, const Status&) override {}
  unsigned sum = 0;
};

struct Ends {
  explicit Ends(MemoryLoop& loop) {
    const auto to = std::make_shared<Pipe>(64 << 10, tests::Faults{}),
               from = std::make_shared<Pipe>(64 << 10, tests::Faults{});
    enemy = std::make_unique<MemoryStream>(loop, from, to, "enemy", "us");
    ours = std::make_unique<MemoryStream>(loop, to, from, "us", "enemy");
  }
  void feed(const void* data, std::size_t bytes) const {
    const iovec part{const_cast<void*>(data), bytes};
    (void)enemy->write({&part, 1});
  }
  std::unique_ptr<MemoryStream> enemy, ours;
};

void frames(const std::uint8_t* data, std::size_t size) {
  using transport::tcp::kHeaderBytes;
  MemoryLoop loop;
  Sink sink;
  transport::TcpTransport tcp(loop, sink);
  Ends ends(loop);
  std::vector<std::unique_ptr<Stream>> sockets;
  sockets.push_back(std::move(ends.ours));
  tcp.connect(3, std::move(sockets));
  const std::size_t before = tcp.memory_bytes();
  while (size > 0) {
    std::byte header[kHeaderBytes];
    const std::size_t part = std::min(size, kHeaderBytes);
    std::memcpy(header, data, part);
    std::uint32_t payload = 0;
    if (part == kHeaderBytes) {
      header[0] = std::byte{0xA7}, header[1] = std::byte{1};
      const std::uint32_t crc = crc32c(header, kHeaderBytes - 4);
      std::memcpy(header + kHeaderBytes - 4, &crc, sizeof crc);
      std::memcpy(&payload, header + 8, sizeof payload);
    }
    ends.feed(header, part);
    data += part, size -= part;
    const std::size_t rest = std::min<std::size_t>(size, payload);
    ends.feed(data, rest);
    data += rest, size -= rest;
    for (int i = 0; i < 4; ++i) (void)tcp.poll();
  }
  if (tcp.memory_bytes() > before + (8u << 20)) fail("memory without bounds");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  frames(data, size);
  return 0;
}
