#include "perf/driver/origin.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

struct Names {
  const char *launcher, *rank, *count;
  bool together;  // one without the other is an error
};
// In the order in which the library looks for them.
constexpr std::array<Names, 6> kLaunchers{{{"tutti", "TUTTI_RANK", "TUTTI_RANK_COUNT", true},
                                           {"torchrun", "RANK", "WORLD_SIZE", true},
                                           {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},
                                           {"MPICH", "PMI_RANK", "PMI_SIZE", true},
                                           {"PMIx", "PMIX_RANK", "PMIX_SIZE", false},
                                           {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", false}}};
constexpr std::array<std::string_view, 9> kStarters{"mpirun", "mpiexec",       "orterun",         "prterun", "orted",
                                                    "prted",  "mpiexec.hydra", "hydra_pmi_proxy", "torchrun"};

Result<int> count_from(const Names& names, const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1)
    return Status(Code::invalid_argument,
                  fmt::format("{}={} of {} is not a number of ranks", names.count, text, names.launcher));
  return count;
}

}  // namespace

Environment environment_of(char** names_and_values) {
  Environment environment;
  for (char** entry = names_and_values; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Result<Origin> find_origin(const Environment& environment, const std::string& parent) {
  for (const Names& names : kLaunchers) {
    const auto rank = environment.find(names.rank), count = environment.find(names.count);
    const bool has_rank = rank != environment.end(), has_count = count != environment.end();
    if (!has_rank && !(has_count && names.together)) continue;
    const bool slurm = std::string_view(names.launcher) == "Slurm";
    if (slurm && (!has_count || count->second == "1")) continue;  // a shell inside of an allocation
    if (names.together && !(has_rank && has_count))
      return Status(
          Code::invalid_argument,
          fmt::format("{} is set but {} is not: started by {}? Set both, or unset it to start ranks with -g",
                      has_rank ? names.rank : names.count, has_rank ? names.count : names.rank, names.launcher));
    if (!has_count) return Origin{names.launcher, 0};
    const Result<int> ranks = count_from(names, count->second);
    if (!ranks.ok()) return ranks.status();
    return Origin{names.launcher, ranks.value()};
  }
  if (std::find(kStarters.begin(), kStarters.end(), parent) != kStarters.end())
    return Status(
        Code::invalid_argument,
        fmt::format("started by {}, but no variable tells the rank (OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK, RANK): "
                    "each process would measure a world of its own",
                    parent));
  return Origin{};
}

std::string parent_program() {
  std::ifstream file(fmt::format("/proc/{}/comm", getppid()));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace tutti::perf
