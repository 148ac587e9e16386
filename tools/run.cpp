// Flags of `tutti run`, and what is done with them; the work is in supervisor.h. See run.h.
#include "tools/run.h"
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/rules.h"
#include "core/config.h"
#include "core/error_table.h"
#include "core/log.h"
#include "core/socket_address.h"
#include "tools/allocation.h"
#include "tools/assembly.h"
#include "tools/binding.h"
#include "tools/cores.h"
#include "tools/gpus.h"
#include "tools/guard.h"
#include "tools/outcome_text.h"
#include "tools/port.h"
#include "tools/refusal.h"
#include "tools/remote.h"
#include "tools/restarts.h"
#include "tools/rounds.h"
#include "tools/supervisor.h"
#include "topology/read.h"

namespace tutti::tools {
namespace {

constexpr int kNotFound = 127;
constexpr int kMostLocalRanks = 4096;      // two pipes each: more is a typing error
constexpr std::chrono::milliseconds kRemoteGrace{5000};      // for a remote launcher to end its own ranks first

template <class... Args>
Status wrong(fmt::format_string<Args...> text, Args&&... args) {
  return Status(Code::invalid_argument, fmt::format(text, std::forward<Args>(args)...));
}

bool is_elastic(const RunFlags& flags) { return flags.max_restarts || flags.min_ranks; }

int refuse(const Status& status, int exit_status = kWrongUse) { return tools::refuse("run", status, exit_status); }

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
  if (!machine.ok())
    log::warning("--bind {}: ranks stay free, the machine could not be read: {}", flags.bind, machine.status().text());
  Binding binding = machine.ok() ? bind_ranks(*machine, how, job.local_ranks) : Binding{};
  if (!binding.told.empty()) log::info("{}", binding.told);
  return binding;
}

std::vector<Command> rank_commands(const RunFlags& flags, const Job& job, const std::string& roster) {
  auto base = own_environment();
  std::erase_if(base, [](const std::string& entry) { return entry.starts_with("TUTTI_ROSTER="); });
  if (!roster.empty()) base.push_back("TUTTI_ROSTER=" + roster);
  const Binding binding = binding_of(flags, job);
  std::vector<Command> commands;
  for (int local = 0; local < job.local_ranks; ++local) {
    Command command;
    command.label = fmt::format("rank {}", job.rank(local));
    command.prefix = prefix_of(job.rank(local), flags.no_prefix);
    command.arguments = flags.program;
    if (!flags.log_folder.empty()) command.log = fmt::format("{}/rank-{}.log", flags.log_folder, job.rank(local));
    command.environment = rank_environment(job, local, base);
    if (!binding.cpus.empty()) command.cpus = binding.cpus[std::size_t(local)];
    // A terminal is for the launcher: a process group that is not in front would be stopped when it reads there.
    const bool first = job.rank(local) == 0 && !flags.control && !isatty(STDIN_FILENO);
    command.input = first ? Input::inherited : Input::none;
    commands.push_back(std::move(command));
  }
  return commands;
}

// `ended`: why, when ranks have said so.
int finish(const Result<Outcome>& outcome, const std::string& ended = "") {
  if (!outcome.ok()) return refuse(outcome.status(), 1);
  write_all(STDERR_FILENO, outcome->first_failure || !outcome->stop_reason.empty() || outcome->passed_signal
                               ? outcome_text(*outcome, host_name()) : "");
  const auto& left = outcome->left_out;
  const bool too_few = !ended.empty() && std::any_of(left.begin(), left.end(), [&](std::size_t i) {
    const int status = outcome->children[i].wait_status;
    return WIFEXITED(status) && WEXITSTATUS(status) == kTooFewLeft;
  });
  return too_few ? kTooFewLeft : outcome->exit_status();
}

// Signals wait for the supervisor, so they are looked for while hosts are waited for.
bool shall_stop(int lifeline, int control) {
  sigset_t pending;
  if (sigpending(&pending) == 0 &&
      (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM) || sigismember(&pending, SIGHUP)))
    return true;
  pollfd ends[] = {{lifeline, POLLIN, 0}, {control, POLLIN, 0}};
  return poll(ends, 2, 0) > 0;
}

