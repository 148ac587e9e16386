#pragma once
// The page of `tutti report --html`: one file that needs nothing beside it: the report's text, and a timeline with a
// row for each rank that can be zoomed and moved. For light and dark screens.
#include <string>

#include "record/story.h"

namespace tutti::tools {

std::string report_html(const record::Story& story);

inline constexpr std::size_t kMostDrawnRanks = 128;

}  // namespace tutti::tools
