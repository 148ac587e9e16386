#pragma once
// What every Transport must do, as tests over a factory that makes a connected pair. A room's test file says
//   TUTTI_TRANSPORT_CONFORMANCE(TcpConformance, make_pair)
// with  std::unique_ptr<Pair> make_pair(Listener& a, Listener& b).
//
// The two ends play a small communicator: they offer segments until taken, spoil each source as soon as they may, and
// compare what arrives with bytes that are computed anew from the message's key.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "transport/transport.h"

namespace tutti::transport::conformance {

// Two transports, connected with each other; each calls the other peer 7.
class Pair {
 public:
  static constexpr int kPeer = 7;
  virtual ~Pair() = default;
  virtual Transport& transport(int side) = 0;
  virtual Connection& connection(int side) = 0;
  // Polls both, and the loop without waiting. Returns whether anything happened.
  virtual bool step() = 0;
  // Runs the loop of that side alone, without waiting. Returns whether anything ran: a sleep there would have ended.
  virtual bool woken(int side) = 0;
  // Whether segments are lent (SegmentHeader::lend) where the connection can.
  virtual bool lends() const { return false; }
  // What segments are cut to: shorter, and any size, where the same go to others over another wire.
  std::size_t cut(std::size_t segment) const { return cuts_otherwise && segment > 4096 ? segment * 7 / 16 / 8 * 8 : segment; }
  bool cuts_otherwise = false;
  // The connection breaks, as if the process of side 1 had died. Its transport must not be used any more.
  virtual void kill_side_1() = 0;
};
using MakePair = std::function<std::unique_ptr<Pair>(Listener& a, Listener& b)>;

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

// The message that `side` sends under this key.
struct Content {
  std::uint64_t name;
  Content(int side, const MessageKey& key)
      : name(mix(key.communicator * 31u + key.message + (std::uint64_t{key.operation} << 32) + (side ? 5u : 0u))) {}
  // Eight bytes from 8 * k on.
  std::uint64_t word(std::uint64_t k) const { return mix(name + k); }
  void fill(std::vector<std::byte>& into) const {
    for (std::uint64_t at = 0; at < into.size(); at += 8) {
      const std::uint64_t value = word(at / 8);
      std::memcpy(into.data() + at, &value, std::min<std::size_t>(8, into.size() - at));
    }
  }
  std::uint64_t count_wrong(const std::byte* data, std::uint64_t bytes) const {
    std::uint64_t wrong = 0;
    for (std::uint64_t at = 0; at < bytes; at += 8) {
      const std::uint64_t value = word(at / 8);
      wrong += std::memcmp(data + at, &value, std::min<std::uint64_t>(8, bytes - at)) != 0;
    }
    return wrong;
  }
};

struct KeyLess {
  bool operator()(const MessageKey& a, const MessageKey& b) const {
    return std::tie(a.communicator, a.operation, a.message) < std::tie(b.communicator, b.operation, b.message);
  }
};

// One side: sends its messages, receives the other's.
class End final : public Listener {
 public:
  explicit End(int side) : side_(side) {}
  ~End() {
    for (const auto& [key, out] : out_) on_memory(out.source, false);
    for (const auto& [key, in] : in_)
      if (!in.into.empty()) on_memory(in.into, false);
  }
  void drop_held() {
    for (auto& [key, message] : in_) {
      for (auto& held : message.held) held.lease.release();
      message.held.clear();
    }
  }
  void attach(Pair& pair) { transport_ = &pair.transport(side_), connection_ = &pair.connection(side_), pair_ = &pair, lends_ = pair.lends(); }

  // Told of memory that bytes are sent from or received into, when it is there and before it goes.
  std::function<void(const std::vector<std::byte>&, bool there)> on_memory = [](const auto&, bool) {};
  bool gives_place = false;        // to expect()
  bool in_place = true;            // offers memory in landing(); otherwise takes from where the transport landed it
  bool lost = false;
  Status why;
  std::size_t held_bytes = 0, most_held_bytes = 0;

