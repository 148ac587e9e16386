// Encrypted streams: bytes go through whole in both directions, and neither another secret nor a changed byte nor one
// that is sent twice gets through.
#include "comm/tls_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/transport/memory_stream.h"

namespace tutti::comm {
namespace {

using tests::Faults;
using tests::MemoryLoop;
using tests::MemoryStream;
using tests::Pipe;
using StreamPtr = std::unique_ptr<Stream>;
using Secret = std::array<std::byte, 32>;

Secret secret_of(unsigned seed) {
  Secret out;
  std::mt19937 random(seed);
  for (auto& byte : out) byte = std::byte(random());
  return out;
}

class Tls : public ::testing::Test {
 protected:
  // Handshakes over two pipes. The ends' results; not done: null status.
  void connect(const Secret& client, const Secret& server, std::uint64_t rekey_after = 1 << 20,
               const Faults& there = {}, const Faults& back = {}) {
    out_ = std::make_shared<Pipe>(64 << 10, there);
    back_ = std::make_shared<Pipe>(64 << 10, back);
    auto a = secure(loop_, std::make_unique<MemoryStream>(loop_, back_, out_, "a:1", "b:1"), client, TlsRole::client,
                    TimePoint::max(), rekey_after);
    auto b = secure(loop_, std::make_unique<MemoryStream>(loop_, out_, back_, "b:1", "a:1"), server, TlsRole::server,
                    TimePoint::max(), rekey_after);
    a.start();
    b.start();
    for (int i = 0; i < 10000 && !(a.done() && b.done()); ++i) loop_.run(Nanoseconds(0));
    if (a.done()) take(a.result(), ends_[0]);
    if (b.done()) take(b.result(), ends_[1]);
  }
  // Sends `bytes` of each way in pieces of random sizes, and compares. False: one of them failed.
  bool exchange(std::size_t bytes, unsigned seed) {
    std::mt19937_64 random(seed);
    std::vector<std::byte> sent[2], got[2];
    for (auto& all : sent) {
      all.resize(bytes);
      for (auto& byte : all) byte = std::byte(random());
    }
    std::size_t at[2] = {0, 0};
    std::vector<std::byte> buffer(40000);
    for (int idle = 0; idle < 1000;) {
      bool moved = false;
      for (int side = 0; side < 2; ++side) {
        const std::size_t first = std::min<std::size_t>(bytes - at[side], random() % 100),
                          second = std::min<std::size_t>(bytes - at[side] - first, random() % 60000);
        const iovec parts[] = {{sent[side].data() + at[side], first}, {sent[side].data() + at[side] + first, second}};
        const IoResult wrote = ends_[side]->write(parts);
        if (!wrote.status.ok()) return failure_ = wrote.status, false;
        at[side] += wrote.bytes;
        const IoResult read = ends_[1 - side]->read(std::span(buffer).first(1 + random() % buffer.size()));
        if (!read.status.ok()) return failure_ = read.status, false;
        got[side].insert(got[side].end(), buffer.begin(), buffer.begin() + std::ptrdiff_t(read.bytes));
        moved = moved || wrote.bytes || read.bytes;
      }
      idle = moved ? 0 : idle + 1;
      if (got[0].size() >= bytes && got[1].size() >= bytes) break;
    }
    EXPECT_TRUE(got[0] == sent[0] && got[1] == sent[1]);
    return true;
  }

  MemoryLoop loop_;
  std::shared_ptr<Pipe> out_, back_;
  StreamPtr ends_[2];
  Status failures_[2], failure_;

 private:
  void take(Result<StreamPtr> result, StreamPtr& end) {
    if (result) end = std::move(*result);
    else (&end == &ends_[0] ? failures_[0] : failures_[1]) = result.status();
  }
};

TEST_F(Tls, CarriesBytesBothWaysOverShortReadsAndWritesAndNewKeys) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const Faults rough{.seed = seed, .short_moves = seed % 2 == 0};
    connect(secret_of(seed), secret_of(seed), seed % 3 ? 3 : 1 << 20, rough, rough);
    ASSERT_TRUE(ends_[0] && ends_[1]) << failures_[0].text() << " / " << failures_[1].text();
    EXPECT_TRUE(exchange(300'000, seed)) << failure_.text();
    ends_[0].reset();
    ends_[1].reset();
  }
}

TEST_F(Tls, NothingOfThePlainTextIsOnTheWire) {
  connect(secret_of(1), secret_of(1));
  ASSERT_TRUE(ends_[0] && ends_[1]);
  const std::string text(2000, 'x');
  const iovec part{const_cast<char*>(text.data()), text.size()};
  ASSERT_EQ(ends_[0]->write({&part, 1}).bytes, text.size());
  std::vector<std::byte> wire(out_->written - out_->read);
  ASSERT_GT(wire.size(), text.size());
  out_->get(wire.data(), wire.size());
  int run = 0, longest = 0;
  for (const std::byte byte : wire) longest = std::max(longest, run = byte == std::byte('x') ? run + 1 : 0);
  EXPECT_LT(longest, 5);
}

TEST_F(Tls, AnotherSecretIsRefusedAtBothEnds) {
  connect(secret_of(1), secret_of(2));
  EXPECT_FALSE(ends_[0] && ends_[1]);
  EXPECT_FALSE(failures_[0].ok() && failures_[1].ok());
}

TEST_F(Tls, AChangedByteIsNoticedWhereverItIs) {
  connect(secret_of(1), secret_of(1));
  const std::uint64_t from = out_->written;
  ends_[0].reset();
  ends_[1].reset();
  int noticed = 0;
  for (unsigned i = 0; i < 60; ++i) {
    Faults flip;
    flip.flips[from + i * 37] = i % 8;
    connect(secret_of(1), secret_of(1), 1 << 20, flip);
    ASSERT_TRUE(ends_[0] && ends_[1]);
    noticed += !exchange(20'000, i);
    ends_[0].reset();
    ends_[1].reset();
  }
  EXPECT_EQ(noticed, 60);
}

TEST_F(Tls, ARecordThatIsSentTwiceIsNoticed) {
  connect(secret_of(1), secret_of(1));
  ASSERT_TRUE(ends_[0] && ends_[1]);
  std::byte text[100] = {}, got[400];
  const iovec part{text, sizeof text};
  ASSERT_EQ(ends_[0]->write({&part, 1}).bytes, sizeof text);
  std::vector<std::byte> record(out_->written - out_->read);
  out_->get(record.data(), record.size());
  for (int i = 0; i < 2; ++i) out_->put(record.data(), record.size());
  EXPECT_EQ(ends_[1]->read(got).bytes, sizeof text);
  EXPECT_FALSE(ends_[1]->read(got).status.ok());
}

}  // namespace
}  // namespace tutti::comm
