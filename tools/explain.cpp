// `tutti explain`, see explain.h.
#include "tools/explain.h"

#include <chrono>
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "comm/goal.h"
#include "comm/machine_placement.h"
#include "comm/simulation.h"
#include "core/config.h"
#include "core/host.h"
#include "tools/refusal.h"
#include "tools/topo.h"

namespace tutti::tools {
namespace {

struct Asked {
  std::string collective, bytes, file, goal, algorithm;
  int ranks = 0, hosts = 1;
  bool json = false, simulate = false;
};

std::string size_text(std::uint64_t bytes) { return to_text(ByteCount(bytes)); }

std::string time_text(double us) {
  if (us < 1000) return fmt::format("{:.2f} us", us);
  return us < 1e6 ? fmt::format("{:.2f} ms", us / 1e3) : fmt::format("{:.2f} s", us / 1e6);
}

template <class T>
nlohmann::json or_null(const std::optional<T>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); }

constexpr int kMostRanks = 1 << 20;
constexpr int kSimulateAll =
    64;  // so many ranks or fewer: every candidate is simulated, else the chosen one and the ring

// A line on a terminal while one candidate is played among many ranks, and
// the end of it where that would take too long.
class Progress {
 public:
  Progress(const std::string& algorithm, int ranks)
      : algorithm_(algorithm), ranks_(ranks), shown_(ranks > kSimulateAll && isatty(STDERR_FILENO)) {
    show(0);
  }
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool go_on(int done, int of) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(200)) return true;
    last_ = now;
    show(100.0 * done / of);
    const double spent = std::chrono::duration<double>(now - start_).count();
    expected_ = spent * of / done;
    return spent < kLookSeconds || expected_ < kMostSeconds;
  }
  // How long it would have taken, for people.
  std::string expected() const {
    return expected_ < 5400 ? fmt::format("{:.0f} min", expected_ / 60) : fmt::format("{:.0f} h", expected_ / 3600);
  }

  static constexpr double kLookSeconds = 3, kMostSeconds = 300;

 private:
  void show(double percent) const {
    if (shown_) fmt::print(stderr, "\rsimulating {} among {} ranks: {:.0f} % ", algorithm_, ranks_, percent);
  }

  std::string algorithm_;
  int ranks_;
  bool shown_;
  double expected_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_ = start_;
};

// Plays candidates, says what came out, or why one was not played. `told` gets
// what people want to see of the chosen one.
void simulate(const algorithms::Request& request, const comm::Placement& placement, comm::Explanation& explanation,
              std::string& told) {
  for (std::size_t i = 0; i < explanation.candidates.size(); ++i) {
    auto& candidate = explanation.candidates[i];
    if (i > 0 && request.rank_count > kSimulateAll && candidate.algorithm != "ring") continue;
    const auto* generator = algorithms::find_generator(candidate.algorithm);
    Progress progress(candidate.algorithm, request.rank_count);
    comm::SimulationOptions options;
    options.go_on = [&progress](int done, int of) { return progress.go_on(done, of); };
    const auto result = comm::simulate(*generator, request, placement, {.bytes = explanation.bytes}, options);
    if (!result) {
      told += result.status().code() == Code::aborted
                  ? fmt::format(
                        "not simulated: {} among {} ranks would take about {}, more than {:.0f} min are not spent; try "
                        "fewer ranks\n",
                        candidate.algorithm, request.rank_count, progress.expected(), Progress::kMostSeconds / 60)
                  : fmt::format("not simulated: {}\n", result.status().text());
      continue;
    }
    candidate.simulated_us = result->seconds * 1e6;
    if (i > 0) continue;
    told = fmt::format(
        "simulated: {} in {} events{}; first rank done after {}\n", time_text(result->seconds * 1e6), result->events,
        result->exact() ? "" : fmt::format(", folded: {} of {} ranks stand for all", result->width, result->rank_count),
        time_text(result->earliest * 1e6));
    for (const auto& border : result->borders)
      if (border.messages)
        told += fmt::format("  over {:<10} {:>14.0f} bytes, busiest link {:.0f} % busy\n", border.name, border.bytes,
                            100 * border.utilisation);
  }
}

