#include "comm/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <tutti/version.h>
#include <algorithm>

#include "comm/wire_bytes.h"

namespace tutti::comm {
namespace {

using Bytes = std::vector<std::byte>;
using Mac = std::array<std::byte, 32>;

// The last two tell text-mode tampering apart, as in PNG.
constexpr std::array<std::uint8_t, 8> kMagic{'T', 'U', 'T', 'T', 'I', 0xf6, '\r', '\n'};
constexpr std::size_t kNonceBytes = 16;
constexpr std::size_t kStartBytes = kMagic.size() + 4;
constexpr std::size_t kHelloBytes = kStartBytes + 1 + 8 + 4 + 4 + 2 + 2 + 4 + kNonceBytes;
constexpr std::size_t kAnswerBytes = kStartBytes + 4 + kNonceBytes;  // without its HMAC
constexpr std::byte kWelcome{1};
constexpr std::uint8_t kEncryptPurpose = 0x80;        // beside the purpose
constexpr std::uint32_t kEncryptRank = 1u << 31;      // beside the rank, counted from 1

Mac mac_of(const JobKey& key, std::string_view label, const Bytes& hello, const Bytes& answer) {
  Bytes message;
  auto text = std::as_bytes(std::span(label.data(), label.size()));
  message.insert(message.end(), text.begin(), text.end());
  message.insert(message.end(), hello.begin(), hello.end());
  message.insert(message.end(), answer.begin(), answer.end());
  Mac out;
  unsigned bytes = out.size();
  auto* done = HMAC(EVP_sha256(), key.secret.data(), int(key.secret.size()),
                    reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                    reinterpret_cast<unsigned char*>(out.data()), &bytes);
  TUTTI_CHECK(done != nullptr && bytes == out.size());
  return out;
}

bool equal(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

void put_start(ByteWriter& to) { to.raw(std::as_bytes(std::span(kMagic))).number(std::uint32_t(kWireVersion)); }

void put_nonce(ByteWriter& to, Loop& loop) {
  for (std::size_t i = 0; i < kNonceBytes / 8; ++i) to.number(loop.random());
}

Bytes encode_hello(Loop& loop, const JobKey& key, const PeerHello& own) {
  ByteWriter out;
  put_start(out);
  out.number(std::uint8_t(std::uint8_t(own.purpose) | (key.encrypt ? kEncryptPurpose : 0)))
      .number(key.job)
      .number(std::uint32_t(own.rank))
      .number(own.epoch);
  out.number(own.index).number(own.count).number(own.call);
  put_nonce(out, loop);
  return out.take();
}

// Behind the start; empty for another job.
std::optional<PeerHello> decode_hello(const Bytes& hello, std::uint64_t job) {
  ByteReader in(hello);
  in.raw(kStartBytes);
  const std::uint8_t purpose = in.number<std::uint8_t>() & ~kEncryptPurpose;
  if (in.number<std::uint64_t>() != job || purpose >= kPurposeCount) return std::nullopt;
  PeerHello out;
  out.purpose = Purpose(purpose);
  out.rank = int(in.number<std::uint32_t>());
  out.epoch = in.number<std::uint32_t>();
  out.index = in.number<std::uint16_t>();
  out.count = in.number<std::uint16_t>();
  out.call = in.number<std::uint32_t>();
  if (out.rank < -1 || out.index >= out.count) return std::nullopt;
  return out;
}

bool wants_encryption(const Bytes& hello) { return (std::uint8_t(hello[kStartBytes]) & kEncryptPurpose) != 0; }

ChannelTerms terms_of(const JobKey& key, bool theirs, const Bytes& hello, const Bytes& answer) {
  return {key.encrypt || theirs, mac_of(key, "channel", hello, answer)};
}

Status stranger(const Stream& stream, std::string_view what) {
  return {Code::network, fmt::format("{}: {}", stream.remote_address(), what)};
}

Status other_version(const Stream& stream, std::uint32_t theirs) {
  return {Code::mismatch, fmt::format("{} speaks wire version {}, this process {}: all ranks must run the same tutti",
                                      stream.remote_address(), theirs, kWireVersion)};
}

// Magic and version, given up at the first wrong byte, however few have come. Ok: they are ours, and in `out`.
Task<Status> read_start(Loop& loop, Stream& stream, Bytes& out, TimePoint deadline) {
  std::array<std::byte, kStartBytes> start;
  std::size_t have = 0;
  while (have < start.size()) {
    IoResult io = stream.read(std::span(start).subspan(have));
    if (!io.status) co_return io.status;
    if (io.closed) co_return stranger(stream, "closed during the handshake");
    have += io.bytes;
    for (std::size_t i = 0; i < std::min(have, kMagic.size()); ++i)
      if (start[i] != std::byte(kMagic[i])) co_return stranger(stream, "what it sent is no tutti handshake");
    if (io.bytes > 0) continue;
    Readiness readable(loop, stream, Readiness::Side::readable, deadline);
    bool in_time = co_await readable;
    if (!in_time) co_return Status(Code::timeout, fmt::format("{}: no handshake in time", stream.remote_address()));
  }
  ByteReader in(std::span<const std::byte>(start).subspan(kMagic.size()));
  auto version = in.number<std::uint32_t>();
  if (version != kWireVersion) co_return other_version(stream, version);
  out.assign(start.begin(), start.end());
  co_return Status();
}

// The start, then up to `bytes` in all.
Task<Status> read_message(Loop& loop, Stream& stream, Bytes& out, std::size_t bytes, TimePoint deadline) {
  auto starting = read_start(loop, stream, out, deadline);
  Status status = co_await starting;
  if (!status) co_return status;
  out.resize(bytes);
  auto reading = read_exact(loop, stream, std::span(out).subspan(kStartBytes), deadline);
  status = co_await reading;
  co_return status;
}

}  // namespace

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::meeting: return "meeting";
    case Purpose::control: return "control";
    case Purpose::shm: return "shm";
    case Purpose::tcp: return "tcp";
    case Purpose::knock: return "knock";
    case Purpose::rdma: return "rdma";
  }
  return "unknown";
}