Result<std::unique_ptr<Assembly>> assemble(const RunFlags& flags, Job& job, int lifeline) {
  AssemblyPlan plan;
  plan.elastic = is_elastic(flags);
  plan.least = flags.min_ranks.value_or(job.rank_count());
  plan.file = flags.rendezvous;
  plan.host_number = flags.host_rank;
  plan.host_names = flags.host_names;
  plan.local_address = flags.local_address;
  if (const auto settings = read_settings()) plan.limit = settings->init_timeout;
  plan.tell = [](const std::string& line) { write_all(STDERR_FILENO, "tutti run: " + line + "\n"); };
  const int control = flags.control ? STDIN_FILENO : -1;
  plan.stop = [lifeline, control] { return shall_stop(lifeline, control); };
  return Assembly::meet(job, plan);
}

std::string failure_text(const Child& child) {
  return fmt::format("{} on {} (pid {}) {}", child.label, host_name(), child.pid, ending_text(child.wait_status));
}

// For programs that know nothing of the roster.
Result<std::unique_ptr<Rounds>> open_rounds(const RunFlags& flags, Job& job, int lifeline, Assembly& assembly) {
  RoundsPlan plan;
  plan.most = flags.max_restarts.value_or(0);
  if (const auto settings = read_settings()) plan.limit = settings->init_timeout;
  const int control = flags.control ? STDIN_FILENO : -1;
  plan.stop = [lifeline, control] { return shall_stop(lifeline, control); };
  plan.lives = [&assembly](int host) { return assembly.lives(host); };
  plan.tell = [](const std::string& line) {
    const std::string text = "tutti run: " + line;
    write_all(STDERR_FILENO, with_code(text, launcher_row(text)) + "\n");
  };
  auto rounds = Rounds::open(assembly.roster(), plan);
  if (!rounds) return rounds;
  if (const Status joined = (*rounds)->join(job); !joined) return joined;
  return rounds;
}

// The ranks of this host, from their start to the end of the last one.
Result<Outcome> run_ranks(const RunFlags& flags, const Job& job, int lifeline, Assembly* assembly,
                          std::optional<Restarts>& elastic, Rounds* rounds) {
  const auto commands = rank_commands(flags, job, elastic ? assembly->path() : "");
  SupervisorOptions options;
  if (assembly && !elastic && !flags.control) {      // else the launcher above us stops all
    options.ended = assembly->ended();
    options.after_failure = [assembly](const Child& child, std::size_t) {
      assembly->fail(failure_text(child));
      return After::stop;
    };
  }
  if (elastic) options.after_failure = [&](const Child& child, std::size_t local) {
    const After after = elastic->after(job.rank(int(local)), child);
    if (rounds && !rounds->silent()) rounds->fail(failure_text(child), true);
    return after;
  };
  if (rounds) options.ended = rounds->stop();
  options.kill_after = kill_after(flags);
  options.lifeline = lifeline;
  options.control = flags.control ? STDIN_FILENO : -1;
  return supervise(commands, options, [&](std::span<const Child> children) {
    std::vector<int> pids;
    for (const Child& child : children) pids.push_back(child.pid);
    if (flags.table) write_all(STDERR_FILENO, rank_table(job, host_name(), pids));
  });
}

