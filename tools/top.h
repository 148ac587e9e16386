#pragma once
// `tutti top`: a running job, live, from the flight recorders on this host: what each rank does, how fast, and how late
// it is. It asks the ranks nothing.
#include <CLI/CLI.hpp>
#include <string>

#include "record/story.h"

namespace tutti::tools {

void add_top(CLI::App& app, int& status);

// The table of one job. Rates are those between the two looks; `seconds` 0: there was one only, and none are known.
std::string top_text(const record::Story& before, const record::Story& now, double seconds);

}  // namespace tutti::tools
