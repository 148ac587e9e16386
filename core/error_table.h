#pragma once
// The table of everything that goes wrong by a stable code: what it means, how to make sure, what to do. docs/errors.md
// is written from it (`tutti explain-error --markdown`), `tutti explain-error` reads it, and Status::to_string(), log
// lines from warnings on and the launcher append a code from it to what they say. A message belongs to the first row of
// its kind whose phrase it holds; the last row of each kind holds all.
#include <tutti/status.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// library: by its Status, whoever shows it; warning: by a line of the log; launcher:
// of a process; other: NCCL, Gloo, MPI, PyTorch.
enum class Speaker { library, warning, launcher, other };

struct ErrorRow {
  std::string_view code;               // "TUTTI-E401"; never given to anything else
  std::string_view name;               // in a few words
  Speaker speaker;
  Code kind;                           // of the Status; of other rows internal, which says nothing
  std::string_view phrase;             // what such a message holds, one of several with | between; "": any
  std::string_view cause, check, cure;
};

std::span<const ErrorRow> error_rows();
// Of a Status that is not ok.
const ErrorRow& error_row(Code kind, std::string_view text);
// Of a line of the log.
const ErrorRow& warning_row(std::string_view line);
// Of a line that the launcher says of a process.
const ErrorRow& launcher_row(std::string_view line);
// By code, in any case and without "TUTTI-" too; else the first row whose phrase
// the text holds, from others' rows on. Null: none.
const ErrorRow* find_error(std::string_view code_or_text);

// "text [TUTTI-E901]"; of several lines at the end of the first. A text that
// carries a code keeps it: it is that of the cause.
std::string with_code(std::string text, const ErrorRow& row);
std::string with_code(const Status& status);      // its text; not of ok

}  // namespace tutti
