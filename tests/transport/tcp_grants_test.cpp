// Grants: receivers that need the same part of several peers' messages before
// they can let go of any, with hardly any memory.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "memory_stream.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti::tests {
namespace {

using transport::Connection;
using transport::Lease;
using transport::Listener;
using transport::SegmentHeader;
using transport::Sent;
using transport::TcpOptions;
using transport::TcpTransport;

constexpr int kPeers = 3;
constexpr std::size_t kSegment = 64 << 10;

// Takes a segment only when it has come from all peers, and those of an operation only after the operations before.
class Fusing final : public Listener {
 public:
  std::byte* landing(int, const SegmentHeader&) override { return nullptr; }
  void on_segment(int peer, const SegmentHeader& header, const std::byte*, Lease lease) override {
    held_[header.key.operation][header.offset][peer] = lease;
    bytes_ += header.bytes;
    most_ = std::max(most_, bytes_);
    take();
  }
  void on_sent(int, std::uint64_t) override {}
  void on_damaged(int, const transport::SegmentHeader&) override {}
  void on_lost(int, const Status& why) override { FAIL() << why.to_string(); }
  void await(std::uint32_t operation, std::uint64_t bytes) { order_[operation] = bytes; }
  bool done() const { return order_.empty(); }
  std::size_t most() const { return most_; }
  std::size_t step = kSegment;      // bytes of each segment but the last

 private:
  void take() {
    while (!order_.empty()) {
      const auto [operation, bytes] = *order_.begin();
      auto& parts = held_[operation];
      const auto part = parts.find(next_);
      if (part == parts.end() || part->second.size() < kPeers) return;
      for (auto& [peer, lease] : part->second) lease.release();
      bytes_ -= kPeers * std::min<std::uint64_t>(step, bytes - next_);
      parts.erase(part);
      next_ += step;
      if (next_ < bytes) continue;
      next_ = 0;
      order_.erase(order_.begin());
    }
  }
  std::map<std::uint32_t, std::uint64_t> order_;
  std::map<std::uint32_t, std::map<std::uint64_t, std::map<int, Lease>>> held_;
  std::uint64_t next_ = 0;
  std::size_t bytes_ = 0, most_ = 0;
};

class Silent final : public Listener {
 public:
  std::byte* landing(int, const SegmentHeader&) override { return nullptr; }
  void on_segment(int, const SegmentHeader&, const std::byte*, Lease lease) override { lease.release(); }
  void on_sent(int, std::uint64_t) override {}
  void on_damaged(int, const transport::SegmentHeader&) override {}
  void on_lost(int, const Status& why) override { FAIL() << why.to_string(); }
};

// A hub with kPeers peers, each with messages to send.
struct Star {
  explicit Star(std::size_t limit)
      : options{.segment_bytes = kSegment, .eager_bytes = 8 << 10, .landing_limit = limit} {
    hub = std::make_unique<TcpTransport>(loops[kPeers], fusing, options);
    for (int i = 0; i < kPeers; ++i) {
      auto there = std::make_shared<Pipe>(1 << 20, Faults{}), back = std::make_shared<Pipe>(1 << 20, Faults{});
      std::vector<std::unique_ptr<Stream>> mine, its;
      mine.push_back(std::make_unique<MemoryStream>(loops[kPeers], there, back, "hub", "peer"));
      its.push_back(std::make_unique<MemoryStream>(loops[i], back, there, "peer", "hub"));
      in[i] = hub->connect(i, std::move(mine));
      peers[i] = std::make_unique<TcpTransport>(loops[i], silent, options);
      out[i] = peers[i]->connect(0, std::move(its));
    }
  }
  void expect(std::uint32_t operation, std::uint64_t bytes) {
    for (Connection* c : in)
      c->expect({.key = {1, operation, 0}, .message_bytes = bytes}, transport::Readiness::partly, nullptr);
    fusing.await(operation, bytes);
  }
  void expect_ahead(std::uint32_t operation, std::uint64_t bytes) {
    for (Connection* c : in)
      c->expect({.key = {1, operation, 0}, .message_bytes = bytes}, transport::Readiness::ahead, nullptr);
  }
  // Each peer sends what it may, the later peers more eagerly; the messages in the given order.
  void run(const std::vector<std::uint32_t>& order, std::uint64_t bytes) {
    const std::vector<std::byte> source(bytes, std::byte{7});
    for (int idle = 0; idle < 3000; ++idle) {
      for (int i = kPeers; i-- > 0;)
        for (const std::uint32_t operation : order) {
          std::uint64_t& at = sent[{i, operation}];
          while (at < bytes) {
            SegmentHeader header{.key = {1, operation, 0},
                                 .bytes = std::uint32_t(std::min<std::uint64_t>(fusing.step, bytes - at)),
                                 .offset = at,
                                 .message_bytes = bytes};
            if (out[i]->send(header, source.data() + at, 1) == Sent::again) break;
            at += header.bytes;
            idle = 0;
          }
        }
      for (auto& p : peers) p->poll();
      hub->poll();
    }
  }