  void send(const MessageKey& key, std::uint64_t bytes) {
    Outgoing& out = out_[key];
    out.bytes = bytes;
    out.source.resize(bytes);
    Content(side_, key).fill(out.source);
    on_memory(out.source, true);
    unsent_[key] = &out;
  }
  void receive(const MessageKey& key, std::uint64_t bytes) {
    Incoming& in = in_[key];
    ASSERT_FALSE(in.posted);
    in.posted = true;
    in.bytes = bytes;
    in.into.assign(bytes + 1, std::byte{0xEE});     // the last one must stay
    on_memory(in.into, true);
    SegmentHeader message{.key = key, .message_bytes = bytes};
    message.call = mix(key.operation);
    message.plan = 0xBEEF;
    connection_->expect(message, gives_place ? Readiness::lands : Readiness::partly, gives_place ? in.into.data() : nullptr);
    for (Held& held : in.held) {
      place(key, in, held.header, held.copy.empty() ? held.data : held.copy.data(), held.lease);
      if (held.lease.holder) held_bytes -= held.header.bytes;
      held.lease.release();
    }
    in.held.clear();
    ++expected_;
  }
  // Offers what can be offered. Returns whether something was taken.
  bool offer() {
    bool any = false;
    std::erase_if(unsent_, [&](const auto& entry) {
      while (!entry.second->sent && offer_one(entry.first, *entry.second)) any = true;
      return entry.second->sent;
    });
    return any;
  }
  bool all_sent() const { return unsent_.empty() && pending_.empty(); }
  std::size_t pending() const { return pending_.size(); }
  bool all_received() const { return complete_ == expected_; }
  std::size_t complete() const { return complete_; }
  std::size_t unsent() const { return unsent_.size(); }
  bool came(const MessageKey& key) const { return in_.contains(key) && !in_.at(key).offsets.empty(); }      // something of it
  bool received(const MessageKey& key) const { return in_.contains(key) && in_.at(key).whole; }
  bool sent(const MessageKey& key) const { return out_.at(key).sent; }

  std::byte* landing(int peer, const SegmentHeader& header) override {
    check(peer, header);
    const auto found = in_.find(header.key);
    if (found == in_.end() || !found->second.posted || !in_place) return nullptr;
    EXPECT_LE(header.offset + header.bytes, found->second.bytes);
    return found->second.into.data() + header.offset;
  }
  void on_segment(int peer, const SegmentHeader& header, const std::byte* data, Lease lease) override {
    check(peer, header);
    Incoming& in = in_[header.key];
    EXPECT_TRUE(in.offsets.insert(header.offset).second) << "offset " << header.offset << " came twice";
    EXPECT_EQ(header.call, mix(header.key.operation));
    EXPECT_EQ(header.plan, 0xBEEFu);
    if (in.posted) {
      place(header.key, in, header, data, lease);
      return lease.release();
    }
    Held held{header, data, {}, lease};
    if (!lease.holder) held.copy.assign(data, data + header.bytes);
    else held_bytes += header.bytes, most_held_bytes = std::max(most_held_bytes, held_bytes);
    in.held.push_back(std::move(held));
  }
  void on_sent(int peer, std::uint64_t token) override {
    EXPECT_EQ(peer, Pair::kPeer);
    EXPECT_FALSE(lost);
    const auto found = pending_.find(token);
    ASSERT_NE(found, pending_.end()) << "token unknown, or told twice";
    std::memset(found->second.first, 0x55, found->second.second);
    pending_.erase(found);
  }
  void on_damaged(int, const transport::SegmentHeader&) override {}
  void on_lost(int peer, const Status& status) override {
    EXPECT_EQ(peer, Pair::kPeer);
    EXPECT_FALSE(lost) << "said twice";
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(status.text().empty());
    lost = true;
    why = status;
  }

