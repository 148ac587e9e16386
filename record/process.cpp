#include "record/process.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tutti::record {

ProcessState process_state(int pid) {
  ProcessState state;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (pid <= 0 || !std::getline(file, text)) return state;
  const auto name_end = text.rfind(')');            // the name may hold anything
  if (name_end == std::string::npos) return state;
  std::istringstream rest(text.substr(name_end + 1));
  std::string letter, skipped;
  rest >> letter;
  for (int field = 4; field < 22; ++field) rest >> skipped;
  rest >> state.start;
  state.there = letter != "Z" && letter != "X" && letter != "";
  state.stopped = letter == "T" || letter == "t";
  return state;
}

}  // namespace tutti::record
