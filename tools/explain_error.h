#pragma once
// `tutti explain-error CODE`: what a code, or a message, means, how to make sure
// and what to do. The table is core/error_table.h.
#include <CLI/CLI.hpp>
#include <string>
#include "core/error_table.h"

namespace tutti::tools {

void add_explain_error(CLI::App& app, int& status);

std::string explanation_of(const ErrorRow& row);
std::string errors_markdown();      // docs/errors.md

}  // namespace tutti::tools
