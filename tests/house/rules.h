#pragma once
// The rules of the house, each a function from a file to what is wrong with it. They read text, not C++: a lexer for
// comments and literals, and braces. What they cannot see they do not guess.
#include <string>
#include <string_view>
#include <vector>

namespace tutti::house {

// `path` is relative to the tree's root, with slashes.
struct File {
  std::string path;
  std::string text;
};
using Findings = std::vector<std::string>;      // each "path:line: what is wrong, and what was wanted"

inline constexpr int kLongestFunction = 70;     // lines, from the signature to the closing brace
inline constexpr int kLongestFile = 600;        // lines

// The text with comments, literals' contents and preprocessor lines as blanks; line breaks stay where they are.
std::string code_only(std::string_view text);

Findings broken_arrows(const File& file);       // #include "..." against the table of rooms
Findings foreign_guests(const File& file);      // foreign libraries outside their rooms
Findings environment_reads(const File& file);   // getenv outside core/config.cpp
Findings long_functions(const File& file);
Findings long_file(const File& file);
Findings no_opening_comment(const File& file);
Findings machine_paths(const File& file);

}  // namespace tutti::house
