// The `tutti` command: one subcommand a verb, one file pair a subcommand. It parses nothing and decides nothing itself.
#include <CLI/CLI.hpp>
#include "tools/env.h"
#include "tools/run.h"
#include "tools/version.h"

int main(int argc, char** argv) {
  CLI::App app("tutti: collective communication for training on many machines", "tutti");
  app.require_subcommand(1);
  int status = 0;     // each verb's callback sets it
  tutti::tools::add_run(app, status);
  tutti::tools::add_env(app, status);
  tutti::tools::add_version(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return status;
}