JobKey make_job_key(std::string_view secret) {
  // A thread that joins may be in here while the process ends: OpenSSL is not to clean up under it.
  [[maybe_unused]] static const int no_cleanup = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  auto hash = [](std::string_view label, std::string_view text) {
    std::string message = fmt::format("{}{}", label, text);
    std::array<std::byte, 32> out;
    SHA256(reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(out.data()));
    return out;
  };
  JobKey key;
  key.secret = hash("tutti key:", secret);
  auto job = hash("tutti job:", secret);
  key.job = ByteReader(job).number<std::uint64_t>();
  return key;
}

Task<Result<PeerHello>> handshake_accept(Loop& loop, Stream& stream, const JobKey& key, int own_rank,
                                         TimePoint deadline, ChannelTerms* terms) {
  Bytes hello;
  auto reading = read_message(loop, stream, hello, kHelloBytes, deadline);
  Status status = co_await reading;
  ByteWriter out;
  put_start(out);
  if (status.code() == Code::mismatch) {  // tell it our version, too
    auto refusing = write_all(loop, stream, out.bytes(), deadline);
    Status refused = co_await refusing;
    std::array<std::byte, 256> rest;  // closing with bytes unread would reset, and take our answer back
    IoResult discarded = stream.read(rest);
    if (!refused || !discarded.status) co_return status;
  }
  if (!status) co_return status;
  auto peer = decode_hello(hello, key.job);
  if (!peer)
    co_return Status(Code::mismatch,
                     fmt::format("{} belongs to another job or has another key", stream.remote_address()));

  out.number(std::uint32_t(own_rank + 1) | (key.encrypt ? kEncryptRank : 0));
  put_nonce(out, loop);
  const Bytes answer = out.bytes();
  const Mac own = mac_of(key, "listener", hello, answer), wanted = mac_of(key, "caller", hello, answer);
  out.raw(own);
  auto answering = write_all(loop, stream, out.bytes(), deadline);
  status = co_await answering;
  if (!status) co_return status;
  Mac got;
  auto proving = read_exact(loop, stream, got, deadline);
  status = co_await proving;
  if (!status) co_return status;
  if (!equal(got, wanted))
    co_return Status(Code::mismatch, fmt::format("{} has another job key", stream.remote_address()));
  auto welcoming = write_all(loop, stream, std::span(&kWelcome, 1), deadline);
  status = co_await welcoming;
  if (!status) co_return status;
  if (terms) *terms = terms_of(key, wants_encryption(hello), hello, answer);
  co_return *peer;
}

Task<Result<PeerHello>> handshake_connect(Loop& loop, Stream& stream, const JobKey& key, PeerHello own,
                                          TimePoint deadline, bool* taken, ChannelTerms* terms) {
  const Bytes hello = encode_hello(loop, key, own);
  auto greeting = write_all(loop, stream, hello, deadline);
  Status status = co_await greeting;
  if (!status) co_return status;
  Bytes answer;
  auto reading = read_message(loop, stream, answer, kAnswerBytes, deadline);
  status = co_await reading;
  if (status.code() == Code::network)
    co_return Status(Code::network,
                     fmt::format("{} (it is no rank of this job, or has another job key)", status.text()));
  if (!status) co_return status;
  Mac got;
  auto proof = read_exact(loop, stream, got, deadline);
  status = co_await proof;
  if (!status) co_return status;
  if (!equal(got, mac_of(key, "listener", hello, answer)))
    co_return Status(Code::mismatch, fmt::format("{} has another job key", stream.remote_address()));
  if (taken && std::exchange(*taken, true))
    co_return Status(Code::aborted, fmt::format("{}: another address was faster", stream.remote_address()));
  const Mac own_proof = mac_of(key, "caller", hello, answer);
  auto proving = write_all(loop, stream, own_proof, deadline);
  status = co_await proving;
  if (!status) co_return status;
  std::byte welcome{};
  auto hearing = read_exact(loop, stream, std::span(&welcome, 1), deadline);
  status = co_await hearing;
  if (!status) co_return status;
  if (welcome != kWelcome) co_return stranger(stream, "what it sent is no tutti handshake");
  ByteReader in(std::span<const std::byte>(answer).subspan(kStartBytes));
  PeerHello peer = own;
  const auto rank = in.number<std::uint32_t>();
  peer.rank = int(rank & ~kEncryptRank) - 1;
  if (terms) *terms = terms_of(key, (rank & kEncryptRank) != 0, hello, answer);
  co_return peer;
}

}  // namespace tutti::comm
