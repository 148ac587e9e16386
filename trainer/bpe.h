#pragma once
// Byte-level BPE (Sennrich, Haddow, Birch 2016; on bytes: Radford et al. 2019): a text is cut into words (words.h), and within a word
// neighbours merge by the earliest rule that fits until none does. Every string of bytes has an encoding, and decoding gives it back.
//
// Read: a folder with GPT-2's vocab.bpe and encoder.json, or Hugging Face's merges.txt and vocab.json (the same under other names);
// or a file of tiktoken (base64 of a token's bytes and its rank, line by line), which is cut by GPT-2's pattern here whatever it was
// trained with. Written: vocab.json and merges.txt, or a tiktoken file where it was read from one.
#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/status.h>
#include <unordered_map>
#include <vector>

#include "trainer/embedding.h"

namespace tutti::trainer {

class Bpe {
 public:
  // Learns up to `vocabulary` tokens: 256 bytes, merges, and <|endoftext|> as the last. The commonest pair first, of equally common
  // ones that with the smaller tokens; fewer where no pair occurs twice. A pure function of the text. vocabulary > 256.
  static Bpe trained_on(std::string_view text, std::size_t vocabulary);
  // invalid_argument: which file and line, and what is wrong there.
  static Result<Bpe> open(const std::string& path);
  // Into a folder that is there.
  Status save(const std::string& folder) const;
  // What save() wrote to, if it wrote to this folder; "" else.
  static std::string saved_in(const std::string& folder);

  std::size_t vocabulary() const { return tokens_.size(); }
  std::vector<Token> encode(std::string_view text) const;
  // Tokens outside of the vocabulary have no bytes.
  std::string decode(const std::vector<Token>& tokens) const;
  const std::string& bytes_of(Token token) const { return tokens_[std::size_t(token)]; }

 private:
  struct Rule {
    std::uint32_t rank;
    Token merged;
  };
  static Result<Bpe> open_pair(const std::string& merges, const std::string& vocabulary);
  static Result<Bpe> open_tiktoken(const std::string& path);
  static std::uint64_t pair(Token a, Token b) { return std::uint64_t(std::uint32_t(a)) << 32 | std::uint32_t(b); }
  void encode_word(std::string_view word, std::vector<Token>& out) const;

  std::vector<std::string> tokens_;                   // bytes of each; what a special token is called
  std::vector<Token> bytes_ = std::vector<Token>(256, -1);
  std::unordered_map<std::uint64_t, Rule> rules_;
  std::vector<std::pair<Token, Token>> merges_;       // in order; empty where it came from tiktoken
  bool tiktoken_ = false;
  // Of tiktoken alone: there a word that is a token is that token, whether or not merges lead to it.
  std::unordered_map<std::string, Token> words_;
};

}  // namespace tutti::trainer
