// The handshake with the right peer, and with everything else that may knock.
#include "comm/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tutti/version.h>
#include <random>

#include "core/posix_loop.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using StreamPtr = std::unique_ptr<Stream>;
using Bytes = std::vector<std::byte>;

class Handshake : public ::testing::Test {
 protected:
  struct Ends {
    StreamPtr caller, listener;
  };
  Ends connect_pair() {
    Ends out;
    auto listening = loop().network().listen("127.0.0.1:0", [&](StreamPtr s) { out.listener = std::move(s); });
    std::string address = (*listening)->address();
    auto connecting = connect(loop(), address, loop().now() + 10s);
    connecting.start();
    out.caller = run_until_done(loop(), connecting).value();
    TimePoint end = loop().now() + 10s;
    while (!out.listener && loop().now() < end) loop().run(10ms);
    EXPECT_TRUE(out.listener);
    return out;
  }
  Loop& loop() { return *loop_; }

  // What the listener says to someone who sends these bytes, and perhaps closes.
  Status accept_from(const Bytes& sent, bool closes, Nanoseconds limit) {
    Ends ends = connect_pair();
    auto accepting = handshake_accept(loop(), *ends.listener, key_, 0, loop().now() + limit);
    accepting.start();
    auto writing = write_all(loop(), *ends.caller, sent, loop().now() + 10s);
    writing.start();
    EXPECT_TRUE(run_until_done(loop(), writing).ok());
    if (closes) ends.caller.reset();
    auto result = run_until_done(loop(), accepting);
    EXPECT_FALSE(result.ok());
    return result.status();
  }
  static Bytes bytes_of(std::string_view text) {
    auto from = std::as_bytes(std::span(text.data(), text.size()));
    return {from.begin(), from.end()};
  }

  // A relay that records what both sides of one good handshake send.
  struct Recording {
    Bytes from_caller, from_listener;
    Result<PeerHello> accepted = Status(), connected = Status();
  };
  Recording record(const JobKey& caller_key, const JobKey& listener_key) {
    Ends left = connect_pair(), right = connect_pair();  // caller - relay, relay - listener
    Recording out;
    auto pump = [](Stream& from, Stream& to, Bytes& copy) {
      std::byte buffer[512];
      IoResult io = from.read(buffer);
      copy.insert(copy.end(), buffer, buffer + io.bytes);
      iovec part{buffer, io.bytes};
      if (io.bytes > 0) to.write(std::span<const iovec>(&part, 1));
    };
    const PeerHello own{3, Purpose::tcp, 9, 1, 4, 77};
    TimePoint deadline = loop().now() + 10s;
    auto connecting = handshake_connect(loop(), *left.caller, caller_key, own, deadline);
    auto accepting = handshake_accept(loop(), *right.listener, listener_key, 5, deadline);
    connecting.start();
    accepting.start();
    while (!connecting.done() || !accepting.done()) {
      pump(*left.listener, *right.caller, out.from_caller);
      pump(*right.caller, *left.listener, out.from_listener);
      loop().run(1ms);
      if (connecting.done()) left.caller.reset();
      if (!accepting.done() || connecting.done()) continue;
      pump(*right.caller, *left.listener, out.from_listener);     // its last word
      loop().run(10ms);
      right.listener.reset(), left.listener.reset(), left.listener = connect_pair().listener;
    }
    out.connected = connecting.result();
    out.accepted = accepting.result();
    return out;
  }

  std::unique_ptr<Loop> loop_ = make_posix_loop();
  const JobKey key_ = make_job_key("the key");
};

TEST_F(Handshake, both_sides_learn_who_the_other_is) {
  auto recording = record(key_, key_);
  ASSERT_TRUE(recording.accepted.ok()) << recording.accepted.status().to_string();
  ASSERT_TRUE(recording.connected.ok()) << recording.connected.status().to_string();
  EXPECT_TRUE(*recording.accepted == (PeerHello{3, Purpose::tcp, 9, 1, 4, 77}));
  EXPECT_EQ(recording.connected->rank, 5);
  EXPECT_LT(recording.from_caller.size(), 256u);
  EXPECT_LT(recording.from_listener.size(), 256u);
}

TEST_F(Handshake, nothing_secret_travels) {
  auto recording = record(key_, key_);
  for (const Bytes* sent : {&recording.from_caller, &recording.from_listener})
    EXPECT_EQ(std::search(sent->begin(), sent->end(), key_.secret.begin(), key_.secret.begin() + 8), sent->end());
}

