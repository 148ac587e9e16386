// `tutti version`, see version.h.
#include "tools/version.h"
#include <fmt/format.h>
#include <tutti/version.h>

namespace tutti::tools {

void add_version(CLI::App& app, int&) {
  CLI::App* verb = app.add_subcommand("version", "print the version of the library and of its wire format");
  verb->callback(
      [] { fmt::print("tutti {} (wire {}, built with {})\n", TUTTI_VERSION_STRING, kWireVersion, __VERSION__); });
}

}  // namespace tutti::tools
