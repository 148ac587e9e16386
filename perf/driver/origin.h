#pragma once
// Origin: who started this process. A launcher's rank is joined; without a launcher the program starts its ranks
// itself; a launcher that left half of its names is an error, since every process would then measure a world of its
// own.
#include <map>
#include <string>

#include <tutti/status.h>

namespace tutti::perf {

using Environment = std::map<std::string, std::string>;
Environment environment_of(char** names_and_values);

struct Origin {
  std::string launcher;  // "Open MPI", "torchrun"; empty: none
  int rank_count = 0;    // as the launcher says; 0 where it does not
};

// `parent`: the name of the parent process's program. invalid_argument.
Result<Origin> find_origin(const Environment& environment, const std::string& parent);
std::string parent_program();

}  // namespace tutti::perf
