#pragma once
// Refusal: the one way in which a verb of `tutti` says that it cannot do what was asked.
#include <string_view>
#include <tutti/status.h>

namespace tutti::tools {

inline constexpr int kFailure = 1, kWrongUse = 2;      // exit statuses

// "tutti VERB: the status's text [TUTTI-E...]" on standard error; gives `exit_status` back.
int refuse(std::string_view verb, const Status& status, int exit_status = kWrongUse);

}  // namespace tutti::tools
