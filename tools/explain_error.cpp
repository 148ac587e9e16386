// See explain_error.h.
#include "tools/explain_error.h"
#include <cstdio>
#include <fmt/format.h>
#include "tools/refusal.h"

namespace tutti::tools {
namespace {

// Of one cell: a bar would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string table(Speaker speaker) {
  std::string text = "| Code | What | Cause | How to make sure | What to do |\n|---|---|---|---|---|\n";
  for (const ErrorRow& row : error_rows()) {
    if (row.speaker != speaker) continue;
    text += fmt::format("| {} | {} | {} | {} | {} |\n", row.code, cell(row.name), cell(row.cause), cell(row.check),
                        cell(row.cure));
  }
  return text;
}

int explain(const std::string& what) {
  const ErrorRow* const row = find_error(what);
  if (!row) {
    return refuse("explain-error",
                  {Code::invalid_argument,
                   fmt::format("neither a code nor words of a message that is known: '{}' (tutti explain-error "
                               "--markdown prints all)",
                               what)});
  }
  fmt::print("{}", explanation_of(*row));
  return 0;
}

}  // namespace

std::string explanation_of(const ErrorRow& row) {
  return fmt::format("{}: {}\n\n  cause  {}\n  check  {}\n  cure   {}\n", row.code, row.name, row.cause, row.check,
                     row.cure);
}

std::string errors_markdown() {
  return "# Error codes\n\n"
         "Every failure and every warning that the library, the tools and the trainer tell of carries a code in "
         "brackets, such as `[TUTTI-E401]`; it never comes to mean anything else. "
         "`tutti explain-error TUTTI-E401` prints its row, `tutti explain-error 'words of a message'` finds it by "
         "words. This page is written by "
         "`tutti explain-error --markdown` from the table in core/error_table.cpp.\n\n"
         "## The library and the trainer\n\n" +
         table(Speaker::library) + "\n## Warnings\n\nLines of the log (TUTTI_LOG), by which nothing has failed.\n\n" +
         table(Speaker::warning) + "\n## Processes that `tutti run` has started\n\n" + table(Speaker::launcher) +
         "\n## What NCCL, PyTorch, Gloo and MPI say\n\nTheir own messages, as people look for them, and what they "
         "usually mean.\n\n" +
         table(Speaker::other);
}

void add_explain_error(CLI::App& app, int& status) {
  CLI::App* verb =
      app.add_subcommand("explain-error", "what an error code, or a message, means, how to make sure, what to do");
  auto what = std::make_shared<std::string>();
  auto markdown = std::make_shared<bool>(false);
  verb->add_option("CODE", *what, "TUTTI-E401, E401, or words of a message");
  verb->add_flag("--markdown", *markdown, "the whole table, as in docs/errors.md");
  verb->callback([=, &status] {
    if (*markdown) fmt::print("{}", errors_markdown());
    else status = explain(*what);
  });
}

}  // namespace tutti::tools
