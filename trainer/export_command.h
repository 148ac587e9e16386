#pragma once
// `train export`: a checkpoint's weights for other programs.
#include <CLI/CLI.hpp>
#include <functional>

namespace tutti::trainer {

std::function<int()> add_export(CLI::App& app);

}  // namespace tutti::trainer
