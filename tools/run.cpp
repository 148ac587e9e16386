// Flags of `tutti run`, and what is done with them; the work is in supervisor.h. See run.h.
#include "tools/run.h"
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>
#include "comm/rules.h"
#include "core/config.h"
#include "core/log.h"
#include "tools/binding.h"
#include "tools/cores.h"
#include "tools/guard.h"
#include "tools/outcome_text.h"
#include "tools/port.h"
#include "tools/remote.h"
#include "tools/supervisor.h"
#include "topology/read.h"

namespace tutti::tools {
namespace {

constexpr int kWrongUse = 2;
constexpr int kNotFound = 127;
constexpr int kMostLocalRanks = 4096;      // two pipes each: more is a typing error
constexpr std::chrono::milliseconds kRemoteGrace{5000};      // for a remote launcher to end its own ranks first

template <class... Args>
Status wrong(fmt::format_string<Args...> text, Args&&... args) {
  return Status(Code::invalid_argument, fmt::format(text, std::forward<Args>(args)...));
}

int refuse(const Status& status, int exit_status = kWrongUse) {
  fmt::print(stderr, "tutti run: {}\n", status.text());
  return exit_status;
}

std::chrono::milliseconds kill_after(const RunFlags& flags) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(flags.kill_after_seconds * 1000));
}

// "[3] ", in one of six colours on a terminal.
std::string prefix_of(int rank, bool no_prefix) {
  if (no_prefix) return "";
  const bool coloured = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) && environment("NO_COLOR").empty();
  return coloured ? fmt::format("\033[3{}m[{}]\033[0m ", 1 + rank % 6, rank) : fmt::format("[{}] ", rank);
}

// Without a description of the machine ranks stay free: a job is better than none.
Binding binding_of(const RunFlags& flags, const Job& job) {
  const Bind how = bind_from(flags.bind).value_or(Bind::none);
  if (how == Bind::none || (how == Bind::automatic && (job.local_ranks < 2 || numa_nodes() < 2))) return {};
  const auto machine = topology::read_live();
  if (!machine.ok()) log::warning("--bind {}: ranks stay free, the machine could not be read: {}", flags.bind, machine.status().text());
  Binding binding = machine.ok() ? bind_ranks(*machine, how, job.local_ranks) : Binding{};
  if (!binding.told.empty()) log::info("{}", binding.told);
  return binding;
}

std::vector<Command> rank_commands(const RunFlags& flags, const Job& job) {
  const auto base = own_environment();
  const Binding binding = binding_of(flags, job);
  std::vector<Command> commands;
  for (int local = 0; local < job.local_ranks; ++local) {
    Command command;
    command.label = fmt::format("rank {}", job.rank(local));
    command.prefix = prefix_of(job.rank(local), flags.no_prefix);
    command.arguments = flags.program;
    command.environment = rank_environment(job, local, base);
    if (!binding.cpus.empty()) command.cpus = binding.cpus[std::size_t(local)];
    // A terminal is for the launcher: a process group that is not in front would be stopped when it reads there.
    const bool first = job.rank(local) == 0 && !flags.control && !isatty(STDIN_FILENO);
    command.input = first ? Input::inherited : Input::none;
    commands.push_back(std::move(command));
  }
  return commands;
}

int finish(const Result<Outcome>& outcome) {
  if (!outcome.ok()) return refuse(outcome.status(), 1);
  write_all(STDERR_FILENO, outcome->first_failure || !outcome->stop_reason.empty() || outcome->passed_signal
                               ? outcome_text(*outcome, host_name()) : "");
  return outcome->exit_status();
}

int run_here(const RunFlags& flags, const Job& job) {
  return run_guarded([&](int lifeline) {
    const auto commands = rank_commands(flags, job);
    SupervisorOptions options;
    options.kill_after = kill_after(flags);
    options.lifeline = lifeline;
    options.control = flags.control ? STDIN_FILENO : -1;
    return finish(supervise(commands, options, [&](std::span<const Child> children) {
      std::vector<int> pids;
      for (const Child& child : children) pids.push_back(child.pid);
      if (flags.table) write_all(STDERR_FILENO, rank_table(job, host_name(), pids));
    }));
  });
}

int print_host_commands(const RemoteRun& run) {
  fmt::print(stderr, "tutti run: there is no ssh on PATH. Run on each host, in the same folder:\n");
  fmt::print(stderr, "  on all hosts first: export TUTTI_JOB_KEY=...   # the same secret, e.g. from: openssl rand -hex 32\n");
  for (const HostCommand& command : host_commands(run)) fmt::print(stderr, "  on {}: {}\n", command.host, command.line);
  return kNotFound;
}

