#include "trainer/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/failure.h"
#include "trainer/gemm.h"

namespace tutti::trainer {
namespace {

std::string short_number(double x) { return x < 10000 ? fmt::format("{:.0f}", x) : fmt::format("{:.1f}k", x / 1000); }

}  // namespace

std::string step_line(const StepResult& r, long steps, const StepWork& work) {
  const auto percent = [&](double part) { return 100 * part / r.seconds; };
  std::string line = fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  norm {:.3f}  {} tok/s  mfu {:.0f} %  compute {:.0f} %  exchange {:.0f} % of {:.0f} %  data {:.0f} %",
                                 r.step, steps, r.loss, r.rate, r.norm, short_number(work.tokens / r.seconds),
                                 percent(work.flops / work.peak_flops), percent(r.compute_seconds), percent(r.exposed_seconds),
                                 percent(r.exchange_seconds), percent(r.data_seconds));
  if (r.loss_scale > 1) line += fmt::format("  scale {:.0f}", r.loss_scale);
  if (r.skipped) line += r.overflowed ? "  skipped: a gradient overflowed f16" : "  skipped: not a number";
  return line;
}

RunLog::RunLog(const std::string& folder, int rank) {
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = fmt::format("{}/rank-{}.jsonl", folder, rank);
  file_ = std::fopen(path.c_str(), "a");
  if (!file_) refuse(fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
}

RunLog::~RunLog() {
  if (file_) std::fclose(file_);
}

void RunLog::add(const StepResult& r, const StepWork& work) {
  if (!file_) return;
  const nlohmann::json line = {{"step", r.step}, {"loss", r.loss}, {"rate", r.rate}, {"norm", r.norm}, {"skipped", r.skipped}, {"loss_scale", r.loss_scale},
                               {"seconds", r.seconds}, {"compute_seconds", r.compute_seconds}, {"exposed_seconds", r.exposed_seconds}, {"exchange_seconds", r.exchange_seconds},
                               {"data_seconds", r.data_seconds}, {"backward_seconds", r.backward_seconds}, {"tokens", work.tokens}, {"operations", r.operations}, {"bytes", r.bytes}};
  fmt::print(file_, "{}\n", line.dump());
  std::fflush(file_);
}

double peak_flops(Backend<float>& backend, Precision precision) {
  const std::size_t side = backend.large_product();
  const Array<float> a(backend, side * side);
  Array<float> c(backend, side * side);
  float last = 0;
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    backend.product(side, side, side, 1.0f, {a.data(), side}, {a.data(), side}, 0.0f, c.data(), side, precision);
    backend.download(&last, c.data() + side * side - 1, sizeof(last));      // waits for it
    best = std::max(best, 2.0 * double(side) * double(side) * double(side) / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace tutti::trainer
