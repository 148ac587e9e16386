#pragma once
// `train tokenizer` learns a BPE from a text; `train tokenize` makes a token file of a text.
#include <CLI/CLI.hpp>
#include <functional>

namespace tutti::trainer {

std::function<int()> add_tokenizer(CLI::App& app);
std::function<int()> add_tokenize(CLI::App& app);

}  // namespace tutti::trainer
