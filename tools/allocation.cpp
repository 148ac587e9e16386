// See allocation.h.
#include "tools/allocation.h"
#include <charconv>
#include <fmt/format.h>
#include "comm/host_list.h"

namespace tutti::tools {
namespace {

constexpr unsigned kFirstPort = 20000, kPorts = 10000;      // below the kernel's own
constexpr unsigned kFirstSpecialStep = 0xfffffff0;          // a batch script is a step too, and no srun

std::optional<unsigned> number(const std::string& text) {
  unsigned n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return n;
}

}  // namespace

Result<std::optional<Allocation>> read_allocation(const ReadVariable& read) {
  const auto text = [&](const char* name) {
    const char* value = read(name);
    return std::string(value ? value : "");
  };
  const auto step = number(text("SLURM_STEP_ID")), job = number(text("SLURM_JOB_ID")),
             host = number(text("SLURM_NODEID"));
  const std::string list = text("SLURM_STEP_NODELIST"), tasks = text("SLURM_STEP_TASKS_PER_NODE");
  if (!step || *step >= kFirstSpecialStep || !host || list.empty() || text("SLURM_PROCID").empty())
    return std::optional<Allocation>();
  const auto hosts = comm::expand_host_list(list);
  if (!hosts)
    return Status(Code::invalid_argument, fmt::format("SLURM_STEP_NODELIST={}: {}", list, hosts.status().text()));
  const auto counts = comm::expand_counts(tasks.empty() ? "1" : tasks);
  if (!counts)
    return Status(Code::invalid_argument,
                  fmt::format("SLURM_STEP_TASKS_PER_NODE={}: {}", tasks, counts.status().text()));
  for (const int count : *counts) {
    if (count == 1) continue;
    return Status(
        Code::invalid_argument,
        fmt::format("srun starts {} `tutti run` on a host (SLURM_STEP_TASKS_PER_NODE={}), each of which starts ranks: "
                    "give srun --ntasks-per-node=1, or leave tutti run out",
                    count, tasks));
  }
  if (hosts->size() < 2) return std::optional<Allocation>();
  if (*host >= hosts->size())
    return Status(Code::invalid_argument, fmt::format("SLURM_NODEID={}: the step has {} hosts", *host, hosts->size()));
  return std::optional(Allocation{*hosts, int(*host), int(kFirstPort + (job.value_or(0) * 7 + *step) % kPorts)});
}

}  // namespace tutti::tools
