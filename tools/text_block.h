#pragma once
// Texts for a terminal: columns instead of bytes, wrapping, and nothing that would steer the terminal. It knows no
// topology.
#include <cstddef>
#include <string>

namespace tutti::tools {

inline constexpr std::size_t kTextColumns = 80;
inline constexpr char kNoBreak[] = "\u00a0";

// Names come from files that anybody may have written: control characters and broken UTF-8 become '?'.
std::string printable(const std::string& text);

// Of printable UTF-8, a code point a column.
std::size_t columns(const std::string& text);

// The first `limit` columns, the last of them "…" where something was cut.
std::string shortened(const std::string& text, std::size_t limit);

// Lines of at most `width` columns, each ended: `first` before the first, `rest` before the others. Breaks at blanks,
// and within words that fit on no line; kNoBreak is a blank where it does not break.
std::string wrapped(const std::string& text, const std::string& first, const std::string& rest,
                    std::size_t width = kTextColumns);

}  // namespace tutti::tools
