#include "tools/doctor/channel.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>

#include "core/check.h"
#include "tools/doctor/json_fields.h"
#include "tools/text_block.h"

namespace tutti::tools::doctor {
namespace {

using Mac = std::array<unsigned char, 32>;

constexpr std::string_view kMagic = "TUTTI DOCTOR 1\r\n";
constexpr std::size_t kNonceBytes = 16, kStartBytes = kMagic.size() + kNonceBytes;
constexpr std::uint32_t kMostBytes = 64u << 20;  // facts of a host are some KiB

Mac hmac(std::span<const unsigned char> key, const std::string& message) {
  Mac out;
  unsigned bytes = out.size();
  TUTTI_CHECK(HMAC(EVP_sha256(), key.data(), int(key.size()), reinterpret_cast<const unsigned char*>(message.data()),
                   message.size(), out.data(), &bytes) != nullptr);
  return out;
}

Mac hmac(const comm::JobKey& key, const std::string& message) {
  return hmac({reinterpret_cast<const unsigned char*>(key.secret.data()), key.secret.size()}, message);
}

bool equal(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

std::string own_start() {
  std::string out(kMagic);
  out.resize(kStartBytes);
  TUTTI_CHECK(getrandom(out.data() + kMagic.size(), kNonceBytes, 0) == ssize_t(kNonceBytes));
  return out;
}

// Up to the first byte that is not ours, and what that was.
Result<std::string> read_start(int socket, Deadline deadline) {
  std::string out;
  while (out.size() < kStartBytes) {
    char c = 0;
    const Status got = receive_all(socket, &c, 1, deadline);
    if (!got)
      return Status(got.code(),
                    out.empty() ? got.text() : fmt::format("it sent \"{}\", then: {}", printable(out), got.text()));
    out += c;
    if (out.size() > kMagic.size() || kMagic.substr(0, out.size()) == out) continue;
    char more[60];
    if (const ssize_t rest = recv(socket, more, sizeof more, MSG_DONTWAIT); rest > 0)
      out.append(more, std::size_t(rest));
    while (!out.empty() && (out.back() == '\n' || out.back() == '\r')) out.pop_back();
    return Status(Code::network, fmt::format("it is no doctor; it says \"{}\"", printable(out)));
  }
  return out;
}

}  // namespace

Result<Channel> Channel::call(Descriptor socket, const comm::JobKey& key, Deadline deadline) {
  const std::string hello = own_start();
  if (Status status = send_all(socket.get(), hello.data(), hello.size(), deadline); !status) return status;
  auto answer = read_start(socket.get(), deadline);
  if (!answer) return answer.status();
  Mac proof;
  if (Status status = receive_all(socket.get(), proof.data(), proof.size(), deadline); !status) return status;
  const std::string both = hello + *answer;
  if (!equal(proof, hmac(key, "doctor listener" + both)))
    return Status(Code::mismatch, "a doctor answers there, but with another job key");
  proof = hmac(key, "doctor caller" + both);
  if (Status status = send_all(socket.get(), proof.data(), proof.size(), deadline); !status) return status;
  return Channel(std::move(socket), hmac(key, "doctor session" + both), true);
}

Result<Channel> Channel::answer(Descriptor socket, const comm::JobKey& key, Deadline deadline) {
  auto hello = read_start(socket.get(), deadline);
  if (!hello) return hello.status();
  const std::string start = own_start(), both = *hello + start;
  Mac proof = hmac(key, "doctor listener" + both);
  std::string message = start;
  message.append(reinterpret_cast<const char*>(proof.data()), proof.size());
  if (Status status = send_all(socket.get(), message.data(), message.size(), deadline); !status) return status;
  if (Status status = receive_all(socket.get(), proof.data(), proof.size(), deadline); !status)
    return Status(Code::mismatch,
                  fmt::format("a doctor called, and left at our proof ({}): another job key", status.text()));
  if (!equal(proof, hmac(key, "doctor caller" + both)))
    return Status(Code::mismatch, "a doctor called with another job key");
  return Channel(std::move(socket), hmac(key, "doctor session" + both), false);
}

Channel::Mac Channel::mac(bool from_caller, std::uint64_t number, const std::string& body) const {
  std::string message(1, from_caller ? 'c' : 'l');
  for (int i = 0; i < 8; ++i) message += char(number >> (8 * i));
  return hmac(session_, message + body);
}

Status Channel::send(const nlohmann::json& message, Deadline deadline) {
  const std::string body = dump(message);
  const auto proof = mac(caller_, sent_++, body);
  std::string out;
  for (int i = 0; i < 4; ++i) out += char(body.size() >> (8 * i));
  out.append(reinterpret_cast<const char*>(proof.data()), proof.size());
  out += body;
  return send_all(socket_.get(), out.data(), out.size(), deadline);
}

Result<nlohmann::json> Channel::receive(Deadline deadline) {
  std::array<unsigned char, 4> head;
  Mac proof;
  if (Status status = receive_all(socket_.get(), head.data(), head.size(), deadline); !status) return status;
  const std::uint32_t bytes = head[0] | head[1] << 8 | head[2] << 16 | std::uint32_t(head[3]) << 24;
  if (bytes > kMostBytes) return Status(Code::mismatch, fmt::format("a message of {} bytes: damaged or forged", bytes));
  if (Status status = receive_all(socket_.get(), proof.data(), proof.size(), deadline); !status) return status;
  std::string body(bytes, '\0');
  if (Status status = receive_all(socket_.get(), body.data(), body.size(), deadline); !status) return status;
  if (!equal(proof, mac(!caller_, received_++, body)))
    return Status(Code::mismatch, "a message that the key does not prove");
  auto message = nlohmann::json::parse(body, nullptr, false);
  if (message.is_discarded() || !message.is_object())
    return Status(Code::invalid_argument, "a message that is no JSON object");
  return message;
}

}  // namespace tutti::tools::doctor
