#include "perf/compare/lineup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <thread>

namespace tutti::perf::compare {

std::string torch_command(const std::string& folder, int ranks, const std::string& script) {
  return fmt::format("env PYTHONPATH={0}/../python OMP_NUM_THREADS=1 {0}/tutti run --no-prefix -n {1} {2} {3}/{4}",
                     folder, ranks, TUTTI_COMPARE_PYTHON, TUTTI_COMPARE_FOLDER, script);
}

std::vector<Entrant> lineup(const std::string& folder, const Field& field) {
  const auto program = [&](const char* name) { return folder + "/" + name; };
  const auto built = [&](const char* name) { return access(program(name).c_str(), X_OK) == 0; };
  if (field.transport == "link") {      // link.sh's, which knows no more of them
    std::vector<Entrant> out;
    for (const char* name : {"tutti", "openmpi", "gloo"})
      if (built((std::string("compare_") + name).c_str()))
        out.push_back({name, fmt::format("{}/link.sh {} {} {}", TUTTI_COMPARE_FOLDER, folder, name, field.ranks)});
    return out;
  }
  const bool tcp = field.transport == "tcp";
  // Open MPI ties each rank to a core where there are enough.
  const std::string run = fmt::format("{} run --no-prefix --bind {} -n {}", program("tutti"), unsigned(field.ranks) <= std::thread::hardware_concurrency() ? "core" : "none",
                                      field.ranks);
  std::vector<Entrant> out;
  const std::string ours = fmt::format("TUTTI_TRANSPORT={} {} {}", field.transport, run, program("compare_tutti"));
  out.push_back({kOurs, fmt::format("env {}{}", tcp ? "TUTTI_CRC=0 " : "", ours)});
  if (tcp) out.push_back({kChecked, "env " + ours});
  if (built("compare_openmpi"))
    out.push_back({"openmpi", fmt::format("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                                          "mpirun.openmpi --oversubscribe -n {} --mca pml ob1 --mca btl self,{} {}",
                                          field.ranks, tcp ? "tcp --mca btl_tcp_if_include lo" : "vader",
                                          program("compare_openmpi"))});
  if (built("compare_mpich"))
    out.push_back({"mpich", fmt::format("{} mpirun.mpich -n {} {}",
                                        tcp ? "env UCX_TLS=tcp,self UCX_NET_DEVICES=lo MPIR_CVAR_NOLOCAL=1" : "",
                                        field.ranks, program("compare_mpich"))});
  if (built("compare_gloo"))
    out.push_back({"gloo", fmt::format("folder=$(mktemp -d); trap 'rm -r $folder' EXIT; env COMPARE_FOLDER=$folder "
                                       "COMPARE_ADDRESS=127.0.0.1 {} {}", run, program("compare_gloo"))});
  if (field.ranks == 2 && field.collective == "all_reduce")
    out.push_back({kLimit, fmt::format("{} {}", program("compare_limit"), field.transport)});
  return out;
}

}  // namespace tutti::perf::compare
