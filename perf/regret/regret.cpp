// regret: how much slower the library's own choice of algorithm is than the best one, over transports, ranks and sizes.
// Starts its own ranks on this host. Exit status: 0; 1 when something failed, or with --check when too many choices
// were wrong; 2 usage.
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>

#include "perf/driver/launch.h"
#include "perf/regret/contest.h"

namespace tutti::perf::regret {
namespace {

struct Wish {
  std::vector<std::string> transports{"shm", "tcp"};
  std::vector<int> ranks{2, 4};
  std::size_t from = 8, to = 64u << 20, factor = 4;
  int rounds = 12;
  bool check = false, details = false, launched = false;
  std::string json, label;
  int member_fd = -1, points_fd = -1;      // in the ranks
};

std::vector<std::size_t> sizes_of(const Wish& wish) {
  std::vector<std::size_t> out;
  for (std::size_t bytes = wish.from; bytes <= wish.to; bytes *= wish.factor) out.push_back(bytes);
  if (out.empty() || out.back() != wish.to) out.push_back(wish.to);
  return out;
}

Seat seat_of(const Wish& wish, const Environment& environment) {
  const std::string& transport = wish.transports.front();
  return {std::stoi(environment.at("TUTTI_RANK")),
          std::stoi(environment.at("TUTTI_RANK_COUNT")),
          transport,
          wish.label.empty() ? transport : wish.label,
          {},
          {}};
}

// One of the ranks that `tutti run` has started; rank 0 tells.
int run_launched(const Wish& wish, const Environment& environment) {
  if (!environment.contains("TUTTI_RANK") || !environment.contains("TUTTI_RANK_COUNT"))
    return fmt::print(
               stderr, "regret: {}\n",
               Status(Code::invalid_argument, "--launched wants to be started by tutti run: TUTTI_RANK is not set")
                   .to_string()),
           kExitUsage;
  const Seat seat = seat_of(wish, environment);
  std::vector<Point> points;
  if (seat.rank == 0) std::fputs(table_head().c_str(), stdout);
  const Status status = run_contest(seat, sizes_of(wish), wish.rounds, [&](const Point& point) {
    if (seat.rank != 0) return;
    std::fputs(table_row(point).c_str(), stdout);
    if (wish.details) fmt::print("  {}\n", details(point));
    std::fflush(stdout);
    points.push_back(point);
  });
  if (!status.ok()) return fmt::print(stderr, "regret: {}\n", status.to_string()), kExitFailed;
  if (seat.rank == 0)
    fmt::print("\n{} points, {:.1f} % within {:.0f} % of the best\n", points.size(), 100 * share_within(points),
               100 * (kTolerance - 1));
  return wish.check && seat.rank == 0 && share_within(points) < kWantedShare ? kExitFailed : kExitOk;
}

int run_rank(const Wish& wish, const Environment& environment) {
  Seat seat = seat_of(wish, environment);
  seat.address = environment.at("TUTTI_ADDRESS");
  seat.key = environment.at("TUTTI_JOB_KEY");
  const Status status = run_contest(seat, sizes_of(wish), wish.rounds, [&](const Point& point) {
    const std::string line = to_json(point) + "\n";
    if (seat.rank != 0) return;
    std::fputs(table_row(point).c_str(), stdout);
    if (wish.details) fmt::print("  {}\n", details(point));
    std::fflush(stdout);
    if (write(wish.points_fd, line.data(), line.size()) != ssize_t(line.size())) std::perror("points");
  });
  if (!status.ok()) tell_failure(wish.member_fd, seat.rank, status.to_string());
  return status.ok() ? kExitOk : kExitFailed;
}

std::vector<Point> read_points(int fd) {
  std::vector<Point> out;
  std::ifstream lines(fmt::format("/proc/self/fd/{}", fd));
  for (std::string line; std::getline(lines, line);) out.push_back(point_from_json(line));
  return out;
}

// One world; its points.
int run_world(const Wish& wish, const std::string& transport, int ranks, const char* program,
              const Environment& environment, std::vector<Point>& points) {
  const int fd = memfd_create("points", 0);
  if (fd < 0) return std::perror("memfd_create"), kExitFailed;
  std::vector<std::string> words = {program,
                                    "--transports",
                                    transport,
                                    "--rounds",
                                    std::to_string(wish.rounds),
                                    "--from",
                                    std::to_string(wish.from),
                                    "--to",
                                    std::to_string(wish.to),
                                    "--factor",
                                    std::to_string(wish.factor),
                                    fmt::format("--points={}", fd)};
  if (wish.details) words.push_back("--details");
  std::vector<char*> args;
  for (std::string& word : words) args.push_back(word.data());
  tutti::perf::Options options;
  options.processes = ranks;
  const int status = run_members(options, args, environment);
  for (Point& p : read_points(fd)) points.push_back(std::move(p));
  close(fd);
  return status;
}

int run_all(const Wish& wish, const char* program, const Environment& environment) {
  std::vector<Point> points;
  std::fputs(table_head().c_str(), stdout);
  std::fflush(stdout);
  for (const std::string& transport : wish.transports)
    for (const int ranks : wish.ranks)
      if (const int status = run_world(wish, transport, ranks, program, environment, points); status != kExitOk)
        return status;
  const double share = share_within(points);
  fmt::print("\n{} points, {:.1f} % within {:.0f} % of the best\n", points.size(), 100 * share, 100 * (kTolerance - 1));
  if (!wish.json.empty()) {
    std::ofstream file(wish.json);
    file << "[\n";
    for (std::size_t i = 0; i < points.size(); ++i)
      file << to_json(points[i]) << (i + 1 < points.size() ? ",\n" : "\n");
    file << "]\n";
    if (!file.flush())
      return fmt::print(stderr, "regret: {}\n",
                        Status(Code::out_of_resources, fmt::format("cannot write {}", wish.json)).to_string()),
             kExitFailed;
  }
  return wish.check && share < kWantedShare ? kExitFailed : kExitOk;
}

}  // namespace
}  // namespace tutti::perf::regret

