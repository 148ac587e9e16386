// The `tutti` command: one subcommand a verb, one file pair a subcommand. It parses nothing and decides nothing itself.
#include <CLI/CLI.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>
#include "tools/doctor.h"
#include "tools/env.h"
#include "tools/explain.h"
#include "tools/explain_error.h"
#include "tools/refusal.h"
#include "tools/report.h"
#include "tools/run.h"
#include "tools/top.h"
#include "tools/topo.h"
#include "tools/version.h"

namespace {

std::set<std::string> names(const CLI::App& app) {
  std::set<std::string> out;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) out.insert(verb->get_name());
  return out;
}

// That whose flags were being read; "" before one was.
std::string verb_of(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? "" : parsed[0]->get_name();
}

int no_such_verb(const CLI::App& app, const std::string& verb) {
  std::string known;
  for (const std::string& name : names(app)) known += (known.empty() ? "" : ", ") + name;
  return tutti::tools::refuse("", {tutti::Code::invalid_argument,
                                   "no command is called '" + verb + "'; there are " + known + " (tutti --help)"});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("tutti: collective communication for training on many machines", "tutti");
  app.require_subcommand(1);
  int status = 0;     // each verb's callback sets it
  std::vector<std::string> program;
  tutti::tools::add_run(app, program, status);
  tutti::tools::add_doctor(app, status);
  tutti::tools::add_env(app, status);
  tutti::tools::add_explain(app, status);
  tutti::tools::add_explain_error(app, status);
  tutti::tools::add_report(app, status);
  tutti::tools::add_top(app, status);
  tutti::tools::add_topo(app, status);
  tutti::tools::add_version(app, status);
  if (argc > 1 && argv[1][0] != '-' && !names(app).contains(argv[1])) return no_such_verb(app, argv[1]);
  const int end = tutti::tools::program_begin(app, argc, argv);
  const bool marked = end < argc && std::string_view(argv[end]) == "--";
  program.assign(argv + end + (marked ? 1 : 0), argv + argc);
  try {
    app.parse(end, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);      // help
    return tutti::tools::refuse(
        verb_of(app), {tutti::Code::invalid_argument, std::string(error.what()) + " (--help shows what there is)"});
  }
  return status;
}