int run_on_hosts(const RunFlags& flags, Job job) {
  std::vector<std::string> further = {"--kill-after", fmt::format("{}", flags.kill_after_seconds)};
  if (flags.bind != "auto") further.insert(further.end(), {"--bind", flags.bind});
  if (flags.no_prefix) further.emplace_back("--no-prefix");
  if (flags.table) further.emplace_back("--table");
  std::error_code ignored;
  const RemoteRun run{flags.hosts, job, std::filesystem::read_symlink("/proc/self/exe", ignored), std::filesystem::current_path(ignored),
                      further, flags.program, own_environment()};
  const auto commands = remote_commands(run);
  const bool needs_ssh = std::any_of(commands.begin(), commands.end(), [](const Command& c) { return c.arguments[0] == "ssh"; });
  std::string why;
  if (needs_ssh && find_program("ssh", environment("PATH"), why) != 0) return print_host_commands(run);
  return run_guarded([&](int lifeline) {
    SupervisorOptions options;
    options.kill_after = kill_after(flags) + kRemoteGrace;
    options.lifeline = lifeline;
    return finish(supervise(commands, options, [&](std::span<const Child> children) {
      for (const Child& child : children) write_all(child.control.get(), key_order(job.job_key));
    }));
  });
}

// The first line of the control stream, byte by byte: the rest is the supervisor's.
std::string read_key() {
  std::string line;
  for (char c = 0; read(STDIN_FILENO, &c, 1) == 1 && c != '\n';) line.push_back(c);
  const std::string start = "key ";
  return line.starts_with(start) ? line.substr(start.size()) : "";
}

// Key, port, address and threads: what depends on this machine and its environment.
Status complete(const RunFlags& flags, Job& job, int cores) {
  job.tutti_address = environment("TUTTI_ADDRESS");
  job.job_key = flags.control ? read_key() : environment("TUTTI_JOB_KEY");
  if (job.job_key.empty() && (job.host_count == 1 || !flags.hosts.empty())) {
    auto key = random_key();
    if (!key.ok()) return key.status();
    job.job_key = std::move(key).value();
  }
  if (job.job_key.empty()) {
    log::warning("TUTTI_JOB_KEY is not set: the key is derived from the address, and whoever knows it can join the job. "
                 "Set it to the same secret on all {} hosts", job.host_count);
  }
  if (job.master_port == 0) {
    const auto port = free_port(flags.hosts.empty());
    if (!port.ok()) return port.status();
    job.master_port = *port;
  } else if (job.host_rank == 0 && flags.hosts.empty()) {
    if (const Status status = listenable(job.master_address, job.master_port); !status) return status;
  }
  if (environment("OMP_NUM_THREADS").empty() && flags.hosts.empty()) {
    job.threads = std::max(1, cores / job.local_ranks);
    log::info("OMP_NUM_THREADS={} for each rank: {} core(s) for {} local rank(s); set it to keep another value", job.threads, cores,
              job.local_ranks);
  }
  return {};
}

// "a,b" -> {"a", "b"}; "a,,b" keeps the empty one, for check_flags() to refuse.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; !list.empty() && begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int run(const RunFlags& flags) {
  if (const Status status = check_flags(flags); !status) return refuse(status);
  // Once here rather than from every rank; this also sets the log's level.
  const auto settings = read_settings();
  if (!settings.ok()) return refuse(settings.status());
  if (const auto rules = comm::parse_rules(*settings); !rules.ok()) return refuse(rules.status());
  const int cores = usable_cores();
  auto job = job_from(flags, cores);
  if (!job.ok()) return refuse(job.status());
  std::string why;
  if (flags.hosts.empty()) {
    if (const int status = find_program(flags.program[0], environment("PATH"), why); status != 0) {
      return refuse(wrong("{}", why), status);
    }
  }
  if (const Status status = complete(flags, *job, cores); !status) return refuse(status);
  return flags.hosts.empty() ? run_here(flags, *job) : run_on_hosts(flags, std::move(job).value());
}

}  // namespace