TEST_F(Handshake, another_key_is_turned_away_by_both) {
  Ends ends = connect_pair();
  const JobKey other = make_job_key("another key");
  TimePoint deadline = loop().now() + 10s;
  auto accepting = handshake_accept(loop(), *ends.listener, key_, 0, deadline);
  auto connecting = handshake_connect(loop(), *ends.caller, other, PeerHello{}, deadline);
  accepting.start();
  connecting.start();
  EXPECT_EQ(run_until_done(loop(), accepting).status().code(), Code::mismatch);
  ends.listener.reset();
  auto caller = run_until_done(loop(), connecting);
  EXPECT_THAT(caller.status().text(), HasSubstr("another job key"));
}

TEST_F(Handshake, another_secret_of_the_same_job_number_fails_at_the_proof) {
  Ends ends = connect_pair();
  JobKey other = make_job_key("another key");
  other.job = key_.job;
  TimePoint deadline = loop().now() + 10s;
  auto accepting = handshake_accept(loop(), *ends.listener, key_, 0, deadline);
  auto connecting = handshake_connect(loop(), *ends.caller, other, PeerHello{}, deadline);
  accepting.start();
  connecting.start();
  EXPECT_EQ(run_until_done(loop(), connecting).status().code(), Code::mismatch);
  ends.caller.reset();
  EXPECT_FALSE(run_until_done(loop(), accepting).ok());
}

TEST_F(Handshake, a_replayed_caller_fails) {
  auto recording = record(key_, key_);
  ASSERT_TRUE(recording.accepted.ok());
  Status status = accept_from(recording.from_caller, false, 10s);
  EXPECT_EQ(status.code(), Code::mismatch);
  EXPECT_THAT(status.text(), HasSubstr("another job key"));
}

TEST_F(Handshake, a_replayed_listener_fails) {
  auto recording = record(key_, key_);
  Ends ends = connect_pair();
  auto connecting = handshake_connect(loop(), *ends.caller, key_, PeerHello{}, loop().now() + 10s);
  connecting.start();
  auto writing = write_all(loop(), *ends.listener, recording.from_listener, loop().now() + 10s);
  writing.start();
  EXPECT_TRUE(run_until_done(loop(), writing).ok());
  EXPECT_EQ(run_until_done(loop(), connecting).status().code(), Code::mismatch);
}

TEST_F(Handshake, reflecting_a_caller_to_itself_fails) {
  Ends ends = connect_pair();
  auto connecting = handshake_connect(loop(), *ends.caller, key_, PeerHello{}, loop().now() + 10s);
  connecting.start();
  Bytes hello(12);
  auto reading = read_exact(loop(), *ends.listener, hello, loop().now() + 10s);
  reading.start();
  EXPECT_TRUE(run_until_done(loop(), reading).ok());
  hello.resize(200);  // its own start, then what it takes for an answer and a proof
  auto writing = write_all(loop(), *ends.listener, hello, loop().now() + 10s);
  writing.start();
  EXPECT_TRUE(run_until_done(loop(), writing).ok());
  EXPECT_EQ(run_until_done(loop(), connecting).status().code(), Code::mismatch);
}

TEST_F(Handshake, any_flipped_byte_of_the_caller_is_noticed) {
  auto size = record(key_, key_).from_caller.size();
  for (std::size_t at = 0; at < size; ++at) {
    Ends left = connect_pair(), right = connect_pair();
    TimePoint deadline = loop().now() + 10s;
    auto connecting = handshake_connect(loop(), *left.caller, key_, PeerHello{}, deadline);
    auto accepting = handshake_accept(loop(), *right.listener, key_, 0, deadline);
    connecting.start();
    accepting.start();
    std::size_t passed = 0;
    auto end = loop().now() + 10s;
    while (!accepting.done() && loop().now() < end) {
      std::byte buffer[512];
      IoResult io = left.listener->read(buffer);
      for (std::size_t i = 0; i < io.bytes; ++i)
        if (passed++ == at) buffer[i] ^= std::byte(0x41);
      if (io.closed || !io.status) right.caller.reset();
      iovec part{buffer, io.bytes};
      if (io.bytes > 0) right.caller->write(std::span<const iovec>(&part, 1));
      if (right.caller) io = right.caller->read(buffer);
      part.iov_len = io.bytes;
      if (right.caller && io.bytes > 0) left.listener->write(std::span<const iovec>(&part, 1));
      loop().run(1ms);
      if (connecting.done() && left.caller && !accepting.done() && passed >= size - 32 && passed < size)
        left.caller.reset();
    }
    ASSERT_TRUE(accepting.done()) << "byte " << at;
    EXPECT_FALSE(accepting.result().ok()) << "byte " << at;
  }
}

