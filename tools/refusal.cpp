// See refusal.h.
#include "tools/refusal.h"
#include <cstdio>
#include <fmt/format.h>
#include "core/error_table.h"
#include "tools/text_block.h"

namespace tutti::tools {

int refuse(std::string_view verb, const Status& status, int exit_status) {
  fmt::print(stderr, "tutti{}{}: {}\n", verb.empty() ? "" : " ", verb, printable(with_code(status)));
  return exit_status;
}

}  // namespace tutti::tools
