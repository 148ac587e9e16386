#pragma once
// The gallery of failures: one table of causes, each with what goes wrong, who is to blame and how long it may take;
// and what the ranks then say, in words that do not depend on where it runs.
#include <tutti/tutti.h>
#include <chrono>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace tutti::test {

inline constexpr int kEither = -2;

struct Cause {
  std::string name;                        // and of its file in tests/golden/failures
  std::string injected;                    // in words
  Code code = Code::ok;                    // of every status; ok: nobody is to notice
  int culprit = -1;                        // kEither: depends on who sees it first; the text names both
  std::chrono::seconds limit{5};           // from the start to the last status
  std::function<std::vector<Status>()> run;
  std::function<std::string()> lacks{};    // what this machine has not got for it; empty: nothing
};
std::ostream& operator<<(std::ostream& out, const Cause& cause);

const std::vector<Cause>& causes();
// Of hosts that lack something, or cannot reach each other: gallery_hosts.cpp.
std::vector<Cause> poor_hosts();

// Without what depends on the machine, the moment and the run: hosts, pids, addresses, seconds, numbers of operations.
std::string in_general(const Status& status);

}  // namespace tutti::test
