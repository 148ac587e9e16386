#pragma once
// `tutti explain COLLECTIVE BYTES`: every candidate, what it costs, what is chosen and why. On this machine, or on one
// that a file describes, for any number of ranks and hosts.
#include <CLI/CLI.hpp>
#include <string>

#include "comm/explanation.h"

namespace tutti::tools {

// The table for people; the object that --json prints.
std::string explanation_text(const comm::Explanation& explanation, const std::string& where);
std::string explanation_json(const comm::Explanation& explanation);

void add_explain(CLI::App& app, int& status);

}  // namespace tutti::tools
