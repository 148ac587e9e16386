#include "perf/driver/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace tutti::perf {
namespace {

Parsed refused(const std::string& program, const std::string& text) {
  return {std::nullopt, kExitUsage, fmt::format("{}: {}\n", program, Status(Code::invalid_argument, text).to_string())};
}

// Thrown inside parsing only, where CLI11 turns it into its error for the option.
[[noreturn]] void refuse(const std::string& option, const std::string& text, const std::string& wanted) {
  throw CLI::ValidationError(option, fmt::format("'{}' is not {}", text, wanted));
}

std::size_t bytes_from(const std::string& option, const std::string& text) {
  const char* const wanted = "a number of bytes such as 8, 64K, 128M or 2G";
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) refuse(option, text, wanted);
  const std::string suffix(end, text.data() + text.size());
  static constexpr std::array<std::array<const char*, 6>, 5> kSuffixes{{{"", "", "B", "b", "", ""},
                                                                        {"K", "k", "KB", "kB", "KiB", "kb"},
                                                                        {"M", "m", "MB", "mB", "MiB", "mb"},
                                                                        {"G", "g", "GB", "gB", "GiB", "gb"},
                                                                        {"T", "t", "TB", "tB", "TiB", "tb"}}};
  for (std::size_t power = 0; power < kSuffixes.size(); ++power) {
    if (std::find(kSuffixes[power].begin(), kSuffixes[power].end(), suffix) == kSuffixes[power].end()) continue;
    if (value > std::numeric_limits<std::size_t>::max() / 4 >> (10 * power))
      refuse(option, text, "a size that memory has");
    return value << (10 * power);
  }
  refuse(option, text, wanted);
}

std::vector<DataType> types_from(const std::string& text) {
  std::vector<DataType> all;
  for (int i = 0; i < kDataTypeCount; ++i) all.push_back(DataType(i));
  if (text == "all") return all;
  if (const auto type = data_type_from(text)) return {*type};
  std::string names;
  for (DataType type : all) names += table_name(type) + ", ";
  refuse("-d", text, "a type (" + names + "all)");
}

std::vector<ReduceOp> ops_from(const std::string& text) {
  std::vector<ReduceOp> all;
  for (int i = 0; i < kReduceOpCount; ++i) all.push_back(ReduceOp(i));
  if (text == "all") return all;
  if (const auto op = reduce_op_from(text)) return {*op};
  std::string names;
  for (ReduceOp op : all) names += table_name(op) + ", ";
  refuse("-o", text, "a reduction (" + names + "all)");
}

int whole_from(const std::string& option, const std::string& text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least)
    refuse(option, text, fmt::format("a whole number of at least {}", least));
  return value;
}

// -c takes a number of checked iterations; --check also the way of checking.
void check_from(Options& o, const std::string& text) {
  if (text == "exact")
    o.check = Check::exact;
  else if (text == "random")
    o.check = Check::random;
  else
    o.checks = whole_from("-c", text, 0);
}

void memory_from(Options& o, const std::string& text) {
  if (text == "0" || text == "1")
    o.memory_report = text == "1";  // nccl-tests' --memory
  else if (text == "host" || text == "allocated" || text == "cuda")
    o.memory = text == "host" ? Memory::host : text == "cuda" ? Memory::cuda : Memory::allocated;
  else
    refuse("--memory", text, "host, allocated or cuda");
}

AddedRun added_from(const std::string& text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos) return {text, ""};
  return {text.substr(0, comma), text.substr(comma + 1)};
}

// A text option whose values go through `read`, the last one counting.
template <class Read>
CLI::Option* add(CLI::App& app, const std::string& names, const std::string& help, const std::string& value,
                 Read read) {
  return app
      .add_option_function<std::vector<std::string>>(
          names,
          [read](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) read(text);
          },
          help)
      ->type_name(value)
      ->allow_extra_args(false)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

CLI::Option* add_int(CLI::App& app, const std::string& names, const std::string& help, int& into, int least) {
  const std::string first = names.substr(0, names.find(','));
  return add(app, names, help, "N",
             [&into, first, least](const std::string& text) { into = whole_from(first, text, least); });
}

CLI::Option* add_bool(CLI::App& app, const std::string& names, const std::string& help, bool& into) {
  const std::string first = names.substr(0, names.find(','));
  return add(app, names, help, "0|1", [&into, first](const std::string& text) {
    if (text != "0" && text != "1") refuse(first, text, "0 or 1");
    into = text == "1";
  });
}

double real_from(const std::string& option, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    refuse(option, text, "a number of at least 0");
  return value;
}

