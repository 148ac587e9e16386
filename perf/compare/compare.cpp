// compare: tutti and its peers on the same machine, the same sizes and ranks, in turn, round by round. Prints tables of medians and
// median ratios, and writes a CSV and a picture a field. Exit status 0; 1: a program failed;
// 2: usage.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <sstream>

#include "perf/compare/lineup.h"
#include "perf/driver/plot.h"
#include "perf/driver/record.h"

namespace tutti::perf::compare {
namespace {

struct Options {
  std::vector<std::string> transports{"shm", "tcp"}, collectives{"all_reduce", "reduce_scatter", "all_gather", "broadcast"}, without;
  std::vector<int> ranks{2, 4, 8};
  std::vector<std::size_t> bytes{8, 64, 512, 4096, 32768, 262144, 1048576, 2097152, 8388608, 33554432, 67108864};
  int rounds = 5;
  double budget = 0.1;
  std::string out = ".";
};

// Seconds until a program that hangs is ended.
constexpr int kPatience = 300;

// What it printed: bytes and microseconds. Empty: it failed.
std::map<std::size_t, double> run(const Entrant& entrant, const std::string& asked) {
  const std::string line = fmt::format("{} {}", entrant.command, asked);
  FILE* pipe = popen(fmt::format("timeout -k 5 {} bash -c '{}'", kPatience, [&] {
                       std::string quoted;
                       for (const char c : line) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
                       return quoted;
                     }()).c_str(), "r");
  if (!pipe) return {};
  std::map<std::size_t, double> times;
  std::size_t bytes = 0;
  double us = 0;
  for (char text[256]; std::fgets(text, sizeof text, pipe);)
    if (std::sscanf(text, "%zu %lf", &bytes, &us) == 2) times[bytes] = us;
  if (pclose(pipe) != 0) times.clear();
  return times;
}

// False: somebody failed. Who fails once is out of the field.
bool play(const Options& options, const Field& field, const std::string& folder, Times& times) {
  std::vector<Entrant> entrants = lineup(folder, field);
  std::erase_if(entrants, [&](const Entrant& e) { return std::count(options.without.begin(), options.without.end(), e.name) > 0; });
  const std::string asked = fmt::format("{} {} {}", field.collective, fmt::join(options.bytes, ","), options.budget);
  std::set<std::string> failed;
  for (int round = 0; round < options.rounds; ++round)
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      const Entrant& entrant = entrants[(i + std::size_t(round)) % entrants.size()];
      if (failed.count(entrant.name)) continue;
      fmt::print(stderr, "\r\x1b[K{} {} ranks {}: round {} of {}, {}", field.transport, field.ranks, field.collective, round + 1, options.rounds, entrant.name);
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

void draw(const Options& options, const Field& field, const std::vector<Point>& points, const std::vector<std::string>& columns) {
  std::vector<Series> lines;
  for (const std::string& name : columns) {
    Series series{name, {}};
    for (const Point& p : points)
      if (const auto at = p.median.find(name); at != p.median.end()) series.points.emplace_back(double(p.bytes), bus_bandwidth(field, p.bytes, at->second));
    if (!series.points.empty()) lines.push_back(std::move(series));
  }
  const std::string file = fmt::format("{}/{}-{}-{}.svg", options.out, field.transport, field.ranks, field.collective);
  if (const Status status = write_file(file, to_svg(lines, fmt::format("{}, {} ranks, {}", field.collective, field.ranks, field.transport))); !status.ok())
    fmt::print(stderr, "{}\n", status.text());
}

int run_all(const Options& options) {
  const std::string folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::vector<std::string> peers = {"openmpi", "mpich", "gloo"}, columns = {kOurs, "openmpi", "mpich", "gloo", kLimit};
  bool good = true;
  std::string csv = csv_head(columns);
  for (const std::string& transport : options.transports) {
    std::vector<Point> all;
    for (const int ranks : options.ranks)
      for (const std::string& collective : options.collectives) {
        const Field field{transport, collective, ranks};
        Times times;
        good &= play(options, field, folder, times);
        const auto points = judge(times, kOurs, peers);
        fmt::print("{}", to_table(field, points, columns));
        std::fflush(stdout);
        csv += to_csv(field, points, columns);
        draw(options, field, points, columns);
        all.insert(all.end(), points.begin(), points.end());
        if (const Status status = write_file(options.out + "/compare.csv", csv); !status.ok()) return fmt::print(stderr, "{}\n", status.text()), 1;
      }
    const auto behind = std::count_if(all.begin(), all.end(), [](const Point& p) { return p.ratio > 0 && p.most < 1; });
    fmt::print("\n# {}: geometric mean of x over {} points {:.2f}; behind the best peer in all but the outermost rounds at {}\n", transport, all.size(),
               geometric_mean(all), behind);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tutti::perf::compare

int main(int argc, char** argv) {
  using namespace tutti::perf::compare;
  Options options;
  CLI::App app{"tutti and its peers in turn on this machine."};
  app.add_option("--transports", options.transports, "shm, tcp")->delimiter(',')->check(CLI::IsMember({"shm", "tcp"}));
  app.add_option("--ranks", options.ranks, "numbers of ranks")->delimiter(',')->check(CLI::Range(2, 256));
  app.add_option("--collectives", options.collectives, "all_reduce, reduce_scatter, all_gather, broadcast")
      ->delimiter(',')->check(CLI::IsMember({"all_reduce", "reduce_scatter", "all_gather", "broadcast"}));
  app.add_option("--bytes", options.bytes, "sizes in bytes")->delimiter(',')->check(CLI::Range(std::size_t(4), std::size_t(1) << 30));
  app.add_option("--rounds", options.rounds, "each contender runs in each")->check(CLI::Range(1, 1000));
  app.add_option("--budget", options.budget, "seconds a size and contender in a round, about")->check(CLI::Range(0.001, 60.0));
  app.add_option("--without", options.without, "contenders to leave out: openmpi, mpich, gloo, limit")->delimiter(',');
  app.add_option("--out", options.out, "folder for compare.csv and the pictures")->check(CLI::ExistingDirectory);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return run_all(options);
}
