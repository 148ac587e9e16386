#pragma once
// A row of tokens to train on: a file of bytes (text; a byte is a token), or a token file in llm.c's format (256 integers of header,
// then 16- or 32-bit tokens). Files are mapped, not read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tutti/status.h>
#include <vector>

#include "trainer/embedding.h"

namespace tutti::trainer {

class Tokens {
 public:
  // invalid_argument: names the file and what is wrong with it: missing, empty, of unknown version, shorter than it says.
  static Result<Tokens> open(const std::string& path);
  static Tokens of_text(std::string text);
  static Tokens of_tokens(std::string name, const std::vector<Token>& tokens);
  std::size_t count() const { return count_; }
  bool is_text() const { return width_ == 1; }      // a byte is a token
  std::string text(std::size_t most) const { return {reinterpret_cast<const char*>(data_), std::min(most, count_)}; }      // of a text
  const std::string& name() const { return name_; }
  Token at(std::size_t i) const;
  // The largest token.
  Token largest() const;

 private:
  std::string name_;
  std::shared_ptr<const void> owner_;               // of the mapping, or of the text
  const unsigned char* data_ = nullptr;
  std::size_t count_ = 0, width_ = 1;
};

// A token file in llm.c's format: of 16 bits where the vocabulary allows it. invalid_argument: file and errno; out_of_resources never.
Status write_tokens(const std::string& path, const std::vector<Token>& tokens, std::size_t vocabulary);

}  // namespace tutti::trainer