  TcpOptions options;
  MemoryLoop loops[kPeers + 1];
  Fusing fusing;
  Silent silent;
  std::unique_ptr<TcpTransport> hub, peers[kPeers];
  Connection *in[kPeers], *out[kPeers];
  std::map<std::pair<int, std::uint32_t>, std::uint64_t> sent;
};

TEST(TcpGrants, let_fused_receives_go_on_with_one_segment_of_memory) {
  for (const std::size_t limit : {kSegment, 2 * kSegment, 40 * kSegment}) {
    Star star(limit);
    star.expect(1, 40 * kSegment + 123);
    star.run({1}, 40 * kSegment + 123);
    EXPECT_TRUE(star.fusing.done()) << limit;
    EXPECT_LE(star.fusing.most(), limit + kPeers * kSegment);
    EXPECT_EQ(star.hub->landing_bytes(), 0u);
  }
}

// A sender that gives the same segments to ranks over other wires cuts them shorter, and not as windows are cut.
TEST(TcpGrants, go_on_whatever_the_senders_segments) {
  for (const std::size_t limit : {kSegment, 2 * kSegment, 5 * kSegment, 40 * kSegment})
    for (const std::size_t step : {std::size_t(4096), std::size_t(20480), std::size_t(28672), std::size_t(40960), kSegment - 4096}) {
      Star star(limit);
      star.fusing.step = step;
      star.expect(1, 20 * kSegment + 123);
      star.run({1}, 20 * kSegment + 123);
      EXPECT_TRUE(star.fusing.done()) << limit << " " << step;
      EXPECT_EQ(star.hub->landing_bytes(), 0u);
    }
}

// The receiver was ready for a later operation first, and all memory is its.
TEST(TcpGrants, let_the_oldest_operation_go_on) {
  for (const std::size_t limit : {kSegment, 4 * kSegment}) {
    Star star(limit);
    for (const std::uint32_t operation : {7u, 6u, 5u}) {
      star.expect(operation, 10 * kSegment);
      star.run({7, 6, 5}, 0);
    }
    star.run({7, 6, 5}, 10 * kSegment);
    EXPECT_TRUE(star.fusing.done()) << limit;
    EXPECT_LE(star.fusing.most(), limit + 3 * kPeers * kSegment);
    EXPECT_EQ(star.hub->landing_bytes(), 0u);
  }
}

// What comes ahead of its turn lies there until then, and takes no room from what is due.
TEST(TcpGrants, given_ahead_never_hold_up_what_is_due) {
  for (const std::size_t limit : {kSegment, 4 * kSegment, 40 * kSegment}) {
    Star star(limit);
    for (const std::uint32_t operation : {7u, 6u}) star.expect_ahead(operation, 10 * kSegment);
    star.run({7, 6}, 10 * kSegment);
    EXPECT_LE(star.fusing.most(), limit / 2) << "more than is kept for them";
    EXPECT_EQ(star.fusing.most() > 0, limit >= 2 * kSegment);
    star.expect(5, 10 * kSegment);
    star.run({7, 6, 5}, 10 * kSegment);
    EXPECT_TRUE(star.fusing.done()) << limit;
    for (const std::uint32_t operation : {6u, 7u}) star.expect(operation, 10 * kSegment);
    star.run({7, 6, 5}, 10 * kSegment);
    EXPECT_TRUE(star.fusing.done()) << limit;
    EXPECT_EQ(star.hub->landing_bytes(), 0u);
  }
}

}  // namespace
}  // namespace tutti::tests
