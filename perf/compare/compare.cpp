// compare: tutti and its peers on the same machine, the same sizes and ranks, in turn, round by round. Prints tables of
// medians and median ratios, and writes a CSV and a picture a field. With --torch: tutti and Gloo under one PyTorch,
// and a training step. Exit status 0; 1: a program failed; 2: usage.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <set>
#include <sstream>

#include "perf/compare/lineup.h"
#include "perf/driver/plot.h"
#include "perf/driver/record.h"

namespace tutti::perf::compare {
namespace {

struct Options {
  std::vector<std::string> transports{"shm", "tcp"},
      collectives{"all_reduce", "reduce_scatter", "all_gather", "broadcast"}, without;
  std::vector<int> ranks{2, 4, 8};
  std::vector<std::size_t> bytes{8, 64, 512, 4096, 32768, 262144, 1048576, 2097152, 8388608, 33554432, 67108864};
  int rounds = 5;
  double budget = 0.1;
  std::string out = ".";
  bool torch = false;
};

// Seconds until a program that hangs is ended.
constexpr int kPatience = 300;

// Its output, line by line. False: it failed.
bool run(const std::string& command, const std::string& asked, const std::function<void(const char*)>& each_line) {
  const std::string line = fmt::format("{} {}", command, asked);
  FILE* pipe = popen(fmt::format("timeout -k 5 {} bash -c '{}'", kPatience, [&] {
                       std::string quoted;
                       for (const char c : line) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
                       return quoted;
                     }()).c_str(), "r");
  if (!pipe) return false;
  for (char text[256]; std::fgets(text, sizeof text, pipe);) each_line(text);
  return pclose(pipe) == 0;
}

// Microseconds by bytes. Empty: it failed.
std::map<std::size_t, double> run(const Entrant& entrant, const std::string& asked) {
  std::map<std::size_t, double> times;
  std::size_t bytes = 0;
  double us = 0;
  const bool good = run(entrant.command, asked, [&](const char* line) {
    if (std::sscanf(line, "%zu %lf", &bytes, &us) == 2) times[bytes] = us;
  });
  if (!good) times.clear();
  return times;
}

// False: somebody failed. Who fails once is out of the field.
bool play(const Options& options, const Field& field, const std::string& folder, Times& times) {
  std::vector<Entrant> entrants = lineup(folder, field);
  std::erase_if(entrants, [&](const Entrant& e) {
    return std::count(options.without.begin(), options.without.end(), e.name) > 0;
  });
  const std::string asked = fmt::format("{} {} {}", field.collective, fmt::join(options.bytes, ","), options.budget);
  std::set<std::string> failed;
  for (int round = 0; round < options.rounds; ++round)
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      const Entrant& entrant = entrants[(i + std::size_t(round)) % entrants.size()];
      if (failed.count(entrant.name)) continue;
      fmt::print(stderr, "\r\x1b[K{} {} ranks {}: round {} of {}, {}", field.transport, field.ranks, field.collective,
                 round + 1, options.rounds, entrant.name);
      const auto result = run(entrant, asked);
      if (result.empty()) {
        fmt::print(stderr, "\r\x1b[K{} failed: {} {}\n", entrant.name, entrant.command, asked);
        failed.insert(entrant.name);
        times.erase(entrant.name);
        continue;
      }
      for (const auto& [bytes, us] : result) times[entrant.name][bytes].push_back(us);
    }
  fmt::print(stderr, "\r\x1b[K");
  return failed.empty();
}

// tutti and Gloo under one PyTorch, in turn within one run. False: it failed.
bool play_torch(const Options& options, const Field& field, const std::string& folder, Times& times) {
  const std::string command = torch_command(folder, field.ranks, "with_torch.py");
  char name[16];
  std::size_t bytes = 0;
  double us = 0;
  const auto asked =
      fmt::format("{} {} {} {}", field.collective, fmt::join(options.bytes, ","), options.budget, options.rounds);
  const bool good = run(command, asked, [&](const char* line) {
    if (std::sscanf(line, "%15s %zu %lf", name, &bytes, &us) == 3) times[name][bytes].push_back(us);
  });
  if (!good) fmt::print(stderr, "failed: {} {}\n", command, asked);
  return good;
}

void draw(const Options& options, const Field& field, const std::vector<Point>& points,
          const std::vector<std::string>& columns) {
  std::vector<Series> lines;
  for (const std::string& name : columns) {
    Series series{name, {}};
    for (const Point& p : points)
      if (const auto at = p.median.find(name); at != p.median.end())
        series.points.emplace_back(double(p.bytes), bus_bandwidth(field, p.bytes, at->second));
    if (!series.points.empty()) lines.push_back(std::move(series));
  }
  const std::string file = fmt::format("{}/{}-{}-{}.svg", options.out, field.transport, field.ranks, field.collective);
  if (const Status status = write_file(
          file, to_svg(lines, fmt::format("{}, {} ranks, {}", field.collective, field.ranks, field.transport)));
      !status.ok())
    fmt::print(stderr, "{}\n", status.to_string());
}

std::string own_folder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }

int run_all(const Options& options) {
  const std::string folder = own_folder();
  using Names = std::vector<std::string>;
  const Names peers = options.torch ? Names{"gloo"} : Names{"openmpi", "mpich", "gloo"};
  const Names columns =
      options.torch ? Names{kOurs, "allocated", "gloo"} : Names{kOurs, kChecked, "openmpi", "mpich", "gloo", kLimit};
  bool good = true;
  std::string csv = csv_head(columns);
  for (const std::string& transport : options.transports) {
    std::vector<Point> all;
    for (const int ranks : options.ranks)
      for (const std::string& collective : options.collectives) {
        const Field field{transport, collective, ranks};
        Times times;
        good &= options.torch ? play_torch(options, field, folder, times) : play(options, field, folder, times);
        const auto points = judge(times, kOurs, peers);
        Names shown = columns;
        std::erase_if(shown, [&](const std::string& name) { return !times.contains(name); });
        fmt::print("{}", to_table(field, points, shown));
        std::fflush(stdout);
        csv += to_csv(field, points, columns);
        draw(options, field, points, columns);
        all.insert(all.end(), points.begin(), points.end());
        if (const Status status = write_file(options.out + "/compare.csv", csv); !status.ok())
          return fmt::print(stderr, "{}\n", status.to_string()), 1;
      }
    const auto behind = std::count_if(all.begin(), all.end(), [](const Point& p) { return p.ratio > 0 && p.most < 1; });
    fmt::print(
        "\n# {}: geometric mean of x over {} points {:.2f}; behind the best peer in all but the outermost rounds at "
        "{}\n",
        transport, all.size(), geometric_mean(all), behind);
  }
  return good ? 0 : 1;
}

// What --torch means for what was not asked for otherwise.
void turn_to_torch(Options& options, const CLI::App& app) {
  options.transports = {"torch"};      // each backend by what it chooses
  if (app.count("--rounds") == 0) options.rounds = 15;
  if (app.count("--budget") == 0) options.budget = 0.5;
  if (app.count("--ranks") == 0) options.ranks = {2, 4};
  if (app.count("--collectives") == 0) options.collectives = {"all_reduce"};
  if (app.count("--bytes") == 0)
    options.bytes = {64, 512, 4096, 32768, 65536, 262144, 1048576, 4194304, 16777216, 67108864};
}

// The step of torch_step.py, which prints a table itself.
int run_steps(const Options& options) {
  constexpr int kRanks = 2, kSteps = 1;
  std::fflush(stdout);
  const int status =
      std::system(fmt::format("timeout -k 5 1800 {} {} {}", torch_command(own_folder(), kRanks, "torch_step.py"),
                              options.rounds, kSteps)
                      .c_str());
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::perf::compare

int main(int argc, char** argv) {
  using namespace tutti::perf::compare;
  Options options;
  CLI::App app{"tutti and its peers in turn on this machine."};
  app.add_option("--transports", options.transports, "shm, tcp, link (two hosts of this machine, 1 Gbit/s between them: wants root)")
      ->delimiter(',')
      ->check(CLI::IsMember({"shm", "tcp", "link"}));
  app.add_option("--ranks", options.ranks, "numbers of ranks")->delimiter(',')->check(CLI::Range(2, 256));
  app.add_option("--collectives", options.collectives, "all_reduce, reduce_scatter, all_gather, broadcast")
      ->delimiter(',')->check(CLI::IsMember({"all_reduce", "reduce_scatter", "all_gather", "broadcast"}));
  app.add_option("--bytes", options.bytes, "sizes in bytes")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t(4), std::size_t(1) << 30));
  app.add_option("--rounds", options.rounds, "each contender runs in each")->check(CLI::Range(1, 1000));
  app.add_option("--budget", options.budget, "seconds a size and contender in a round, about")
      ->check(CLI::Range(0.001, 60.0));
  app.add_option("--without", options.without, "contenders to leave out: tutti+crc, openmpi, mpich, gloo, limit")->delimiter(',');
  app.add_flag("--torch", options.torch,
               "tutti against Gloo in torch.distributed: all_reduce among 2 and 4 ranks, and a step of DDP; wants the "
               "target torch_tutti");
  app.add_option("--out", options.out, "folder for compare.csv and the pictures")->check(CLI::ExistingDirectory);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);      // help
    return fmt::print(stderr, "compare: {}\n", tutti::Status(tutti::Code::invalid_argument, error.what()).to_string()),
           2;
  }
  if (options.torch) turn_to_torch(options, app);
  const int status = run_all(options);
  return options.torch && status == 0 ? run_steps(options) : status;
}