 private:
  struct Outgoing {
    std::vector<std::byte> source;
    std::uint64_t bytes = 0, offset = 0;
    bool sent = false;
  };
  struct Held {
    SegmentHeader header;
    const std::byte* data;
    std::vector<std::byte> copy;
    Lease lease;
  };
  struct Incoming {
    std::vector<std::byte> into;
    std::uint64_t bytes = 0, got = 0;
    bool posted = false, whole = false;
    std::set<std::uint64_t> offsets;
    std::vector<Held> held;
  };

  bool offer_one(const MessageKey& key, Outgoing& out) {
    const bool lend = lends_ && out.bytes > connection_->glance_bytes() && connection_->lent_bytes() > 0;
    const std::size_t segment = lend ? connection_->lent_bytes() : pair_->cut(transport_->segment_bytes(out.bytes));
    EXPECT_GT(segment, 0u);
    SegmentHeader header{.key = key, .offset = out.offset, .message_bytes = out.bytes, .lend = lend};
    header.call = mix(key.operation);
    header.plan = 0xBEEF;
    header.bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(segment, out.bytes - out.offset));
    std::byte* from = out.source.data() + out.offset;
    const std::uint64_t token = ++tokens_;
    const Sent sent = connection_->send(header, from, token);
    if (sent == Sent::again) return false;
    if (sent == Sent::pending) pending_[token] = {from, header.bytes};
    else if (header.bytes) std::memset(from, 0xAA, header.bytes);
    out.offset += header.bytes;
    out.sent = out.offset == out.bytes;
    return true;
  }
  void check(int peer, const SegmentHeader& header) {
    EXPECT_EQ(peer, Pair::kPeer);
    EXPECT_FALSE(lost) << "a word after the last";
    EXPECT_LE(header.offset, header.message_bytes);
    EXPECT_LE(header.bytes, header.message_bytes - header.offset);
    EXPECT_TRUE(header.bytes > 0 || header.message_bytes == 0);
  }
  void place(const MessageKey& key, Incoming& in, const SegmentHeader& header, const std::byte* data, const Lease& lease) {
    ASSERT_EQ(header.message_bytes, in.bytes);
    std::byte* into = in.into.data() + header.offset;
    if (header.bytes && !data) {
      ASSERT_TRUE(lends_ && lease.holder);
      ASSERT_TRUE(lease.holder->fetch(lease.token, into, header.bytes));
    } else if (header.bytes && data != into) std::memcpy(into, data, header.bytes);
    in.got += header.bytes;
    if (in.got < in.bytes) return;
    ASSERT_EQ(in.got, in.bytes);
    ASSERT_FALSE(in.whole);
    in.whole = true;
    ++complete_;
    EXPECT_EQ(Content(1 - side_, key).count_wrong(in.into.data(), in.bytes), 0u) << "words of " << in.bytes << " bytes";
    EXPECT_EQ(in.into.back(), std::byte{0xEE});
    if (in.bytes <= 1000) return;
    on_memory(in.into, false);
    in.into = {};
  }

  int side_;
  Transport* transport_ = nullptr;
  Connection* connection_ = nullptr;
  Pair* pair_ = nullptr;
  bool lends_ = false;
  std::map<MessageKey, Outgoing, KeyLess> out_;
  std::map<MessageKey, Outgoing*, KeyLess> unsent_;
  std::map<MessageKey, Incoming, KeyLess> in_;
  std::map<std::uint64_t, std::pair<std::byte*, std::size_t>> pending_;
  std::uint64_t tokens_ = 0;
  std::size_t complete_ = 0, expected_ = 0;
};

