#pragma once
// Ran: a program of build/bin run to its end by the shell, for tests that only look at what it printed.
#include <array>
#include <cstdio>
#include <string>
#include <sys/wait.h>

namespace tutti::tools {

struct Ran {
  int status = -1;
  std::string out;      // standard error too
};

inline Ran run_program(const std::string& program, const std::string& arguments) {
  const std::string command = std::string(TUTTI_BINARY_DIR) + "/bin/" + program + " " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  Ran ran;
  std::array<char, 4096> part;
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) ran.out.append(part.data(), got);
  ran.status = WEXITSTATUS(::pclose(pipe));
  return ran;
}

inline Ran run_tutti(const std::string& arguments) { return run_program("tutti", arguments); }

}  // namespace tutti::tools
