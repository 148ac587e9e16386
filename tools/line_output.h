#pragma once
// Turns a process's byte stream into whole lines with a prefix on one of our descriptors.
// It does not read, and it owns no descriptor.
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace tutti::tools {

// What a process said last, from both of its streams.
class LastLines {
 public:
  static constexpr std::size_t kKept = 5;
  void add(std::string_view line);                       // blank lines are not kept
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
};

class LineOutput {
 public:
  // Longer lines are cut: memory a stream is bounded.
  static constexpr std::size_t kLongestLine = 64 * 1024;

  // `last` outlives this.
  LineOutput(int target, std::string prefix, LastLines& last)
      : target_(target), prefix_(std::move(prefix)), last_(last) {}

  // Writes the lines that are now whole, all with one write(2). A line ends with \n or, for progress bars, with \r.
  // False: nobody reads the target any more.
  bool feed(std::string_view bytes);
  // The stream has ended: what is left is a line too.
  bool finish();

 private:
  void take_line(std::size_t end, char terminator, std::string& out);
  int target_;
  std::string prefix_;
  LastLines& last_;
  std::string partial_;
  bool after_return_ = false;      // the line before ended with \r: a \n now only completes it
};

// All of it. False: the reader is gone. Other failures (a full disk) lose the text.
bool write_all(int descriptor, std::string_view text);

}  // namespace tutti::tools
