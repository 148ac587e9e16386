#pragma once
// `tutti env`: the table of environment variables, as the library knows them, with what is set now; `--markdown` makes
// docs/environment.md of it. It sets nothing.
#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>
#include "core/config.h"

namespace tutti::tools {

void add_env(CLI::App& app, int& status);

// One line a variable, a title above. `current` gives a variable's value, ""
// when unset. A secret's value is never shown.
std::string env_table(std::span<const Variable> table, const std::function<std::string(const char*)>& current);

// docs/environment.md, whole. Says nothing of what is set here.
std::string env_page(std::span<const Variable> table);

}  // namespace tutti::tools
