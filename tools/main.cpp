// The `tutti` command: one subcommand a verb, one file pair a subcommand. It parses nothing and decides nothing itself.
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>
#include "tools/doctor.h"
#include "tools/env.h"
#include "tools/explain.h"
#include "tools/report.h"
#include "tools/run.h"
#include "tools/top.h"
#include "tools/topo.h"
#include "tools/version.h"

int main(int argc, char** argv) {
  CLI::App app("tutti: collective communication for training on many machines", "tutti");
  app.require_subcommand(1);
  int status = 0;     // each verb's callback sets it
  std::vector<std::string> program;
  tutti::tools::add_run(app, program, status);
  tutti::tools::add_doctor(app, status);
  tutti::tools::add_env(app, status);
  tutti::tools::add_explain(app, status);
  tutti::tools::add_report(app, status);
  tutti::tools::add_top(app, status);
  tutti::tools::add_topo(app, status);
  tutti::tools::add_version(app, status);
  const int end = tutti::tools::program_begin(app, argc, argv);
  const bool marked = end < argc && std::string_view(argv[end]) == "--";
  program.assign(argv + end + (marked ? 1 : 0), argv + argc);
  try {
    app.parse(end, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return status;
}
