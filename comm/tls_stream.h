#pragma once
// Encrypted streams (TUTTI_ENCRYPT=1): TLS 1.3 with AES-128-GCM over any Stream, keyed from the job's key and both
// sides' random numbers (no certificates; RFC 8446, external PSK with an ephemeral key exchange). OpenSSL does the
// cryptography: nonces count records under keys of this connection alone, so that nothing can be replayed, here or on
// another connection. It knows nothing of what it carries.
#include <array>
#include <cstddef>

#include "core/task.h"

namespace tutti::comm {

// Never encrypted: it does not leave the host, and passes descriptors.
inline bool is_unix(const Stream& stream) {
  return stream.local_address().starts_with('@') || stream.remote_address().starts_with('@');
}

enum class TlsRole { client, server };

// Takes over the stream; both ends call it, one in each role, with the same secret. What it gives closes the stream
// when destroyed. Errors: network (closed, or the other end has another secret or speaks something else), timeout.
// `rekey_after`: records of 16 KB at most, written under one key; AES-GCM allows 2^24.5.
Task<Result<std::unique_ptr<Stream>>> secure(Loop& loop, std::unique_ptr<Stream> stream,
                                             std::array<std::byte, 32> secret, TlsRole role, TimePoint deadline,
                                             std::uint64_t rekey_after = std::uint64_t(1) << 23);

}  // namespace tutti::comm