TEST_F(Handshake, a_bad_start_is_dropped_at_once_and_not_at_the_deadline) {
  // The connection stays open and the limit is far: only the first wrong byte can end it.
  TimePoint start = loop().now();
  EXPECT_EQ(accept_from(bytes_of("G"), false, 600s).code(), Code::network);
  EXPECT_EQ(accept_from(bytes_of("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), false, 600s).code(), Code::network);
  EXPECT_EQ(accept_from(bytes_of("\x16\x03\x01\x02"), false, 600s).code(), Code::network);
  EXPECT_EQ(accept_from(bytes_of("TUTTX"), false, 600s).code(), Code::network);
  EXPECT_LT(loop().now() - start, 60s);
}

TEST_F(Handshake, random_bytes_never_get_in) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    Bytes noise(1 + random() % 400);
    for (auto& b : noise) b = std::byte(random());
    EXPECT_EQ(accept_from(noise, i % 2 == 0, 600s).code(), Code::network);
  }
}

TEST_F(Handshake, truncated_ones_end_with_the_connection_or_the_deadline) {
  const Bytes whole = record(key_, key_).from_caller;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Bytes part(whole.begin(), whole.begin() + std::ptrdiff_t(size));
    Status status = accept_from(part, true, 600s);
    EXPECT_TRUE(status.code() == Code::network || status.code() == Code::mismatch)
        << size << ": " << status.to_string();
  }
  EXPECT_EQ(accept_from({}, false, 5ms).code(), Code::timeout);
  EXPECT_EQ(accept_from(Bytes(whole.begin(), whole.begin() + 20), false, 5ms).code(), Code::timeout);
}

TEST_F(Handshake, another_wire_version_is_named_on_both_sides) {
  Bytes hello = record(key_, key_).from_caller;
  hello[8] = std::byte(99);
  Status status = accept_from(hello, false, 10s);
  EXPECT_EQ(status.code(), Code::mismatch);
  EXPECT_THAT(status.text(), HasSubstr("99"));
  EXPECT_THAT(status.text(), HasSubstr("this process " + std::to_string(kWireVersion)));
  // And a caller of ours that meets a listener of that version.
  Ends ends = connect_pair();
  auto connecting = handshake_connect(loop(), *ends.caller, key_, PeerHello{}, loop().now() + 10s);
  connecting.start();
  Bytes answer(hello.begin(), hello.begin() + 12);
  auto writing = write_all(loop(), *ends.listener, answer, loop().now() + 10s);
  writing.start();
  EXPECT_TRUE(run_until_done(loop(), writing).ok());
  status = run_until_done(loop(), connecting).status();
  EXPECT_EQ(status.code(), Code::mismatch);
  EXPECT_THAT(status.text(), HasSubstr("99"));
}

TEST_F(Handshake, the_refused_version_is_told_ours) {
  Bytes hello = record(key_, key_).from_caller;
  hello[8] = std::byte(99);
  Ends ends = connect_pair();
  auto accepting = handshake_accept(loop(), *ends.listener, key_, 0, loop().now() + 10s);
  accepting.start();
  auto writing = write_all(loop(), *ends.caller, hello, loop().now() + 10s);
  writing.start();
  EXPECT_TRUE(run_until_done(loop(), writing).ok());
  EXPECT_FALSE(run_until_done(loop(), accepting).ok());
  ends.listener.reset();
  Bytes answer(12);
  auto reading = read_exact(loop(), *ends.caller, answer, loop().now() + 10s);
  reading.start();
  EXPECT_TRUE(run_until_done(loop(), reading).ok());
  EXPECT_EQ(answer[8], std::byte(kWireVersion));
}

TEST(JobKey, follows_the_secret_and_nothing_else) {
  EXPECT_TRUE(make_job_key("a") == make_job_key("a"));
  EXPECT_NE(make_job_key("a").secret, make_job_key("b").secret);
  EXPECT_NE(make_job_key("a").job, make_job_key("b").job);
  EXPECT_NE(make_job_key("").job, 0u);
}

}  // namespace
}  // namespace tutti::comm
