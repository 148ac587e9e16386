// A benchmark's `main`: options, then either the starter of all ranks or the ranks of this process.
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "perf/driver/benchmark.h"
#include "perf/driver/launch.h"
#include "perf/driver/options.h"
#include "perf/driver/origin.h"
#include "perf/driver/report.h"
#include "perf/driver/session.h"
#include "perf/driver/split.h"

namespace tutti::perf {
namespace {

// Where the ranks of this process sit in the world.
struct Seat {
  Origin origin;
  int first_rank = 0, rank_count = 1;
  std::string address, job_key;  // empty: from the launcher's environment
  std::string note;
};

struct Plan {
  const Benchmark& benchmark;
  Options options;
  std::vector<std::string> args;
  std::optional<Split> split;
  Goal goal;
  Seat seat;
};

int as_number(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  int value = 0;
  if (found != environment.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return value;
}

// NCCL_TESTS_MIN_BW fails below nine tenths, as in nccl-tests; --min-busbw below what it says.
Result<Goal> goal_from(const Options& options, const Environment& environment) {
  if (options.min_busbw) return Goal{options.min_busbw};
  const auto found = environment.find("NCCL_TESTS_MIN_BW");
  if (found == environment.end()) return Goal{};
  double value = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return Status(Code::invalid_argument, fmt::format("NCCL_TESTS_MIN_BW='{}' is not a number of GB/s", text));
  return Goal{0.9 * value};
}

Status check_files(const Options& options) {
  for (const std::string& file : {options.json, options.csv, options.plot})
    if (!file.empty())
      if (Status s = probe_file(file); !s.ok()) return s;
  return read_added(options).status();
}

Result<Communicator> join(const Seat& seat, int thread) {
  if (seat.address.empty()) return Communicator::from_environment();
  return Communicator::create(seat.first_rank + thread, seat.rank_count, seat.address, {.job_key = seat.job_key});
}

Status world_is_whole(const Origin& origin, const Communicator& world) {
  if (origin.rank_count == 0 || origin.rank_count == world.rank_count()) return {};
  return {Code::invalid_state,
          fmt::format("{} started {} ranks, but this world has {}: the ranks did not find each other", origin.launcher,
                      origin.rank_count, world.rank_count())};
}

// One rank, from joining to its verdict. `status` tells failures that are not the library's.
Status run_rank(const Plan& plan, int thread, int& rank, int& exit_status) {
  Result<Communicator> joined = join(plan.seat, thread);
  if (!joined.ok()) return joined.status();
  Communicator world = std::move(joined).value(), part;
  rank = world.rank();
  if (Status s = world_is_whole(plan.seat.origin, world); !s.ok()) return s;
  const int color = plan.split ? plan.split->color_of(rank) : 0;
  if (plan.split) {
    Result<Communicator> split = world.split(color, rank);
    if (!split.ok()) return split.status();
    part = std::move(split).value();
  }
  Communicator& ranks = plan.split ? part : world;
  Report report(plan.benchmark, plan.options, plan.args, plan.goal, rank == 0);
  if (Status s = report.open(world, color, plan.seat.note); !s.ok()) return s;
  Session session(plan.benchmark, plan.options, world, ranks);
  Run run;
  if (Status s = session.run(run, report.watcher()); !s.ok()) return s;
  run.ranks = ranks.rank_count();
  exit_status = session.saw_wrong() ? kExitWrong : kExitOk;
  Result<int> closed = report.close(std::move(run));
  if (!closed.ok()) return closed.status();
  exit_status = std::max(exit_status, closed.value());
  return {};
}

// The ranks of this process, each on its thread; the gravest exit status.
int run_seat(const Plan& plan) {
  std::mutex mutex;
  int worst = kExitOk;
  const auto body = [&](int thread) {
    int rank = plan.seat.first_rank + thread, exit_status = kExitOk;
    const Status status = run_rank(plan, thread, rank, exit_status);
    const std::lock_guard lock(mutex);
    if (!status.ok()) {
      if (plan.options.member_fd >= 0)
        tell_failure(plan.options.member_fd, rank, status.to_string());
      else
        fmt::print(stderr, "{}: rank {}: {}\n", plan.benchmark.program, rank, status.to_string());
      worst = kExitFailed;
    } else if (worst == kExitOk) {
      worst = exit_status;
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 1; thread < plan.options.threads; ++thread) threads.emplace_back(body, thread);
  body(0);
  for (std::thread& thread : threads) thread.join();
  return worst;
}

int refuse(const Benchmark& benchmark, int exit_status, const Status& why) {
  fmt::print(stderr, "{}: {}\n", benchmark.program, why.to_string());
  return exit_status;
}

int refuse(const Benchmark& benchmark, const std::string& text) { return refuse(benchmark, kExitUsage, Status(Code::invalid_argument, text)); }

// Started by a launcher: this process is one rank of its world.
int run_launched(Plan& plan) {
  const Options& o = plan.options;
  if (o.processes > 1 || o.threads > 1)
    return refuse(
        plan.benchmark,
        fmt::format("{} has started the ranks, one a process: leave out -g and -t", plan.seat.origin.launcher));
  plan.options.processes = 1;
  plan.seat.rank_count = plan.seat.origin.rank_count;
  plan.seat.note = fmt::format("started by {}", plan.seat.origin.launcher);
  return run_seat(plan);
}

std::string note_of(const Options& o, bool chosen) {
  const int ranks = o.processes * o.threads;
  if (ranks == 1) return "one rank: nothing is sent; -g 2 or more measures communication";
  return chosen ? fmt::format("{} ranks on this host: one a core, at least 2; -g chooses", ranks) : "";
}

// Nobody has started ranks: this program does.
int run_alone(Plan& plan, std::span<char* const> args, const Environment& environment) {
  Options& o = plan.options;
  const bool chosen = o.processes == 0 && o.threads == 1;
  if (o.processes == 0) o.processes = chosen ? int(std::max(2u, std::thread::hardware_concurrency())) : 1;
  const int ranks = o.processes * o.threads;
  if (plan.benchmark.rooted && o.root >= ranks)
    return refuse(plan.benchmark, fmt::format("-r {}: there are {} ranks", o.root, ranks));
  if (o.processes > 1) return run_members(o, args, environment);
  plan.seat.rank_count = ranks;
  plan.seat.address = make_address();
  plan.seat.job_key = make_key();
  plan.seat.note = note_of(o, chosen);
  return run_seat(plan);
}

// Started by run_alone of another process.
int run_member(Plan& plan, const Environment& environment) {
  if (!environment.count("TUTTI_ADDRESS") || !environment.count("TUTTI_JOB_KEY"))
    return refuse(plan.benchmark, "--member is for processes that this program starts itself");
  Options& o = plan.options;
  const bool chosen = o.processes == 0 && o.threads == 1;
  const int ranks = as_number(environment, "TUTTI_RANK_COUNT");
  o.processes = std::max(1, ranks / o.threads);
  plan.seat.first_rank = as_number(environment, "TUTTI_RANK");
  plan.seat.rank_count = ranks;
  plan.seat.address = environment.at("TUTTI_ADDRESS");
  plan.seat.job_key = environment.at("TUTTI_JOB_KEY");
  plan.seat.note = note_of(o, chosen);
  return run_seat(plan);
}

}  // namespace

int run_program(const Benchmark& benchmark, std::span<char* const> args, char** names_and_values) {
  const Environment environment = environment_of(names_and_values);
  std::vector<std::string> words(args.begin() + 1, args.end());
  Parsed parsed = parse_options(std::string(benchmark.program), words);
  if (!parsed.options) {
    std::fputs(parsed.text.c_str(), parsed.status == kExitOk ? stdout : stderr);
    return parsed.status;
  }
  if (parsed.options->memory == Memory::cuda && gpu_count() == 0)
    return refuse(benchmark, kExitFailed, Status(Code::unsupported, gpu_lack()));
  const bool member = parsed.options->member_fd >= 0;
  if (member) words.pop_back();  // --member, which run_members added
  const Result<Goal> goal = goal_from(*parsed.options, environment);
  if (!goal.ok()) return refuse(benchmark, kExitUsage, goal.status());
  const Result<std::optional<Split>> split = split_from(environment);
  if (!split.ok()) return refuse(benchmark, kExitUsage, split.status());
  Plan plan{benchmark, *parsed.options, std::move(words), split.value(), goal.value(), {}};
  if (member) return run_member(plan, environment);
  const Result<Origin> origin = find_origin(environment, parent_program());
  if (!origin.ok()) return refuse(benchmark, kExitFailed, origin.status());
  if (Status s = check_files(plan.options); !s.ok()) return refuse(benchmark, kExitFailed, s);
  plan.seat.origin = origin.value();
  return origin.value().launcher.empty() ? run_alone(plan, args, environment) : run_launched(plan);
}

}  // namespace tutti::perf
