// The conformance suite over TCP: in memory, with short reads and writes, over several sockets, over loopback, with and
// without payload checksums.
#include "tcp_pair.h"

namespace tutti::tests {
namespace {

using transport::conformance::Pair;

Faults short_moves(std::uint64_t seed) {
  Faults faults;
  faults.seed = seed;
  faults.short_moves = true;
  return faults;
}

std::unique_ptr<Pair> plain(Listener& a, Listener& b) { return std::make_unique<MemoryPair>(a, b, TcpOptions{}); }
std::unique_ptr<Pair> without_crc(Listener& a, Listener& b) {
  return std::make_unique<MemoryPair>(a, b, TcpOptions{.crc = false});
}
std::unique_ptr<Pair> narrow(Listener& a, Listener& b) {      // pipes smaller than a segment
  return std::make_unique<MemoryPair>(a, b, TcpOptions{}, 1, 5000);
}
std::unique_ptr<Pair> choppy(Listener& a, Listener& b) {
  const std::vector<Faults> faults = {short_moves(3), short_moves(4)};
  return std::make_unique<MemoryPair>(a, b, TcpOptions{}, 1, 64 << 10, faults);
}
std::unique_ptr<Pair> four_choppy(Listener& a, Listener& b) {
  std::vector<Faults> faults;
  for (std::uint64_t i = 0; i < 8; ++i) faults.push_back(short_moves(i + 1));
  return std::make_unique<MemoryPair>(a, b, TcpOptions{}, 4, 64 << 10, faults);
}
std::unique_ptr<Pair> twelve(Listener& a, Listener& b) {      // so many that the loop is asked
  return std::make_unique<MemoryPair>(a, b, TcpOptions{}, 12);
}
std::unique_ptr<Pair> tight(Listener& a, Listener& b) {       // hardly any landing memory
  const TcpOptions options{.segment_bytes = 16 << 10, .eager_bytes = 8 << 10, .landing_limit = 20 << 10};
  return std::make_unique<MemoryPair>(a, b, options, 2);
}
std::unique_ptr<Pair> cut_otherwise(Listener& a, Listener& b) {
  auto pair = tight(a, b);
  pair->cuts_otherwise = true;
  return pair;
}
std::unique_ptr<Pair> loopback(Listener& a, Listener& b) { return std::make_unique<LoopbackPair>(a, b, TcpOptions{}); }
std::unique_ptr<Pair> four_loopback(Listener& a, Listener& b) {
  return std::make_unique<LoopbackPair>(a, b, TcpOptions{}, 4);
}

// Who sleeps owing an acknowledgement, or a grant, wakes nobody: with windows
// of several sizes, and writes cut anywhere.
TEST(TcpWakes, sleepers_at_every_cut_and_window) {
  for (std::uint64_t seed = 121; seed <= 140; ++seed) {      // 127 met one who slept so
    const TcpOptions options{.landing_limit = std::size_t{192 << 10} * (1 + seed % 16)};
    transport::conformance::wakes_sleepers([&](Listener& a, Listener& b) {
      return std::make_unique<MemoryPair>(a, b, options, 1, 64 << 10,
                                          std::vector{short_moves(seed), short_moves(seed + 100)});
    });
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TUTTI_TRANSPORT_CONFORMANCE(TcpInMemory, plain)
TUTTI_TRANSPORT_CONFORMANCE(TcpWithoutCrc, without_crc)
TUTTI_TRANSPORT_CONFORMANCE(TcpNarrow, narrow)
TUTTI_TRANSPORT_CONFORMANCE(TcpChoppy, choppy)
TUTTI_TRANSPORT_CONFORMANCE(TcpFourChoppy, four_choppy)
TUTTI_TRANSPORT_CONFORMANCE(TcpTwelveSockets, twelve)
TUTTI_TRANSPORT_CONFORMANCE(TcpTight, tight)
TUTTI_TRANSPORT_CONFORMANCE(TcpCutOtherwise, cut_otherwise)
TUTTI_TRANSPORT_CONFORMANCE(TcpLoopback, loopback)
TUTTI_TRANSPORT_CONFORMANCE(TcpFourLoopback, four_loopback)

}  // namespace
}  // namespace tutti::tests