void add_sweep(CLI::App& app, Options& o, bool& min_said, bool& max_said) {
  const char* const group = "Sweep";
  add(app, "-b,--minbytes", "smallest size (default 32M); K, M, G are binary", "BYTES", [&](const std::string& text) {
    o.min_bytes = bytes_from("-b", text), min_said = true;
  })->group(group);
  add(app, "-e,--maxbytes", "largest size (default 32M, or -b where that is larger)", "BYTES",
      [&](const std::string& text) { o.max_bytes = bytes_from("-e", text), max_said = true; })
      ->group(group);
  add(app, "-i,--stepbytes", "step between sizes (default 1M)", "BYTES", [&o](const std::string& text) {
    o.step_bytes = bytes_from("-i", text);
    if (o.step_bytes == 0) refuse("-i", text, "a step above 0");
  })->group(group);
  add(app, "-f,--stepfactor", "factor between sizes, instead of a step", "N", [&o](const std::string& text) {
    o.step_factor = std::size_t(whole_from("-f", text, 2));
  })->group(group);
  add(app, "-d,--datatype", "type of the elements, or all (default float)", "TYPE", [&o](const std::string& text) {
    o.types = types_from(text);
  })->group(group);
  add(app, "-o,--op", "reduction, or all (default sum)", "OP", [&o](const std::string& text) {
    o.ops = ops_from(text);
  })->group(group);
  add(app, "-r,--root", "root rank, or all (default 0)", "RANK", [&o](const std::string& text) {
    o.all_roots = text == "all";
    o.root = o.all_roots ? 0 : whole_from("-r", text, 0);
  })->group(group);
  add_int(app, "-N,--run_cycles", "how often to run the sweep (default 1); 0: until interrupted", o.cycles, 0)
      ->group(group);
}

void add_ranks(CLI::App& app, Options& o) {
  const char* const group = "Ranks";
  add_int(app, "-g,--ngpus", "processes to start, each a rank (default: one a core, at least 2)", o.processes, 1)
      ->group(group);
  add_int(app, "-t,--nthreads", "ranks in each process, as threads (default 1)", o.threads, 1)->group(group);
  add_bool(app, "-p,--parallel_init", "accepted: ranks always start in parallel", o.parallel_init)->group(group);
}

void add_timing(CLI::App& app, Options& o) {
  const char* const group = "Timing";
  add(app, "-n,--iters", "timed iterations (default: 20, and more for small sizes)", "N",
      [&o](const std::string& text) { o.iterations = whole_from("-n", text, 1), o.iterations_said = true; })
      ->group(group);
  add_int(app, "-w,--warmup_iters", "iterations before them (default 5)", o.warmup, 0)->group(group);
  add_int(app, "-m,--agg_iters", "operations started together in one iteration (default 1)", o.aggregate, 1)
      ->group(group);
  add(app, "-z,--blocking", "after an iteration: 0, 2 wait; 1 wait and barrier; 3 wait and barrier after all of -m",
      "0..3",
      [&o](const std::string& text) {
        if (whole_from("-z", text, 0) > 3) refuse("-z", text, "0, 1, 2 or 3");
        o.blocking = Blocking(text[0] - '0');
      })
      ->group(group);
  add(app, "-a,--average", "of all ranks' times: 0 rank 0's, 1 mean (default), 2 min, 3 max", "0..3",
      [&o](const std::string& text) {
        if (whole_from("-a", text, 0) > 3) refuse("-a", text, "0, 1, 2 or 3");
        o.average = Average(text[0] - '0');
      })
      ->group(group);
  add(app, "-T,--timeout", "give an operation up after so many seconds", "SECONDS", [&o](const std::string& text) {
    o.timeout_s = real_from("-T", text);
  })->group(group);
  add_int(app, "-u,--unalign", "move the buffers by so many elements (default 0)", o.unalign, 0)->group(group);
  add_int(app, "-K,--per_iter_skip", "iterations that percentiles leave out (default 0)", o.skip, 0)->group(group);
}

