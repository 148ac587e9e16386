// libFuzzer target of the handshake, of both its sides. The first byte of an input says which (1: ours calls), whether
// the other side holds the key (2) and how many bytes come at a time; the rest is what it says. A finding is a crash,
// an acceptance without the key, one of a rank that cannot be, more said or read than a handshake has, or an end that
// does not come when the connection ends. Whoever holds the key gets its start and its proofs filled in, so that what
// lies between them is reached.
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <tutti/version.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "comm/handshake.h"
#include "core/crc32c.h"
#include "tests/transport/memory_stream.h"

namespace {

using namespace tutti;
using tests::MemoryLoop;
using tests::MemoryStream;
using tests::Pipe;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kHelloBytes = 53, kAnswerBytes = 32, kProofBytes = 32;      // comm/handshake.h
constexpr std::size_t kMostRead = kHelloBytes + kProofBytes + 256;  // the rest of what has another version, too

void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

Bytes proof(const comm::JobKey& key, std::string_view label, const Bytes& hello, const Bytes& answer) {
  Bytes message(label.size());
  std::memcpy(message.data(), label.data(), label.size());
  message.insert(message.end(), hello.begin(), hello.end());
  message.insert(message.end(), answer.begin(), answer.end());
  Bytes out(kProofBytes);
  unsigned bytes = kProofBytes;
  HMAC(EVP_sha256(), key.secret.data(), int(key.secret.size()), reinterpret_cast<const unsigned char*>(message.data()),
       message.size(), reinterpret_cast<unsigned char*>(out.data()), &bytes);
  return out;
}

// What one side of a connection says, and has heard.
class Enemy {
 public:
  Enemy(MemoryLoop& loop, std::span<const std::uint8_t> words, std::size_t at_a_time)
      : words_(words), at_a_time_(at_a_time) {
    const auto to = std::make_shared<Pipe>(2 << 10, tests::Faults{}),
               from = std::make_shared<Pipe>(2 << 10, tests::Faults{});
    stream_ = std::make_unique<MemoryStream>(loop, from, to, "enemy", "us");
    ours = std::make_unique<MemoryStream>(loop, to, from, "us", "enemy");
  }
  // The next so many of its words; fewer at their end.
  Bytes next(std::size_t most) {
    const std::size_t count = std::min(most, words_.size());
    Bytes out(count);
    if (count) std::memcpy(out.data(), words_.data(), count);
    words_ = words_.subspan(count);
    return out;
  }
  void say(MemoryLoop& loop, const Bytes& bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += at_a_time_) {
      const iovec part{const_cast<std::byte*>(bytes.data() + at), std::min(at_a_time_, bytes.size() - at)};
      (void)stream_->write({&part, 1});
      for (int i = 0; i < 3; ++i) loop.run({});
    }
  }
  // What has come so far.
  Bytes hear() {
    Bytes out(1024);
    out.resize(stream_->read(out).bytes);
    return out;
  }
  bool out_of_words() const { return words_.empty(); }
  void hang_up() { stream_.reset(); }

  std::unique_ptr<MemoryStream> ours;

 private:
  std::span<const std::uint8_t> words_;
  std::size_t at_a_time_;
  std::unique_ptr<MemoryStream> stream_;
};

// Magic and version as they should be.
void begin_well(Bytes& message, const comm::JobKey* job) {
  const unsigned char start[12] = {
      'T', 'U', 'T', 'T', 'I', 0xf6, '\r', '\n', kWireVersion & 0xff, kWireVersion >> 8 & 0xff, 0, 0};
  for (std::size_t i = 0; i < std::min(sizeof start, message.size()); ++i) message[i] = std::byte(start[i]);
  if (job && message.size() >= 21) std::memcpy(message.data() + 13, &job->job, 8);
}

void finish(MemoryLoop& loop, Enemy& enemy, Task<Result<comm::PeerHello>>& task, bool has_key) {
  while (!enemy.out_of_words() && !task.done()) enemy.say(loop, enemy.next(256));
  (void)enemy.hear();
  enemy.hang_up();
  for (int i = 0; i < 8 && !task.done(); ++i) loop.run({});
  if (!task.done()) fail("the connection has ended, the handshake has not");
  if (enemy.ours->in().read > kMostRead) fail("it reads more than a handshake has");
  const auto result = task.result();
  if (!result.ok()) {
    if (result.status().text().find("enemy") == std::string::npos) fail("a refusal that does not say of whom");
    return;
  }
  if (!has_key) fail("accepted without the key");
  if (result->rank < -1 || result->index >= result->count || int(result->purpose) >= comm::kPurposeCount)
    fail("accepted what cannot be");
}

void listen(MemoryLoop& loop, Enemy& enemy, const comm::JobKey& key, bool has_key) {
  auto task = comm::handshake_accept(loop, *enemy.ours, key, 3, TimePoint::max());
  task.start();
  if (has_key) {
    Bytes hello = enemy.next(kHelloBytes);
    begin_well(hello, &key);
    enemy.say(loop, hello);
    Bytes answer = enemy.hear();
    if (answer.size() > kAnswerBytes + kProofBytes) fail("it says more than a handshake has");
    answer.resize(std::min(answer.size(), kAnswerBytes));
    enemy.say(loop, proof(key, "caller", hello, answer));
  }
  finish(loop, enemy, task, has_key);
}

void call(MemoryLoop& loop, Enemy& enemy, const comm::JobKey& key, bool has_key) {
  comm::ChannelTerms terms;
  auto task = comm::handshake_connect(loop, *enemy.ours, key, {.rank = 2, .purpose = comm::Purpose::tcp},
                                      TimePoint::max(), nullptr, &terms);
  task.start();
  if (has_key) {
    const Bytes hello = enemy.hear();
    if (hello.size() != kHelloBytes) fail("a greeting of another size");
    Bytes answer = enemy.next(kAnswerBytes);
    begin_well(answer, nullptr);
    enemy.say(loop, answer);
    enemy.say(loop, proof(key, "listener", hello, answer));
  }
  finish(loop, enemy, task, has_key);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const comm::JobKey key = comm::make_job_key("the secret of the job");
  MemoryLoop loop;
  loop.next_random = crc32c(data, size);              // not the same each time: what was recorded once must not do
  Enemy enemy(loop, {data + 1, size - 1}, 1 + (data[0] >> 2) * 4);
  const bool has_key = (data[0] & 2) != 0;
  if (data[0] & 1) call(loop, enemy, key, has_key);
  else listen(loop, enemy, key, has_key);
  return 0;
}
