#include "perf/driver/table.h"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

std::string figures_text(const std::optional<Figures>& figures, const Options& o) {
  if (!figures) {
    std::string text = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
    if (o.per_iteration) text += std::string(6 * 9, ' ');
    return text;
  }
  const Figures& f = *figures;
  std::string text =
      fmt::format("  {}  {}  {}  {:>6}", fitted(o.cpu_time ? f.cpu_us : f.time_us, 7), fitted(f.algbw, 6),
                  fitted(f.busbw, 6), f.wrong ? fmt::format("{:g}", *f.wrong) : "N/A");
  if (o.per_iteration)
    for (double value : {f.min_us, f.max_us, f.p50_us, f.p95_us, f.p99_us, 100 * f.spread})
      text += "  " + fitted(value, 7);
  return text;
}

std::string figure_names(const Options& o, const char* time, const char* bandwidth, bool units) {
  std::string text = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, units ? bandwidth : "algbw",
                                 units ? bandwidth : "busbw", units ? "" : "#wrong");
  if (!o.per_iteration) return text;
  for (const char* name : {"i_min", "i_max", "i_p50", "i_p95", "i_p99", "i_cv%"})
    text += fmt::format("  {:>7}", !units ? name : name == std::string("i_cv%") ? "" : "(us)");
  return text;
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text + '\n';
}

}  // namespace

std::string fitted(double value, int width) {
  for (int decimals = 2;; --decimals) {
    const std::string text = fmt::format("{:{}.{}f}", value, width, decimals);
    if (int(text.size()) <= width || decimals == 0) return text;
  }
}

std::string heading_text(const Heading& heading, const Options& o) {
  const std::string step =
      o.step_factor ? fmt::format("{}(factor)", o.step_factor) : fmt::format("{}(bytes)", o.step_bytes);
  std::string text = fmt::format(
      "# tutti version {}\n# Collective test starting: {}\n"
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {}{} agg iters: {} validation: "
      "{} graph: 0 "
      "unalign: {}\n#\n",
      heading.version, heading.program, o.threads, o.processes, o.min_bytes, o.max_bytes, step, o.warmup, o.iterations,
      o.iterations_said ? "" : "+", o.aggregate, o.checks, o.unalign);
  if (!heading.note.empty()) text += fmt::format("# {}\n#\n", heading.note);
  text += "# Using devices\n";
  for (const RankPlace& r : heading.ranks)
    text += fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [{}] memory\n", r.rank, r.group,
                        r.process, r.host, r.local_rank, o.memory == Memory::cuda ? "cuda" : "host");
  return text + "#\n";
}

std::string columns_text(const Options& o) {
  const std::size_t width = figure_names(o, "", "", false).size();
  const auto line = [](const char* a, const char* b, const char* c, const char* d, const char* e) {
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", a, b, c, d, e);
  };
  const std::string empty = line("", "", "", "", ""), place(width, ' ');
  const auto centred = [&](const char* name) { return fmt::format("{:^{}}", name, width); };
  const std::string stamp = o.timestamps ? fmt::format("  {:>19}", "timestamp") : "", blank(stamp.size(), ' ');
  const char* const time = o.cpu_time ? "cputime" : "time";
  return trimmed(empty + centred("out-of-place") + centred("in-place")) +
         trimmed(line("size", "count", "type", "redop", "root") + figure_names(o, time, "", false) +
                 figure_names(o, time, "", false) + stamp + fmt::format("  {:>16}  {:>9}", "algorithm", "transport")) +
         trimmed(line("(B)", "(elements)", "", "", "") + figure_names(o, "(us)", "(GB/s)", true) +
                 figure_names(o, "(us)", "(GB/s)", true));
}

std::string row_text(const Row& row, const Options& o) {
  std::string text =
      fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count, row.type, row.op, row.root);
  text += figures_text(row.out_of_place, o) + figures_text(row.in_place, o);
  if (o.timestamps) text += fmt::format("  {:>19}", row.timestamp);
  return text + fmt::format("  {:>16}  {:>9}\n", row.algorithm, row.transport);
}

std::string closing_text(const Run& run, const Options& o, std::optional<bool> enough) {
  std::optional<double> ratio;
  for (const Row& row : run.rows)
    for (const auto& f : {std::optional(row.out_of_place), row.in_place})
      if (f && f->error_over_bound) ratio = std::max(ratio.value_or(0), *f->error_over_bound);
  std::string text =
      fmt::format("# Out of bounds values : {:.0f} {}\n", run.out_of_bounds, run.out_of_bounds > 0 ? "FAILED" : "OK");
  if (ratio) text += fmt::format("# Max error / bound    : {:.3f} {}\n", *ratio, *ratio > 1 ? "FAILED" : "OK");
  if (o.memory_report)
    text += fmt::format("# Memory usage         : Buffers {:.0f} | Library {:.0f} | Total {:.0f} bytes on all ranks\n",
                        run.buffer_bytes, run.library_bytes, run.buffer_bytes + run.library_bytes);
  text += fmt::format("# Avg bus bandwidth    : {:g} {}", run.average_busbw(),
                      !enough   ? ""
                      : *enough ? "OK"
                                : "FAILED");
  return trimmed(text) + fmt::format("#\n# Collective test concluded: {}\n#\n", run.program);
}

}  // namespace tutti::perf