struct Ends {
  End a{0}, b{1};
  std::unique_ptr<Pair> pair;
  explicit Ends(const MakePair& make) : pair(make(a, b)) {
    a.attach(*pair);
    b.attach(*pair);
  }
  ~Ends() {          // leases before transports
    a.drop_held();
    b.drop_held();
  }
  bool step() {
    const bool offered = a.offer() | b.offer();
    return pair->step() | offered;
  }
  // Steps until `done`; gives up when nothing has happened for very many steps.
  bool run_until(const std::function<bool()>& done, int patience = 200000) {
    for (int idle = 0; idle < patience && !done(); idle = step() ? 0 : idle + 1) {}
    return done();
  }
  void run_idle(int steps = 2000) {
    for (int idle = 0; idle < steps; idle = step() ? 0 : idle + 1) {}
  }
  bool finished() const { return a.all_sent() && b.all_sent() && a.all_received() && b.all_received(); }
  bool finish() {
    return run_until([&] { return finished(); });
  }
};

inline std::vector<std::uint64_t> sizes_of_interest() {
  return {0,     1,     7,     8,     63,    64,     65,     192,    193,    1000,   4095,   4096,    4097,
          16384, 32767, 32768, 32769, 65536, 65537,  131071, 131072, 131073, 262144, 262145, 1000003, 3 << 20};
}

inline void carries_any_size(const MakePair& make, bool in_place) {
  Ends ends(make);
  ends.a.in_place = ends.b.in_place = in_place;
  std::uint32_t operation = 0;
  for (const std::uint64_t bytes : sizes_of_interest()) {
    const MessageKey key{1, ++operation, 0};
    ends.a.send(key, bytes);
    ends.b.send(key, bytes);
    ends.a.receive(key, bytes);
    ends.b.receive(key, bytes);
    ASSERT_TRUE(ends.finish()) << bytes << " bytes";
  }
}

inline void carries_many_small_messages(const MakePair& make) {
  Ends ends(make);
  std::mt19937_64 random(11);
  for (std::uint32_t k = 0; k < 5000; ++k) {
    const MessageKey key{1, k / 3, k % 3};
    const std::uint64_t bytes = random() % 400;
    ends.a.send(key, bytes);
    ends.b.receive(key, bytes);
  }
  ASSERT_TRUE(ends.finish());
  EXPECT_EQ(ends.b.complete(), 5000u);
}

// Both ways at once, several communicators, receives posted in another order than the sends and partly later.
inline void carries_interleaved_communicators(const MakePair& make) {
  Ends ends(make);
  std::mt19937_64 random(12);
  struct Post {
    MessageKey key;
    std::uint64_t bytes;
  };
  for (std::uint32_t round = 0; round < 12; ++round) {
    std::vector<Post> posts;
    for (std::uint32_t k = 0; k < 24; ++k) {
      const MessageKey key{k % 3, round, k};
      const std::uint64_t bytes = k % 4 == 0 ? random() % 400000 : random() % 6000;
      posts.push_back({key, bytes});
      ends.a.send(key, bytes);
      ends.b.send(key, bytes);
    }
    std::shuffle(posts.begin(), posts.end(), random);
    for (const Post& post : posts) {
      if (random() % 2) ends.step();
      ends.a.receive(post.key, post.bytes);
      ends.b.receive(post.key, post.bytes);
    }
    ASSERT_TRUE(ends.finish()) << "round " << round;
  }
}

// Nobody waits for them yet: they are held, and cost a bounded amount of memory.
inline void holds_unexpected_messages(const MakePair& make) {
  Ends ends(make);
  const std::size_t memory = ends.pair->transport(1).memory_bytes();
  for (std::uint32_t k = 0; k < 20; ++k) ends.a.send({2, 9, k}, k % 5 == 4 ? 500000 : 1000 * k);
  ends.run_idle();
  EXPECT_EQ(ends.b.complete(), 0u);
  EXPECT_LT(ends.pair->transport(1).memory_bytes(), memory + (32 << 20));
  for (std::uint32_t k = 20; k-- > 0;) ends.b.receive({2, 9, k}, k % 5 == 4 ? 500000 : 1000 * k);
  ASSERT_TRUE(ends.finish());
}