void add_results(CLI::App& app, Options& o) {
  const char* const group = "Results";
  add(app, "-c,--check", "iterations to check (default 1; 0: none), or how: exact (default), random", "N|exact|random",
      [&o](const std::string& text) { check_from(o, text); })
      ->group(group);
  add(app, "--min-busbw", "fail (status 7) when the average bus bandwidth is below, in GB/s", "X",
      [&o](const std::string& text) { o.min_busbw = real_from("--min-busbw", text); })
      ->group(group);
  add_bool(app, "-C,--report_cputime", "show CPU time instead of elapsed time", o.cpu_time)->group(group);
  add_bool(app, "-S,--report_timestamps", "add the time of day to each row", o.timestamps)->group(group);
  add_bool(app, "-I,--per_iter_timing", "add minimum, percentiles and spread of single iterations", o.per_iteration)
      ->group(group);
  add_bool(app, "-M,--memory-report", "tell the memory that buffers and library take", o.memory_report)->group(group);
  add(app, "-R,--local_register", "1: buffers by tutti::allocate, which ranks of one host read in place, as --memory allocated", "0|1",
      [&o](const std::string& text) {
        if (text != "0" && text != "1") refuse("-R", text, "0 or 1 (2, symmetric windows, is of GPUs)");
        o.local_register = text == "1";
        if (!o.local_register && o.memory == Memory::allocated) o.memory = Memory::host;
      })
      ->group(group);
  add(app, "--memory", "where buffers lie: host, allocated (by tutti::allocate), or cuda (ranks take the GPUs of their host in turn)", "host|allocated|cuda", [&o](const std::string& text) {
    memory_from(o, text);
  })->group(group);
  const auto file = [&](const char* names, const char* help, std::string& into) {
    add(app, names, help, "FILE", [&into, names](const std::string& text) {
      if (text.empty()) refuse(names, text, "a file's name");
      into = text;
    })->group(group);
  };
  file("-J,--json,--output_file", "write the results as JSON", o.json);
  file("--csv", "write the results as CSV, a line a size", o.csv);
  file("--plot", "draw bus bandwidth over size, as SVG", o.plot);
  add(app, "--plot-add", "draw an earlier run's JSON too; repeatable", "FILE[,LABEL]", [&o](const std::string& text) {
    o.plot_add.push_back(added_from(text));
  })->group(group);
  add_int(app, "--member", "", o.member_fd, 0)->group("");
}

// nccl-tests' flags for things that there are not: valid at their default only.
void add_refused(CLI::App& app) {
  const auto refused = [&app](const char* names, const char* value, const char* reason) {
    add(app, names, fmt::format("only {}: {}", value, reason), "N", [=](const std::string& text) {
      if (text != value) throw CLI::ValidationError(names, fmt::format("'{}' cannot be obeyed: {}", text, reason));
    })->group("Of nccl-tests, without a meaning here");
  };
  refused("-G,--cudagraph", "0", "operations are not captured into CUDA graphs, on host memory nor on a GPU's: the host takes part");
  refused("-x,--cta_policy", "0", "thread blocks are not chosen, and there are none on host memory");
  refused("-D,--device_implementation", "0", "there is no device API, on host memory nor on a GPU's");
  refused("-V,--device_cta_count", "16", "thread blocks are not chosen, and there are none on host memory");
  refused("-y,--stream_null", "0", "each rank on a GPU has a stream of its own, and there are none on host memory");
}

// What no single option can see. Empty when all is well.
std::string contradiction(Options& o, bool min_said, bool max_said) {
  if (!max_said) o.max_bytes = std::max(o.max_bytes, o.min_bytes);
  if (!min_said) o.min_bytes = std::min(o.min_bytes, o.max_bytes);
  if (o.min_bytes > o.max_bytes) return fmt::format("-b {} is above -e {}", o.min_bytes, o.max_bytes);
  if (o.cycles == 0 && !(o.json + o.csv + o.plot).empty())
    return "-N 0 never ends, so there is no end to write a file at";
  if (o.local_register && o.memory == Memory::cuda)
    return "-R 1 is of host memory, and GPUs' needs no registration: leave it out with --memory cuda";
  if (o.local_register) o.memory = Memory::allocated;
  if (!o.plot_add.empty() && o.plot.empty()) return "--plot-add needs --plot";
  if (o.iterations_said && o.skip >= o.iterations) return "-K leaves no iteration of -n";
  return "";
}

}  // namespace

Parsed parse_options(const std::string& program, const std::vector<std::string>& args) {
  Options o;
  bool min_said = false, max_said = false;
  CLI::App app{"Measures a collective operation over a sweep of sizes. Sizes, flags and table as in nccl-tests.",
               program};
  app.set_help_flag("-h,--help", "this text");
  app.get_formatter()->column_width(36);
  add_ranks(app, o);
  add_sweep(app, o, min_said, max_said);
  add_timing(app, o);
  add_results(app, o);
  add_refused(app);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    return {std::nullopt, kExitOk, app.help()};
  } catch (const CLI::ParseError& error) {
    return refused(program, fmt::format("{} (-h shows all options)", error.what()));
  }
  if (const std::string text = contradiction(o, min_said, max_said); !text.empty())
    return refused(program, text);
  return {o, kExitOk, ""};
}

std::vector<std::size_t> sizes_of(const Options& o) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = o.min_bytes; size <= o.max_bytes;) {
    sizes.push_back(size);
    if (o.step_factor == 0)
      size += o.step_bytes;
    else
      size = size == 0 ? 8 : size * o.step_factor;
  }
  return sizes;
}

std::string table_name(DataType type) {
  static constexpr std::array<const char*, kDataTypeCount> kNames{
      "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "bfloat16", "float", "double", "f8e4m3", "f8e5m2"};
  return kNames.at(std::size_t(type));
}

std::string table_name(ReduceOp op) { return op == ReduceOp::premul_sum ? "mulsum" : std::string(name_of(op)); }

}  // namespace tutti::perf
