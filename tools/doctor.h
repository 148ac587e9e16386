#pragma once
// `tutti doctor`: facts of this host, or of all hosts of a job, and what they come to. The parts are in doctor/; this
// is the verb: flags, who does what, and what is printed.
#include <CLI/CLI.hpp>

namespace tutti::tools {

// Exit status: 0 no failure (warnings may be), 1 a failure, 2 wrong flags.
void add_doctor(CLI::App& app, int& status);

}  // namespace tutti::tools
