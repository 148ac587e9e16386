#include "trainer/tokenizer_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "trainer/bpe.h"
#include "trainer/failure.h"
#include "trainer/text.h"
#include "trainer/tokens.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kGeneratedBytes = 1 << 20;

std::string text_of(const std::string& data) {
  if (data.empty()) return generated_text(kGeneratedBytes);
  const Tokens tokens = require(Tokens::open(data));
  if (!tokens.is_text()) refuse(data + " is a token file already; a text is wanted");
  return tokens.text(tokens.count());
}

}  // namespace

std::function<int()> add_tokenizer(CLI::App& app) {
  struct Flags {
    std::string data, out;
    std::size_t vocabulary = 4096;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("--data", flags->data, "text; without it the generated one");
  app.add_option("--vocabulary", flags->vocabulary, "tokens: 256 bytes, merges, <|endoftext|>")->capture_default_str()->check(CLI::Range(257, 1 << 20));
  app.add_option("--out", flags->out, "folder for vocab.json and merges.txt")->required();
  return [flags] {
    const std::string text = text_of(flags->data);
    std::error_code error;
    std::filesystem::create_directories(flags->out, error);
    if (!Bpe::saved_in(flags->out).empty()) refuse(Bpe::saved_in(flags->out) + " is there already; give another folder");
    const Bpe bpe = Bpe::trained_on(text, flags->vocabulary);
    require(bpe.save(flags->out));
    fmt::print("{}: {} tokens; the text is {} of them, {:.2f} bytes each\n", flags->out, bpe.vocabulary(), bpe.encode(text).size(),
               double(text.size()) / double(bpe.encode(text).size()));
    return 0;
  };
}

std::function<int()> add_tokenize(CLI::App& app) {
  struct Flags {
    std::string data, text, tokenizer, out;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("--data", flags->data, "text; without it the generated one");
  app.add_option("--tokenizer", flags->tokenizer, "as for a run")->required();
  CLI::Option* text = app.add_option("--text", flags->text, "print the tokens of this text");
  CLI::Option* out = app.add_option("--out", flags->out, "token file in llm.c's format")->excludes(text);
  return [flags, text, out] {
    if (!*text && !*out) refuse("give --out FILE for the tokens of --data, or --text TEXT to see those of a text");
    const Bpe bpe = require(Bpe::open(flags->tokenizer));
    if (*text) {
      fmt::print("{}\n", fmt::join(bpe.encode(flags->text), " "));
      return 0;
    }
    const std::vector<Token> tokens = bpe.encode(text_of(flags->data));
    require(write_tokens(flags->out, tokens, bpe.vocabulary()));
    fmt::print("{}: {} tokens\n", flags->out, tokens.size());
    return 0;
  };
}

}  // namespace tutti::trainer
