#pragma once
// `train sample`: text from a checkpoint.
#include <CLI/CLI.hpp>
#include <functional>

namespace tutti::trainer {

std::function<int()> add_sample(CLI::App& app);

}  // namespace tutti::trainer
