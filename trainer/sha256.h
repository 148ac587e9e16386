#pragma once
// SHA-256 of bytes that come piece by piece (OpenSSL's).
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tutti::trainer {

using Digest = std::array<std::uint8_t, 32>;
std::string to_hex(const Digest& digest);

class Sha256 {
 public:
  Sha256();
  void add(const void* data, std::size_t bytes);
  Digest end();                       // once

 private:
  std::shared_ptr<void> context_;
};

}  // namespace tutti::trainer
