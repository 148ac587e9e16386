#include "trainer/plan_command.h"

#include <fmt/format.h>

#include <memory>

#include "trainer/cores.h"
#include "trainer/gemm.h"
#include "trainer/plan.h"
#include "trainer/run_log.h"
#include "trainer/train_command.h"

namespace tutti::trainer {

std::function<int()> add_plan(CLI::App& app) {
  struct Flags {
    ModelFlags model;
    PlanInput input;
    std::string dtype = "f32", wire = "f32";
    double link_gbit = 1, gflops = 0, memory_gb = 0;
  };
  auto flags = std::make_shared<Flags>();
  flags->model.add(app);
  app.add_option("--ranks", flags->input.ranks)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  app.add_option("--batch", flags->input.batch, "samples of a micro-batch")->capture_default_str()->check(CLI::Range(1, 1 << 16));
  app.add_option("--micro-batches", flags->input.micro_batches, "of a step, over all ranks")->capture_default_str()->check(CLI::Range(1, 1 << 16));
  app.add_flag("--recompute", flags->input.recompute);
  app.add_option("--dtype", flags->dtype, "as for a run")->capture_default_str()->check(CLI::IsMember({"f32", "bf16", "f16"}));
  app.add_option("--wire", flags->wire, "as for a run")->capture_default_str()->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--link", flags->link_gbit, "Gbit/s of each rank")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--gflops", flags->gflops, "of each rank; measured on this machine's cores unless given")->check(CLI::PositiveNumber);
  app.add_option("--memory", flags->memory_gb, "GB of each rank; unlimited unless given")->check(CLI::PositiveNumber);
  return [flags] {
    PlanInput& input = flags->input;
    input.model = flags->model.resolve();
    input.precision = *precision_from(flags->dtype);
    input.narrow_wire = flags->wire == "bf16";
    input.link_bytes = flags->link_gbit * 1e9 / 8;
    input.memory_bytes = flags->memory_gb * 1e9;
    input.flops = flags->gflops * 1e9;
    if (input.flops == 0) {
      keep_blas_on_one_thread();
      Threads threads(usable_cores());
      HostBackend<float> backend(threads);
      input.flops = peak_flops(backend);
    }
    fmt::print("{}", plan_text(input));
    return 0;
  };
}

}  // namespace tutti::trainer