Status check_flags(const RunFlags& flags) {
  if (flags.program.empty()) return wrong("no program given: tutti run -n 2 PROGRAM [ARGUMENTS]");
  if (flags.kill_after_seconds < 0) return wrong("--kill-after wants seconds, 0 or more, and got {}", flags.kill_after_seconds);
  if (!bind_from(flags.bind)) return wrong("--bind wants auto, none, numa or core and got '{}'", flags.bind);
  const int host_count = flags.host_count.value_or(1);
  if (host_count < 1) return wrong("--nnodes wants 1 or more and got {}", host_count);
  if (!flags.hosts.empty() && (flags.host_count || flags.host_rank)) {
    return wrong("--hosts says how many hosts there are and which is which: --nnodes and --node-rank do not go with it");
  }
  if (flags.host_rank && !flags.host_count) return wrong("--node-rank has no effect without --nnodes");
  const int host_rank = flags.host_rank.value_or(0);
  if (host_rank < 0 || host_rank >= host_count) {
    return wrong("--node-rank wants 0 to {} (--nnodes is {}) and got {}", host_count - 1, host_count, host_rank);
  }
  if (host_count > 1 && !flags.host_rank) return wrong("--nnodes {} needs --node-rank: which of the hosts is this?", host_count);
  if (host_count > 1 && (!flags.master_address || !flags.master_port)) {
    return wrong("--nnodes {} needs --master-addr and --master-port, the same on all hosts: where do they meet?", host_count);
  }
  if (flags.master_port && (*flags.master_port < 1 || *flags.master_port > 65535)) {
    return wrong("--master-port wants 1 to 65535 and got {}", *flags.master_port);
  }
  for (const std::string& host : flags.hosts) {
    if (host.empty() || host[0] == '-') return wrong("--hosts wants names separated by commas and got '{}'", host);
    if (std::count(flags.hosts.begin(), flags.hosts.end(), host) > 1) return wrong("--hosts names {} twice", host);
  }
  return {};
}

Result<Job> job_from(const RunFlags& flags, int cores) {
  Job job;
  const std::string& text = flags.local_ranks;
  if (text == "auto" || text == "cpu") {
    job.local_ranks = cores;
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), job.local_ranks);
    if (error != std::errc() || end != text.data() + text.size() || job.local_ranks < 1 || job.local_ranks > kMostLocalRanks) {
      return wrong("-n wants the number of ranks of each host, 1 to {} or auto, and got '{}'", kMostLocalRanks, text);
    }
  }
  job.host_count = flags.hosts.empty() ? flags.host_count.value_or(1) : static_cast<int>(flags.hosts.size());
  job.host_rank = flags.host_rank.value_or(0);
  job.master_address = flags.master_address.value_or(flags.hosts.empty() ? "127.0.0.1" : flags.hosts[0]);
  job.master_port = flags.master_port.value_or(0);
  return job;
}

int program_begin(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return argc;
  const CLI::App* verb = app.get_subcommand("run");
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.empty() || word[0] != '-') return i;
    if (word == "--") return i;
    const CLI::Option* option = verb->get_option_no_throw(word);
    if (option && option->get_items_expected_max() > 0) ++i;      // its value; "--flag=value" is one word
  }
  return argc;
}

void add_run(CLI::App& app, const std::vector<std::string>& program, int& status) {
  CLI::App* verb = app.add_subcommand("run", "start a program as the ranks of a job, on this host or on several");
  auto flags = std::make_shared<RunFlags>();
  auto hosts = std::make_shared<std::string>();
  verb->add_option("-n,--nproc-per-node,--nproc_per_node", flags->local_ranks, "ranks on each host: a number, or auto (the cores)");
  verb->add_option("--nnodes", flags->host_count, "number of hosts; each starts its own `tutti run`");
  verb->add_option("--node-rank,--node_rank", flags->host_rank, "which of the hosts this is, from 0");
  verb->add_option("--master-addr,--master_addr", flags->master_address, "address of host 0, where the ranks meet");
  verb->add_option("--master-port,--master_port", flags->master_port, "free port there");
  verb->add_option("--hosts", *hosts, "start on these hosts by ssh: a,b,c");
  verb->add_option("--kill-after", flags->kill_after_seconds, "seconds from SIGTERM to SIGKILL when the job is stopped (5)");
  verb->add_option("--bind", flags->bind, "what each rank is tied to: numa (its GPU's node, else spread), core, none, or auto: numa where there are several (auto)");
  verb->add_flag("--no-prefix", flags->no_prefix, "do not put [RANK] before each line of output");
  verb->add_flag("--table", flags->table, "print the ranks and their pids");
  verb->add_flag("--control", flags->control)->group("");
  verb->footer("PROGRAM and its ARGUMENTS follow the flags: tutti run -n 2 PROGRAM [ARGUMENTS]");
  verb->callback([flags, hosts, &program, &status] {
    flags->program = program;
    flags->hosts = split(*hosts);
    status = run(*flags);
  });
}

}  // namespace tutti::tools
