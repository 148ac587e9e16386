#pragma once
// `train plan`: the table of plan.h for a model, a number of ranks and a link.
#include <CLI/CLI.hpp>
#include <functional>

namespace tutti::trainer {

std::function<int()> add_plan(CLI::App& app);

}  // namespace tutti::trainer