int run_here(const RunFlags& flags, Job job) {
  return run_guarded([&](int lifeline) {
    std::unique_ptr<Assembly> assembly;
    std::optional<Restarts> elastic;
    std::unique_ptr<Rounds> rounds;
    if (is_elastic(flags) || (job.host_count > 1 && flags.backend != "static")) {
      auto met = assemble(flags, job, lifeline);
      if (!met) return refuse(met.status(), met.status().code() == Code::invalid_argument ? kWrongUse : 1);
      assembly = std::move(*met);
      if (is_elastic(flags)) elastic.emplace(assembly->roster(), flags.max_restarts.value_or(0));
    }
    if (elastic && job.host_count > 1) {
      auto opened = open_rounds(flags, job, lifeline, *assembly);
      if (!opened) return refuse(opened.status(), kFailure);
      rounds = std::move(*opened);
    }
    for (;;) {
      const auto outcome = run_ranks(flags, job, lifeline, assembly.get(), elastic, rounds.get());
      if (rounds && !rounds->silent()) {
        if (outcome.ok() && rounds->next(*outcome, job)) continue;
        if (!outcome.ok() || outcome->passed_signal != 0)
          rounds->fail(fmt::format("the job was ended on {}", host_name()), false);
        const int status = finish(outcome);
        const auto over = rounds->over();
        return status == 0 && over
                   ? refuse({Code::peer_lost, "the ranks of this host were done, those of another were not: " + *over},
                            kFailure)
                   : status;
      }
      const bool again = elastic && !rounds && outcome.ok() && elastic->all_again(*outcome, job.restart_count);
      if (!again) return finish(outcome, elastic ? elastic->ended() : "");
      if (const auto port = free_port(true); port.ok() && !flags.master_port) job.master_port = *port;
    }
  });
}

int print_host_commands(const RemoteRun& run) {
  refuse({Code::unsupported, "there is no ssh on PATH. Run on each host, in the same folder:"});
  fmt::print(stderr,
             "  on all hosts first: export TUTTI_JOB_KEY=...   # the same secret, e.g. from: openssl rand -hex 32\n");
  for (const HostCommand& command : host_commands(run)) fmt::print(stderr, "  on {}: {}\n", command.host, command.line);
  return kNotFound;
}