Status write_goal_file(const std::string& path, const std::string& algorithm, const algorithms::Request& request,
                       std::uint64_t bytes, double gamma) {
  const auto* generator = algorithms::find_generator(algorithm);
  if (!generator)
    return Status(Code::invalid_argument,
                  fmt::format("algorithm is '{}', wanted one of those that are listed", algorithm));
  std::ofstream file(path);
  const Status status = comm::write_goal(file, *generator, request, {.bytes = bytes}, gamma);
  if (status.ok() && !file.flush()) return Status(Code::out_of_resources, fmt::format("{}: cannot be written", path));
  return status;
}

Result<comm::Explanation> answer(const Asked& asked, std::string& where, std::string& told) {
  const auto collective = collective_from(asked.collective);
  if (!collective)
    return Status(
        Code::invalid_argument,
        fmt::format("collective is '{}', wanted one such as all_reduce, all_gather, broadcast", asked.collective));
  const auto bytes = parse_bytes(asked.bytes);
  if (!bytes) return Status(Code::invalid_argument, fmt::format("bytes: {}", bytes.status().text()));
  auto settings = read_settings();
  if (!settings) return settings.status();
  const std::string& file = asked.file.empty() ? settings->topology_file : asked.file;
  auto machine = read_topology(file);
  if (!machine) return machine.status();
  const int gpus = int(machine->all(topology::VertexKind::gpu).size());
  int ranks = asked.ranks;
  if (ranks == 0)
    ranks = asked.hosts * (gpus > 1       ? gpus
                           : file.empty() ? std::max(2, read_host_facts().cores)
                                          : std::max(2, int(machine->all(topology::VertexKind::core).size())));
  // What was measured is of this machine.
  const comm::Profile profile =
      file.empty() ? comm::read_profile(comm::profile_folder(), comm::key_of_this_machine(*settings)) : comm::Profile{};
  auto placed = comm::place_on(*machine, ranks, asked.hosts, *settings, profile.figures);
  if (!placed) return placed.status();
  if (const auto* trials = profile.find(asked.hosts == 1 ? comm::medium_within_hosts(*settings) : comm::Medium::network,
                                        ranks, comm::shape_of(placed->placement.levels)))
    placed->placement.prices.trials = *trials;
  where = fmt::format("{} rank{} on {} host{} ({}s of {})", ranks, ranks == 1 ? "" : "s", asked.hosts,
                      asked.hosts == 1 ? "" : "s", placed->device, file.empty() ? "this machine" : file);
  auto explanation =
      comm::explain(*collective, *bytes, ranks, placed->placement, *settings, asked.hosts == 1 && gpus > 1);
  if (!explanation) return explanation;
  const algorithms::Request request = comm::request_on(placed->placement, *collective, ranks, *settings);
  if (asked.simulate) simulate(request, placed->placement, *explanation, told);
  if (!asked.goal.empty()) {
    const std::string& which = asked.algorithm.empty() ? explanation->candidates[0].algorithm : asked.algorithm;
    if (Status status = write_goal_file(asked.goal, which, request, *bytes, placed->placement.prices.gamma);
        !status.ok())
      return status;
  }
  return explanation;
}

int run(const Asked& asked) {
  std::string where, told;
  const auto explanation = answer(asked, where, told);
  if (!explanation) return refuse("explain", explanation.status());
  std::fputs((asked.json ? explanation_json(*explanation) : explanation_text(*explanation, where) + told).c_str(),
             stdout);
  return 0;
}

std::string gpu_text(const comm::Explanation& e) {
  std::string text = "\non streams, where use_gpu() finds that all GPUs reach each other's memory (prices assumed):\n";
  for (std::size_t i = 0; i < e.gpu.size(); ++i)
    text +=
        fmt::format("{} {:<20} {:>12}\n", i == 0 ? '*' : ' ', name_of(e.gpu[i].way), time_text(e.gpu[i].seconds * 1e6));
  return text + fmt::format("chosen: {}: {}; the one-shot kernel up to {}\n", name_of(e.gpu[0].way), e.gpu[0].reason,
                            e.one_shot_up_to >> 40 ? "any size" : size_text(e.one_shot_up_to));
}

}  // namespace

