#pragma once
// `tutti version`: what was built. It does not look at the machine.
#include <CLI/CLI.hpp>

namespace tutti::tools {

void add_version(CLI::App& app, int& status);

}  // namespace tutti::tools