// Large messages in both directions at once, more than any buffering holds.
inline void moves_both_ways(const MakePair& make, bool in_place) {
  Ends ends(make);
  ends.a.in_place = ends.b.in_place = in_place;
  for (std::uint32_t k = 0; k < 4; ++k) {
    ends.a.send({1, k, 0}, 6000001);
    ends.b.send({1, k, 0}, 6000001);
  }
  for (std::uint32_t k = 0; k < 4; ++k) {
    ends.a.receive({1, k, 0}, 6000001);
    ends.b.receive({1, k, 0}, 6000001);
  }
  ASSERT_TRUE(ends.finish());
}

// Whoever has nothing to do sleeps, and is polled again only when its loop has something.
inline void wakes_sleepers(const MakePair& make) {
  Ends ends(make);
  bool asleep[2] = {false, false};
  int slept = 0;
  for (std::uint32_t k = 0; k < 60; ++k) {
    const std::uint64_t bytes = k % 10 == 9 ? 3000000 : 8 + 100 * k;
    for (int side = 0; side < 2; ++side) {
      if (std::exchange(asleep[side], false)) ends.pair->transport(side).wake_done();
    }
    (k % 2 ? ends.a : ends.b).receive({1, k, 0}, bytes);
    (k % 2 ? ends.b : ends.a).send({1, k, 0}, bytes);
    for (int idle = 0; idle < 1000 && !ends.finished();) {
      ++idle;
      for (int side = 0; side < 2; ++side) {
        Transport& transport = ends.pair->transport(side);
        if (asleep[side]) {
          if (!ends.pair->woken(side)) continue;
          asleep[side] = false;
          transport.wake_done();
        }
        idle = 0;
        for (bool any = true; any;) {       // offers follow a poll, as Sent::again demands; then sleep
          any = transport.poll();
          any |= (side ? ends.b : ends.a).offer();
        }
        asleep[side] = transport.prepare_sleep();
        slept += asleep[side];
      }
    }
    ASSERT_TRUE(ends.finished()) << "message " << k;
  }
  EXPECT_GT(slept, 60);
}

inline void says_loss_once(const MakePair& make) {
  Ends ends(make);
  ends.b.receive({1, 1, 0}, 100);
  ends.a.send({1, 1, 0}, 100);
  ASSERT_TRUE(ends.finish());
  ends.a.receive({1, 2, 0}, 1 << 20);
  ends.a.send({1, 2, 0}, 1 << 20);
  ends.a.offer();
  ends.pair->kill_side_1();
  for (int i = 0; i < 200000 && !ends.a.lost; ++i) {
    ends.a.offer();
    ends.pair->step();
  }
  ASSERT_TRUE(ends.a.lost);
  EXPECT_EQ(ends.a.why.code(), Code::peer_lost) << ends.a.why.to_string();
  for (int i = 0; i < 100; ++i) {       // what is offered now is not taken, and nothing is said any more
    EXPECT_FALSE(ends.a.offer());
    ends.pair->step();
  }
}

}  // namespace tutti::transport::conformance

#define TUTTI_TRANSPORT_CONFORMANCE(suite, make) \
  TEST(suite, carries_any_size_in_place) { tutti::transport::conformance::carries_any_size(make, true); } \
  TEST(suite, carries_any_size_landed) { tutti::transport::conformance::carries_any_size(make, false); } \
  TEST(suite, carries_many_small_messages) { tutti::transport::conformance::carries_many_small_messages(make); } \
  TEST(suite, carries_interleaved_communicators) { \
    tutti::transport::conformance::carries_interleaved_communicators(make); \
  } \
  TEST(suite, holds_unexpected_messages) { tutti::transport::conformance::holds_unexpected_messages(make); } \
  TEST(suite, moves_both_ways_in_place) { tutti::transport::conformance::moves_both_ways(make, true); } \
  TEST(suite, moves_both_ways_landed) { tutti::transport::conformance::moves_both_ways(make, false); } \
  TEST(suite, wakes_sleepers) { tutti::transport::conformance::wakes_sleepers(make); } \
  TEST(suite, says_loss_once) { tutti::transport::conformance::says_loss_once(make); }