std::string explanation_text(const comm::Explanation& e, const std::string& where) {
  std::string text = fmt::format("{} of {} among {}\n\n", name_of(e.collective), size_text(e.bytes), where);
  std::string hops;
  for (const auto& border : e.borders) hops += (hops.empty() ? "" : "+") + border;
  const std::string title = "hops over " + (hops.empty() ? "rank" : hops);
  text += fmt::format("  {:<20} {:>6} {:>12}  {:<{}}  {:>12}\n", "algorithm", "steps", "sent a rank", title,
                      title.size(), "predicted");
  for (std::size_t i = 0; i < e.candidates.size(); ++i) {
    const auto& c = e.candidates[i];
    std::string over;
    for (const int h : c.hops) over += fmt::format("{}{}", over.empty() ? "" : " + ", h);
    text += fmt::format("{} {:<20} {:>6} {:>12}  {:<{}}  {:>12}{}\n", i == 0 ? '*' : ' ', c.algorithm, c.steps,
                        c.bytes_on_wire, over, title.size(), time_text(c.predicted_us),
                        (c.measured_us ? fmt::format("  measured {}", time_text(*c.measured_us)) : "") +
                            (c.simulated_us ? fmt::format("  simulated {}", time_text(*c.simulated_us)) : ""));
  }
  std::string prices;
  for (std::size_t i = 0; i < e.borders.size(); ++i)
    prices += fmt::format("{}{} {}", i ? ", " : "", e.borders[i], e.measured[i] ? "measured" : "assumed");
  text +=
      fmt::format("\nprices: {}\nchosen: {}: {}\nlimiting link: {}\n", prices, e.candidates[0].algorithm, e.reason,
                  e.limiting_link == "rank" ? "between ranks of one group" : "between groups by " + e.limiting_link);
  if (e.lend_from) text += fmt::format("messages of {} and more between ranks of a host: the receiver's kernel copies them out of the sender's memory (CMA)\n", size_text(*e.lend_from));
  if (!e.gpu.empty()) text += gpu_text(e);
  if (!e.refused.empty()) text += "not candidates:\n";
  for (const auto& why : e.refused) text += "  " + why + "\n";
  return text;
}

std::string explanation_json(const comm::Explanation& e) {
  nlohmann::json out = {{"collective", std::string(name_of(e.collective))},
                        {"bytes", e.bytes},
                        {"ranks", e.ranks},
                        {"chosen", e.candidates[0].algorithm},
                        {"reason", e.reason},
                        {"limiting_link", e.limiting_link},
                        {"lend_from_bytes", or_null(e.lend_from)},
                        {"borders", e.borders},
                        {"measured", e.measured}};
  out["candidates"] = nlohmann::json::array();
  for (const auto& c : e.candidates)
    out["candidates"].push_back({{"algorithm", c.algorithm},
                                 {"steps", c.steps},
                                 {"bytes_on_wire", c.bytes_on_wire},
                                 {"hops", c.hops},
                                 {"slow_link_hops", c.slow_link_hops},
                                 {"predicted_us", c.predicted_us},
                                 {"measured_us", or_null(c.measured_us)},
                                 {"simulated_us", or_null(c.simulated_us)},
                                 {"limiting_link", c.limiting_border},
                                 {"canonical", c.canonical}});
  for (const auto& plan : e.gpu)
    out["on_streams"].push_back({{"way", name_of(plan.way)}, {"predicted_us", plan.seconds * 1e6}});
  if (!e.gpu.empty()) out["on_streams_reason"] = e.gpu[0].reason;
  out["refused"] = e.refused;
  return out.dump(2) + "\n";
}

void add_explain(CLI::App& app, int& status) {
  CLI::App* verb =
      app.add_subcommand("explain", "print every algorithm for a call, its predicted time, and what is chosen and why");
  auto asked = std::make_shared<Asked>();
  verb->add_option("collective", asked->collective, "all_reduce, all_gather, reduce_scatter, broadcast, ...")
      ->required();
  verb->add_option("bytes", asked->bytes, "of the whole vector, such as 4M")->required();
  verb->add_option("--ranks", asked->ranks, "default: a rank a GPU, or a core")->check(CLI::Range(1, kMostRanks));
  verb->add_option("--hosts", asked->hosts, "hosts like this one")->check(CLI::Range(1, kMostRanks));
  verb->add_option("--file", asked->file,
                   "a machine in any form that tutti topo reads; default: TUTTI_TOPOLOGY_FILE, else this machine");
  verb->add_flag("--simulate", asked->simulate,
                 "play the schedules event by event, with shared links; up to 64 ranks all of them, else the chosen "
                 "one and the ring");
  verb->add_option("--goal", asked->goal, "write the schedule as GOAL text (LogGOPSim) to this file");
  verb->add_option("--algorithm", asked->algorithm, "of --goal; default: the chosen one");
  verb->add_flag("--json", asked->json, "print one JSON object");
  verb->callback([asked, &status] { status = run(*asked); });
}

}  // namespace tutti::tools
