// `tutti env`, see env.h.
#include "tools/env.h"
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>

namespace tutti::tools {

std::string env_table(std::span<const Variable> table, const std::function<std::string(const char*)>& current) {
  std::size_t name_width = 4, default_width = 7, value_width = 3;
  std::vector<std::string> values;
  for (const Variable& variable : table) {
    std::string value = current(std::string(variable.name).c_str());
    if (!value.empty() && variable.name == "TUTTI_JOB_KEY") value = "(secret)";
    name_width = std::max(name_width, variable.name.size());
    default_width = std::max(default_width, variable.default_text.size());
    value_width = std::max(value_width, value.size());
    values.push_back(value.empty() ? "-" : value);
  }
  std::string text = fmt::format("{:{}}  {:{}}  {:{}}  meaning\n", "name", name_width, "default", default_width, "now", value_width);
  for (std::size_t i = 0; i < table.size(); ++i) {
    text += fmt::format("{:{}}  {:{}}  {:{}}  {}{}\n", table[i].name, name_width, table[i].default_text, default_width,
                        values[i], value_width, table[i].meaning, table[i].shared ? " (same on all ranks)" : "");
  }
  return text;
}

void add_env(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand("env", "print every environment variable, its default and its value now");
  verb->callback([&status] {
    std::fputs(env_table(variables(), environment).c_str(), stdout);
    const auto settings = read_settings();
    if (settings.ok()) return;
    fmt::print(stderr, "tutti env: {}\n", settings.status().to_string());
    status = 1;
  });
}

}  // namespace tutti::tools
