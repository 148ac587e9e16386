#include "comm/unique_id.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "comm/wire_bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/socket_address.h"

namespace tutti::comm {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kSecretBytes = 16, kCrcAt = UniqueId::kBytes - 4;

}  // namespace

UniqueId make_id(const std::vector<std::string>& hosts, int port, const std::string& secret) {
  TUTTI_CHECK(secret.size() == kSecretBytes);
  ByteWriter list;
  std::uint8_t count = 0;
  constexpr std::size_t kRoom = kCrcAt - 4 - kSecretBytes;
  for (const std::string& host : hosts) {
    std::array<std::byte, 16> bytes;
    bool v4 = ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1;
    if (!v4 && ::inet_pton(AF_INET6, host.c_str(), bytes.data()) != 1) continue;  // link-local ones have a %scope
    std::size_t size = v4 ? 4 : 16;
    if (list.bytes().size() + 1 + size > kRoom) continue;
    list.number(std::uint8_t(v4 ? 4 : 6)).raw(std::span(bytes).first(size));
    ++count;
  }
  ByteWriter out;
  out.number(kVersion)
      .number(count)
      .number(std::uint16_t(port))
      .raw(std::as_bytes(std::span(secret)))
      .raw(list.bytes());
  UniqueId id;
  TUTTI_CHECK(out.bytes().size() <= kCrcAt);
  std::memcpy(id.bytes.data(), out.bytes().data(), out.bytes().size());
  ByteWriter crc;
  crc.number(crc32c(id.bytes.data(), kCrcAt));
  std::memcpy(id.bytes.data() + kCrcAt, crc.bytes().data(), 4);
  return id;
}

Result<Invitation> read_id(const UniqueId& id) {
  ByteReader in(id.bytes);
  auto version = in.number<std::uint8_t>(), count = in.number<std::uint8_t>();
  int port = in.number<std::uint16_t>();
  auto secret = in.raw(kSecretBytes);
  std::uint32_t crc = ByteReader(std::span(id.bytes).subspan(kCrcAt)).number<std::uint32_t>();
  if (crc != crc32c(id.bytes.data(), kCrcAt) || version != kVersion || count == 0 || port == 0)
    return Status(Code::invalid_argument,
                  "the unique id is damaged, empty or of another tutti: want all 128 bytes of make_unique_id()");
  Invitation out;
  out.secret.assign(reinterpret_cast<const char*>(secret.data()), secret.size());
  for (int i = 0; i < count; ++i) {
    int family = in.number<std::uint8_t>() == 4 ? AF_INET : AF_INET6;
    auto bytes = in.raw(family == AF_INET ? 4 : 16);
    char text[INET6_ADDRSTRLEN] = "";
    if (in.good() && ::inet_ntop(family, bytes.data(), text, sizeof text))
      out.addresses.push_back(join_address(text, port));
  }
  return out;
}

}  // namespace tutti::comm
