// `tutti env`, see env.h.
#include "tools/env.h"
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <memory>

#include "core/nccl_names.h"
#include "tools/refusal.h"

namespace tutti::tools {
namespace {

constexpr const char* kPageHead = R"(# Environment variables

This page is written by `tutti env --markdown`; a test compares it with the library's own table. `tutti env` prints the same with what is
set where you run it.

A value that cannot be understood is an error that names the variable, the value and what was wanted; a `TUTTI_*` name that is not in this
table gets a warning with the nearest one that is. An empty value counts as unset. Where a default is blank there is none: the meaning says
what holds then. Variables marked with * must have the same value on all ranks: ranks that disagree are told so at start, with both values.

| Name | Value | Default | Meaning |
|---|---|---|---|
)";

constexpr const char* kPageTail = R"(
| Value | Written as |
|---|---|
| number | a whole number |
| size | bytes, with K, M, G or T behind it for powers of 1024: `64K` |
| duration | seconds, or with us, ms, s, m or h behind it: `500ms` |
| switch | `0`, `1`, `off`, `on` |
| rules | `[collective:]algorithm[:range]`, separated by commas: `all_reduce:direct:-32K,tree:32K-1M,ring:1M-`; `^bruck`: never that one |

)";

constexpr const char* kPageNccl = R"(
Names of NCCL's that people have in their scripts are understood, with one line that says what each became; a `TUTTI_*` name that is set wins.

| NCCL's name | Becomes | From |
|---|---|---|
)";

constexpr const char* kPageEnd = R"(
The names of launchers (torchrun, Slurm, Open MPI, MPICH, PMI, PMIx) are read when `TUTTI_RANK` is not set; [launching.md](launching.md)
tells which.
)";

// A cell of a table: a bar would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}
std::string code(std::string_view text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

}  // namespace

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
  std::string text =
      fmt::format("{:{}}  {:{}}  {:{}}  meaning\n", "name", name_width, "default", default_width, "now", value_width);
  for (std::size_t i = 0; i < table.size(); ++i) {
    text += fmt::format("{:{}}  {:{}}  {:{}}  {}{}\n", table[i].name, name_width, table[i].default_text, default_width,
                        values[i], value_width, table[i].meaning, table[i].shared ? " (same on all ranks)" : "");
  }
  return text;
}

std::string env_page(std::span<const Variable> table) {
  std::string text = kPageHead;
  for (const Variable& variable : table) {
    const bool choice = variable.kind.find('|') != std::string_view::npos;      // the words themselves
    text += fmt::format("| `{}`{} | {} | {} | {} |\n", variable.name, variable.shared ? " \\*" : "",
                        choice ? code(variable.kind) : cell(variable.kind), code(variable.default_text),
                        cell(variable.meaning));
  }
  text += kPageTail;
  text += kPageNccl;
  for (const NcclName& known : nccl_names())
    text += fmt::format("| `{}` | {} | {} |\n", known.name, known.becomes.empty() ? "nothing" : code(known.becomes),
                        cell(known.meaning));
  return text + kPageEnd;
}

void add_env(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand("env", "print every environment variable, its default and its value now");
  auto markdown = std::make_shared<bool>(false);
  verb->add_flag("--markdown", *markdown, "print the page docs/environment.md instead");
  verb->callback([&status, markdown] {
    if (*markdown) {
      std::fputs(env_page(variables()).c_str(), stdout);
      return;
    }
    std::fputs(env_table(variables(), environment).c_str(), stdout);
    const auto settings = read_settings();
    if (settings.ok()) return;
    status = refuse("env", settings.status(), kFailure);
  });
}

}  // namespace tutti::tools
