#pragma once
// `tutti report [DIR|FILE|PID...]`: reads the flight recorders of a job, of living and dead processes, and says how its
// operations went: who lagged, who never called, which link is slow. It changes nothing.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "record/story.h"

namespace tutti::tools {

void add_report(CLI::App& app, int& status);

// The stories of what lies in these places (folders, recorders' files, process ids); none named: the folders that the
// library uses. What could not be read is told in `complaints`.
std::vector<record::Story> read_stories(const std::vector<std::string>& places, std::vector<std::string>& complaints);

}  // namespace tutti::tools