int main(int argc, char** argv, char** names_and_values) {
  using namespace tutti::perf;
  regret::Wish wish;
  CLI::App app{"How much slower the automatic choice of all_reduce's algorithm is than the best."};
  app.add_option("--transports", wish.transports, "shm, tcp; auto with --launched")
      ->delimiter(',')
      ->check(CLI::IsMember({"shm", "tcp", "auto"}));
  app.add_flag("--launched", wish.launched,
               "be one of the ranks that tutti run has started, on this or several hosts; --ranks counts for nothing");
  app.add_option("--label", wish.label, "what the table calls the first transport");
  app.add_option("--ranks", wish.ranks, "numbers of ranks")->delimiter(',')->check(CLI::Range(2, 256));
  app.add_option("--from", wish.from, "smallest size in bytes")
      ->check(CLI::Range(std::size_t(4), std::size_t(1) << 30));
  app.add_option("--to", wish.to, "largest size in bytes")->check(CLI::Range(std::size_t(4), std::size_t(1) << 30));
  app.add_option("--factor", wish.factor, "from size to size")->check(CLI::Range(2, 1024));
  app.add_option("--rounds", wish.rounds, "timed rounds of each algorithm; half choose the best, half score")
      ->check(CLI::Range(4, 10000));
  app.add_flag("--check", wish.check, "exit status 1 when less than 95 % of the choices are within 10 % of the best");
  app.add_flag("--details", wish.details, "all algorithms' times under each row");
  app.add_option("--json", wish.json, "file for all times");
  app.add_option("--member", wish.member_fd)->group("");
  app.add_option("--points", wish.points_fd)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);      // help
    return fmt::print(stderr, "regret: {}\n", tutti::Status(tutti::Code::invalid_argument, error.what()).to_string()),
           kExitUsage;
  }
  const Environment environment = environment_of(names_and_values);
  if (wish.launched) return regret::run_launched(wish, environment);
  return wish.member_fd >= 0 ? regret::run_rank(wish, environment) : regret::run_all(wish, argv[0], environment);
}
