#include "trainer/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <new>

namespace tutti::trainer {

std::string to_hex(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

Sha256::Sha256() : context_(EVP_MD_CTX_new(), [](void* context) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context)); }) {
  if (!context_ || EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_.get()), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
}

void Sha256::add(const void* data, std::size_t bytes) { EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_.get()), data, bytes); }

Digest Sha256::end() {
  Digest digest{};
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_.get()), digest.data(), nullptr);
  return digest;
}

}  // namespace tutti::trainer