int run_on_hosts(const RunFlags& flags, Job job) {
  std::vector<std::string> further = {"--kill-after", fmt::format("{}", flags.kill_after_seconds)};
  if (flags.bind != "auto") further.insert(further.end(), {"--bind", flags.bind});
  if (flags.no_prefix) further.emplace_back("--no-prefix");
  if (flags.max_restarts) further.insert(further.end(), {"--max-restarts", fmt::format("{}", *flags.max_restarts)});
  if (flags.min_ranks) further.insert(further.end(), {"--min-ranks", fmt::format("{}", *flags.min_ranks)});
  further.insert(further.end(), {"--host-names", fmt::format("{}", fmt::join(flags.hosts, ","))});
  if (flags.table) further.emplace_back("--table");
  if (!flags.log_folder.empty()) further.insert(further.end(), {"--log-dir", flags.log_folder});
  if (flags.gpus_per_rank > 0)
    further.insert(further.end(), {"--gpus-per-rank", fmt::format("{}", flags.gpus_per_rank)});
  std::error_code ignored;
  const RemoteRun run{flags.hosts,
                      job,
                      std::filesystem::read_symlink("/proc/self/exe", ignored),
                      std::filesystem::current_path(ignored),
                      further,
                      flags.program,
                      own_environment()};
  const auto commands = remote_commands(run);
  const bool needs_ssh =
      std::any_of(commands.begin(), commands.end(), [](const Command& c) { return c.arguments[0] == "ssh"; });
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
  if (job.job_key.empty() && (job.host_count == 1 || !flags.hosts.empty()) && flags.rendezvous.empty()) {
    auto key = random_key();
    if (!key.ok()) return key.status();
    job.job_key = std::move(key).value();
  }
  if (job.job_key.empty() && flags.rendezvous.empty()) {
    log::warning(
        "TUTTI_JOB_KEY is not set: the key is derived from the address, and whoever knows it can join the job. "
        "Set it to the same secret on all {} hosts",
        job.host_count);
  }
  if (!flags.rendezvous.empty()) {
    // Both come from there.
  } else if (job.master_port == 0) {
    const auto port = free_port(flags.hosts.empty());
    if (!port.ok()) return port.status();
    job.master_port = *port;
  } else if (job.host_rank == 0 && flags.hosts.empty()) {
    if (const Status status = listenable(job.master_address, job.master_port); !status) return status;
  }
  if (environment("OMP_NUM_THREADS").empty() && flags.hosts.empty()) {
    job.threads = std::max(1, cores / job.local_ranks);
    log::info("OMP_NUM_THREADS={} for each rank: {} core(s) for {} local rank(s); set it to keep another value",
              job.threads, cores, job.local_ranks);
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

// What a scheduler says of hosts, where the flags say nothing.
Status ask_scheduler(RunFlags& flags) {
  if (flags.host_count || flags.host_rank || flags.master_address || !flags.hosts.empty() || !flags.rendezvous.empty())
    return {};
  std::string value;
  const auto allocation = read_allocation([&](const char* name) {
    value = environment(name);
    return value.empty() ? nullptr : value.c_str();
  });
  if (!allocation || !*allocation) return allocation.status();
  flags.host_names = (*allocation)->hosts;
  flags.host_count = int(flags.host_names.size());
  flags.host_rank = (*allocation)->host_number;
  flags.master_address = flags.host_names[0];
  if (!flags.master_port) flags.master_port = (*allocation)->port;
  return {};
}

int run(RunFlags flags) {
  if (const Status status = translate(flags); !status) return refuse(status);
  if (const Status status = ask_scheduler(flags); !status) return refuse(status);
  if (const Status status = check_flags(flags); !status) return refuse(status);
  if (flags.module) flags.program.insert(flags.program.begin(), {"python3", "-m"});
  // Once here rather than from every rank; this also sets the log's level.
  const auto settings = read_settings();
  if (!settings.ok()) return refuse(settings.status());
  if (const auto rules = comm::parse_rules(*settings); !rules.ok()) return refuse(rules.status());
  const int cores = usable_cores();
  auto job = job_from(flags, cores, usable_gpus(environment("CUDA_VISIBLE_DEVICES")));
  if (!job.ok()) return refuse(job.status());
  if (flags.least_hosts && !flags.min_ranks) flags.min_ranks = *flags.least_hosts * job->local_ranks;
  std::string why;
  if (flags.hosts.empty()) {
    if (const int status = find_program(flags.program[0], environment("PATH"), why); status != 0) {
      return refuse(wrong("{}", why), status);
    }
  }
  if (const Status status = complete(flags, *job, cores); !status) return refuse(status);
  std::error_code error;
  if (!flags.log_folder.empty()) std::filesystem::create_directories(flags.log_folder, error);
  if (error) return refuse(wrong("--log-dir {}: {}", flags.log_folder, error.message()));
  return flags.hosts.empty() ? run_here(flags, *job) : run_on_hosts(flags, std::move(job).value());
}

// torchrun's flags that need nothing here.
void add_flags_without_effect(CLI::App& verb) {
  for (const char* name : {"--rdzv-id,--rdzv_id", "--rdzv-conf,--rdzv_conf", "--role",
                           "--monitor-interval,--monitor_interval", "--start-method,--start_method"}) {
    verb.add_option_function<std::string>(name, [](const std::string&) {}, "torchrun's; has no effect here")->group("");
  }
  for (const char* name : {"--no-python,--no_python", "--standalone"}) {
    verb.add_flag_function(name, [](std::int64_t) {}, "torchrun's; has no effect here")->group("");
  }
}

// "2" or "1:4"
bool read_host_count(const std::string& text, RunFlags& flags) {
  const auto number = [](std::string_view part, std::optional<int>& out) {
    int n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc() || end != part.data() + part.size() || part.empty()) return false;
    out = n;
    return true;
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return number(text, flags.host_count);
  return number(std::string_view(text).substr(0, colon), flags.least_hosts) &&
         number(std::string_view(text).substr(colon + 1), flags.host_count);
}

}  // namespace

Status translate(RunFlags& flags) {
  const std::string& backend = flags.backend;
  if (!backend.empty() && backend != "c10d" && backend != "static" && backend != "file") {
    return wrong("--rdzv-backend wants c10d or static (hosts meet at --rdzv-endpoint) or file, and got '{}'", backend);
  }
  if (flags.endpoint.empty()) {
    return backend == "file" ? wrong("--rdzv-backend file needs --rdzv-endpoint: which file?") : Status();
  }
  if (backend == "file") {
    flags.rendezvous = flags.endpoint;
    return {};
  }
  const auto parts = split_address(flags.endpoint);
  if (!parts) return wrong("--rdzv-endpoint: {}", parts.status().text());
  if (flags.master_address || flags.master_port)
    return wrong("--rdzv-endpoint and --master-addr or --master-port say the same: give one");
  flags.master_address = parts->host;
  flags.master_port = parts->port;
  return {};
}

Status check_flags(const RunFlags& flags) {
  if (flags.program.empty()) return wrong("no program given: tutti run -n 2 PROGRAM [ARGUMENTS]");
  if (flags.kill_after_seconds < 0)
    return wrong("--kill-after wants seconds, 0 or more, and got {}", flags.kill_after_seconds);
  if (!bind_from(flags.bind)) return wrong("--bind wants auto, none, numa or core and got '{}'", flags.bind);
  const int host_count = flags.host_count.value_or(1);
  if (host_count < 1) return wrong("--nnodes wants 1 or more and got {}", host_count);
  if (!flags.hosts.empty() && (flags.host_count || flags.host_rank)) {
    return wrong(
        "--hosts says how many hosts there are and which is which: --nnodes and --node-rank do not go with it");
  }
  if (flags.least_hosts && (*flags.least_hosts < 1 || *flags.least_hosts > host_count)) {
    return wrong("--nnodes {}:{} wants 1 <= MIN <= MAX", *flags.least_hosts, host_count);
  }
  if (!flags.rendezvous.empty() &&
      (flags.master_address || flags.master_port || !flags.hosts.empty() || host_count < 2)) {
    return wrong(
        "--rendezvous {} is where the hosts of --nnodes meet: --master-addr, --master-port and --hosts do not go with "
        "it",
        flags.rendezvous);
  }
  if (flags.host_rank && !flags.host_count) return wrong("--node-rank has no effect without --nnodes");
  const int host_rank = flags.host_rank.value_or(0);
  if (host_rank < 0 || host_rank >= host_count) {
    return wrong("--node-rank wants 0 to {} (--nnodes is {}) and got {}", host_count - 1, host_count, host_rank);
  }
  const bool by_address = host_count > 1 && flags.rendezvous.empty();
  if (by_address && !flags.host_rank)
    return wrong("--nnodes {} needs --node-rank: which of the hosts is this?", host_count);
  if (by_address && (!flags.master_address || !flags.master_port)) {
    return wrong(
        "--nnodes {} needs --master-addr and --master-port, the same on all hosts, or --rendezvous FILE: where do they "
        "meet?",
        host_count);
  }
  if (flags.master_port && (*flags.master_port < 1 || *flags.master_port > 65535)) {
    return wrong("--master-port wants 1 to 65535 and got {}", *flags.master_port);
  }
  if (flags.backend == "static" && is_elastic(flags) && host_count > 1) {
    return wrong("--rdzv-backend static leaves hosts alone: --max-restarts and --min-ranks want them to meet");
  }
  if (flags.max_restarts && *flags.max_restarts < 0)
    return wrong("--max-restarts wants 0 or more and got {}", *flags.max_restarts);
  if (flags.min_ranks && *flags.min_ranks < 1) return wrong("--min-ranks wants 1 or more and got {}", *flags.min_ranks);
  for (const std::string& host : flags.hosts) {
    if (host.empty() || host[0] == '-') return wrong("--hosts wants names separated by commas and got '{}'", host);
    if (std::count(flags.hosts.begin(), flags.hosts.end(), host) > 1) return wrong("--hosts names {} twice", host);
  }
  return {};
}

Result<Job> job_from(const RunFlags& flags, int cores, int gpus) {
  Job job;
  const std::string& text = flags.local_ranks;
  if (text == "auto" || text == "cpu") {
    job.local_ranks = cores;
  } else if (text == "gpu") {
    if (gpus == 0) return wrong("-n gpu: this host shows no GPU (/proc/driver/nvidia/gpus, CUDA_VISIBLE_DEVICES)");
    job.local_ranks = gpus / std::max(1, flags.gpus_per_rank);
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), job.local_ranks);
    if (error != std::errc() || end != text.data() + text.size() || job.local_ranks < 1 ||
        job.local_ranks > kMostLocalRanks) {
      return wrong("-n wants the number of ranks of each host, 1 to {}, auto or gpu, and got '{}'", kMostLocalRanks,
                   text);
    }
  }
  if (flags.hosts.empty() && job.local_ranks * flags.gpus_per_rank > gpus) {
    return wrong(
        "-n {} with --gpus-per-rank {} wants {} GPUs, and this host has {} (/proc/driver/nvidia/gpus, "
        "CUDA_VISIBLE_DEVICES)",
        job.local_ranks, flags.gpus_per_rank, job.local_ranks * flags.gpus_per_rank, gpus);
  }
  job.host_count = flags.hosts.empty() ? flags.host_count.value_or(1) : static_cast<int>(flags.hosts.size());
  job.host_rank = flags.host_rank.value_or(0);
  if (flags.min_ranks.value_or(0) > job.rank_count())
    return wrong("--min-ranks is {}, the job has {} ranks", *flags.min_ranks, job.rank_count());
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
  auto hosts = std::make_shared<std::string>(), names = std::make_shared<std::string>(),
       host_count = std::make_shared<std::string>();
  verb->add_option("-n,--nproc-per-node,--nproc_per_node", flags->local_ranks,
                   "ranks on each host: a number, auto (the cores), or gpu (its GPUs)");
  verb->add_option("--gpus-per-rank,--gpus_per_rank", flags->gpus_per_rank,
                   "GPUs that each rank wants: a host with fewer is refused")
      ->check(CLI::Range(0, 64));
  verb->add_option("--log-dir,--log_dir", flags->log_folder, "folder for a log a rank, rank-R.log, beside the stream");
  verb->add_option(
      "--nnodes", *host_count,
      "number of hosts, each of which starts its own `tutti run`; 2:4 is --nnodes 4 with --min-ranks of 2 hosts");
  verb->add_option("--node-rank,--node_rank", flags->host_rank, "which of the hosts this is, from 0");
  verb->add_option("--master-addr,--master_addr", flags->master_address, "address of host 0, where the ranks meet");
  verb->add_option("--master-port,--master_port", flags->master_port, "free port there");
  verb->add_option("--rdzv-endpoint,--rdzv_endpoint", flags->endpoint,
                   "torchrun's word for --master-addr:--master-port, or for the file of --rendezvous");
  verb->add_option("--rdzv-backend,--rdzv_backend", flags->backend, "torchrun's: c10d, static, or file");
  verb->add_option("--rendezvous", flags->rendezvous,
                   "a file that all hosts see, where they meet: no address, number nor key has to be given");
  verb->add_option("--local-addr,--local_addr", flags->local_address,
                   "address of this host for the others (the best interface's)");
  verb->add_option("--host-names,--host_names", *names, "of the hosts by number, for messages: a,b,c");
  verb->add_flag("-m,--module", flags->module, "PROGRAM is a module of Python's: python3 -m PROGRAM");
  add_flags_without_effect(*verb);
  verb->add_option("--hosts", *hosts, "start on these hosts by ssh: a,b,c");
  verb->add_option("--kill-after", flags->kill_after_seconds,
                   "seconds from SIGTERM to SIGKILL when the job is stopped (5)");
  verb->add_option("--max-restarts,--max_restarts", flags->max_restarts,
                   "how many ranks of this host are started again when they fail");
  verb->add_option("--min-ranks,--min_ranks", flags->min_ranks, "go on with fewer ranks, down to so many (all)");
  verb->add_option("--bind", flags->bind,
                   "what each rank is tied to: numa (its GPU's node, else spread), core, none, or auto: numa where "
                   "there are several (auto)");
  verb->add_flag("--no-prefix", flags->no_prefix, "do not put [RANK] before each line of output");
  verb->add_flag("--table", flags->table, "print the ranks and their pids");
  verb->add_flag("--control", flags->control)->group("");
  verb->footer("PROGRAM and its ARGUMENTS follow the flags: tutti run -n 2 PROGRAM [ARGUMENTS]");
  verb->callback([=, &program, &status] {
    flags->program = program;
    flags->hosts = split(*hosts);
    flags->host_names = split(*names);
    if (!host_count->empty() && !read_host_count(*host_count, *flags))
      throw CLI::ValidationError("--nnodes", "wants a number or MIN:MAX and got " + *host_count);
    status = run(*flags);
  });
}

}  // namespace tutti::tools
