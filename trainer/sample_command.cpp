#include "trainer/sample_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "trainer/bpe.h"
#include "trainer/checkpoint.h"
#include "trainer/cores.h"
#include "trainer/failure.h"
#include "trainer/gemm.h"
#include "trainer/generation.h"

namespace tutti::trainer {
namespace {

struct Flags {
  std::string from, prompt = "\n", tokenizer;
  std::size_t tokens = 300;
  Taste taste;
};

// The one that is named, or that of the run which the checkpoint is of.
std::optional<Bpe> tokenizer_of(const Flags& flags, const std::string& checkpoint) {
  if (!flags.tokenizer.empty()) return require(Bpe::open(flags.tokenizer));
  const std::string run = std::filesystem::path(checkpoint).parent_path().string();
  if (Bpe::saved_in(run).empty()) return std::nullopt;
  return require(Bpe::open(run));
}

int sample(const Flags& flags) {
  const Found found = require(checkpoint_at(flags.from));
  const ModelConfig& config = found.manifest.model;
  const auto tensors = require(CheckpointTensors::open(found.folder, found.manifest));
  const Layout layout(config);
  WholeWeights<float> weights(layout);
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) require(tensors.fill(layout, unit, "", weights.at(unit)));
  keep_blas_on_one_thread();
  Threads threads(usable_cores());
  const std::optional<Bpe> bpe = tokenizer_of(flags, found.folder);
  std::vector<Token> tokens;
  if (bpe) tokens = bpe->encode(flags.prompt);
  else for (const char c : flags.prompt) tokens.push_back(Token(static_cast<unsigned char>(c)));
  for (const Token token : tokens) {
    if (std::size_t(token) >= config.vocabulary) refuse(fmt::format("the prompt has token {}, the vocabulary is {}", token, config.vocabulary));
  }
  if (tokens.empty()) refuse("the prompt is empty: give at least one character");
  fmt::print(stderr, "{}, after step {}\n", found.folder, found.manifest.step);
  const bool bytes = config.vocabulary <= 256;
  const std::vector<Token> all = continued(config, weights, threads, tokens, flags.tokens, flags.taste);
  if (bpe) {
    const std::string text = bpe->decode(all);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  for (const Token token : bpe ? std::vector<Token>() : all) {
    if (bytes) std::putchar(token);
    else fmt::print("{} ", token);      // no tokenizer was given: numbers
  }
  std::putchar('\n');
  return 0;
}

}  // namespace

std::function<int()> add_sample(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.add_option("from", flags->from, "a run's folder (its newest valid checkpoint), or a checkpoint's")->required();
  app.add_option("--tokenizer", flags->tokenizer, "as for the run; its own unless given");
  app.add_option("--prompt", flags->prompt, "text to go on from");
  app.add_option("--tokens", flags->tokens)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  app.add_option("--temperature", flags->taste.temperature, "0: always the likeliest")->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--top", flags->taste.top, "of so many likeliest tokens only; 0: all")->capture_default_str();
  app.add_option("--seed", flags->taste.seed)->capture_default_str();
  return [flags] { return sample(*flags); };
}

}  // namespace tutti::trainer
