// The table of variables and what turns their texts into Settings. It knows kinds of values, not what a setting does;
// of TUTTI_ALGO it takes any text: comm/rules judges that.
#include "core/config.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <regex>
#include <variant>

#include "core/interfaces.h"
#include "core/log.h"
#include "core/nccl_names.h"

extern char** environ;

namespace tutti {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

using Field =
    std::variant<std::monostate, std::string Settings::*, std::optional<ByteCount> Settings::*, ByteCount Settings::*,
                 int Settings::*, bool Settings::*, milliseconds Settings::*, microseconds Settings::*>;

// A kind with '|' lists the only values allowed. No field: the variable is read where it is wanted
// (comm/launch_environment, nccl/place).
struct Entry {
  Variable variable;
  Field field;
  int highest = 0;  // of a number; the lowest is 0
};

constexpr bool kShared = true;

const Entry kEntries[] = {
    {{"TUTTI_RANK", "number", "", "this process's rank, with TUTTI_RANK_COUNT; wins over every launcher's variables"},
     {}},
    {{"TUTTI_RANK_COUNT", "number", "", "how many ranks the job has"}, {}},
    {{"TUTTI_LOCAL_RANK", "number", "", "index among the ranks of this host"}, {}},
    {{"TUTTI_LOCAL_RANK_COUNT", "number", "", "how many ranks this host has"}, {}},
    {{"TUTTI_ADDRESS", "host:port", "", "where the ranks meet: rank 0's host; \"@name\" for ranks on one host"}, {}},
    {{"TUTTI_ROSTER", "text", "",
      "file in which ranks that come and go are listed; set by tutti run --max-restarts or --min-ranks"},
     {}},
    {{"TUTTI_JOB_KEY", "text", "", "secret that the ranks of a job share; strangers without it are turned away"},
     &Settings::job_key},
    {{"TUTTI_LOG", "error|warning|info|debug", "warning", "how much is told on stderr"}, &Settings::log},
    {{"TUTTI_ALGO", "rules", "", "algorithms by collective and bytes: all_reduce:tree:-1M,ring:1M-", kShared},
     &Settings::algo},
    {{"TUTTI_DIRECT_THRESHOLD", "size", "", "largest message for the direct algorithm", kShared},
     &Settings::direct_threshold},
    {{"TUTTI_TREE_THRESHOLD", "size", "", "largest message for trees", kShared}, &Settings::tree_threshold},
    {{"TUTTI_RING_THRESHOLD", "size", "", "smallest message for rings", kShared}, &Settings::ring_threshold},
    {{"TUTTI_CHANNELS", "number", "1",
      "rings that a vector is cut for, every second one the other way round, at most 16", kShared},
     &Settings::channels,
     16},
    {{"TUTTI_ORDER", "any|canonical", "any", "canonical: one order of additions whatever the algorithm", kShared},
     &Settings::order},
    {{"TUTTI_TRANSPORT", "auto|shm|tcp|rdma", "auto",
      "which wires may be used; auto: for each pair the first that works of shm, rdma, tcp; rdma: that one, or tcp "
      "where it does not work",
      kShared},
     &Settings::transport},
    {{"TUTTI_P2P", "auto|0|1", "auto",
      "GPUs of one host use each other's memory: auto: after a test, where each rank has one of its own; 1: also ranks "
      "that share one; 0: never",
      kShared},
     &Settings::p2p},
    {{"TUTTI_ONE_SHOT_THRESHOLD", "size", "",
      "largest all_reduce for the one-shot kernel among GPUs; empty: by predicted time", kShared},
     &Settings::one_shot_threshold},
    {{"TUTTI_TWO_SHOT_THRESHOLD", "size", "",
      "largest all_reduce for the two-shot kernel, larger ones go through the host's memory; empty: by predicted time",
      kShared},
     &Settings::two_shot_threshold},
    {{"TUTTI_CMA", "auto|0|1", "auto",
      "ranks of one host read large messages out of each other's memory by the kernel (process_vm_readv): auto: where "
      "the kernel lets them and measurements favour it; 1: this process also lets others of its user read it where "
      "Yama forbids that; 0: never",
      kShared},
     &Settings::cma},
    {{"TUTTI_CMA_THRESHOLD", "size", "", "smallest message that is read so; empty: as measured", kShared},
     &Settings::cma_threshold},
    {{"TUTTI_SEGMENT", "size", "0", "bytes of one segment; 0: by the transport", kShared}, &Settings::segment},
    {{"TUTTI_SOCKETS", "number", "0", "TCP sockets for each pair of ranks, at most 64; 0: by the library", kShared},
     &Settings::sockets,
     64},
    {{"TUTTI_CRC", "switch", "1", "checksum each TCP frame (CRC32C)", kShared}, &Settings::crc},
    {{"TUTTI_ENCRYPT", "switch", "0", "encrypt TCP between ranks (TLS 1.3, AES-GCM, from the job's key)", kShared},
     &Settings::encrypt},
    {{"TUTTI_CHECK", "switch", "0",
      "check more: checksums in shared memory, an agreed one of results, and whether buffers may be read and written",
      kShared},
     &Settings::check},
    {{"TUTTI_IB_HCA", "names", "",
      "RDMA devices to use: mlx5_0,mlx5_1:1 or mlx5_* or ^mlx5_bond_0 (device:port; ^ excludes); empty: the fastest "
      "that work"},
     &Settings::ib_hca},
    {{"TUTTI_IB_GID_INDEX", "number", "",
      "entry of the GID table, on all devices; empty: RoCE v2, in a subnet of the peer's, IPv4 first"},
     &Settings::ib_gid_index},
    {{"TUTTI_IB_TIMEOUT", "number", "16",
      "how long a queue pair waits for an answer before it sends again: 4.096 us times 2 to this power, at most 31; 0: "
      "for ever"},
     &Settings::ib_timeout,
     31},
    {{"TUTTI_IB_RETRY", "number", "7", "how often it sends again before it fails, at most 7"}, &Settings::ib_retry, 7},
    {{"TUTTI_IB_SL", "number", "0", "service level of RDMA, at most 15"}, &Settings::ib_sl, 15},
    {{"TUTTI_IB_TRAFFIC_CLASS", "number", "0", "traffic class of RDMA packets (four times the DSCP), at most 255"},
     &Settings::ib_traffic_class,
     255},
    {{"TUTTI_IB_QPS", "number", "1", "queue pairs for each pair of ranks and rail, 1 to 8", kShared},
     &Settings::ib_qps,
     8},
    {{"TUTTI_IB_TCP", "switch", "1",
      "a pair of ranks of which no RDMA rail has worked for half of TUTTI_LINK_TIMEOUT goes on over TCP; 0: it waits, "
      "and then fails"},
     &Settings::ib_tcp},
    {{"TUTTI_IB_RELAXED_ORDERING", "switch", "1",
      "devices may write to memory in any order before they say that they are done, where PCIe can"},
     &Settings::ib_relaxed_ordering},
    {{"TUTTI_IB_GPU_DISTANCE", "LOC|PIX|PXB|PHB|SYS", "PXB",
      "how far apart a GPU and an RDMA device may be to work on each other's memory: one PCIe switch (PIX), several "
      "(PXB), the processor (PHB), another one (SYS); LOC: never"},
     &Settings::ib_gpu_distance},
    {{"TUTTI_SIMD", "scalar|avx2|avx512|neon", "", "widest instruction set for reductions; empty: the processor's"},
     &Settings::simd},
    {{"TUTTI_INTERFACE", "names", "", "network interfaces to use: eth0,ib* or ^docker0 or 10.1.0.0/16"},
     &Settings::interface},
    {{"TUTTI_PORT_RANGE", "first-last", "", "ports to listen on; empty: any free one"}, &Settings::port_range},
    {{"TUTTI_PLACE", "text", "", "where this rank runs, as package/NUMA node (1/3); empty: by its CPU affinity"},
     &Settings::place},
    {{"TUTTI_TOPOLOGY_FILE", "text", "",
      "description of the machine, in any form of tutti topo; empty: look at this machine"},
     &Settings::topology_file},
    {{"TUTTI_TOPOLOGY_DUMP", "text", "",
      "file to write the topology to: hwloc XML, or NCCL's where it ends in .nccl.xml"},
     &Settings::topology_dump},
    {{"TUTTI_PROBE", "switch", "1",
      "plan with measured costs: a short probe at the first start here, then its profile; 0: assumed ones", kShared},
     &Settings::probe},
    {{"TUTTI_MEMORY_LIMIT", "size", "8M", "memory that the library may keep for a rank, at least 1M"},
     &Settings::memory_limit},
    {{"TUTTI_TIMEOUT", "duration", "60s", "no progress inside an operation for so long is a failure; 0: never"},
     &Settings::timeout},
    {{"TUTTI_INIT_TIMEOUT", "duration", "120s", "how long start-up may wait for the other ranks"},
     &Settings::init_timeout},
    {{"TUTTI_ABSENT_TIMEOUT", "duration", "1800s", "how long a live rank may stay away from an operation; 0: for ever"},
     &Settings::absent_timeout},
    {{"TUTTI_LINK_TIMEOUT", "duration", "10s",
      "how long a broken link (TCP, RDMA) to a live rank may take to be connected again; 0: a break is the end"},
     &Settings::link_timeout},
    {{"TUTTI_REPORT_AFTER", "duration", "10s",
      "all ranks print what holds an operation up after so long without progress, or half of TUTTI_TIMEOUT; 0: never"},
     &Settings::report_after},
    {{"TUTTI_REPORT_SIGNAL", "text", "USR1",
      "by which signal a rank prints who waits for whom: USR1 or USR2, where the program has no handler of its own for "
      "it; 0: none"},
     {}},
    {{"TUTTI_RECORDER", "text", "",
      "folder of the flight recorder, which keeps its files; empty: XDG_RUNTIME_DIR/tutti, /dev/shm/tutti-UID or "
      "/tmp/tutti-UID; 0: off"},
     &Settings::recorder},
    {{"TUTTI_METRICS", "text", "",
      "where this rank serves Prometheus text: a port of 127.0.0.1 (9400: rank r has 9400 + its local rank), or "
      "\"@name\" (abstract Unix, -RANK behind)"},
     &Settings::metrics},
    {{"TUTTI_NCCL_HOST", "switch", "0",
      "NCCL's calls work on host memory alone, and CUDA is left alone, where there is a driver too (docs/nccl.md)"},
     {}},
    {{"TUTTI_SPIN", "duration", "auto", "how long a wait spins before it sleeps; auto: adaptive"}, &Settings::spin},
};

Status wanted(std::string_view text, std::string_view want) {
  return {Code::invalid_argument, fmt::format("\"{}\" is not {}", text, want)};
}

// Decimal digits only, in range.
bool parse_number(std::string_view text, std::uint64_t& out) {
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, out);
  return !text.empty() && text[0] != '-' && error == std::errc() && stop == end;
}

std::size_t digits_of(std::string_view text) {
  auto end = text.find_first_not_of("0123456789");
  return end == std::string_view::npos ? text.size() : end;
}

std::string to_text(microseconds value) {
  if (value.count() < 0) return "auto";
  if (value.count() % 1000000 == 0) return fmt::format("{}s", value.count() / 1000000);
  if (value.count() % 1000 == 0) return fmt::format("{}ms", value.count() / 1000);
  return fmt::format("{}us", value.count());
}

Status set_text(const Entry& entry, std::string_view text, std::string& out) {
  std::string_view kind = entry.variable.kind;
  if (kind.find('|') != std::string_view::npos) {
    bool allowed = false;
    for (std::string_view rest = kind; !rest.empty();) {
      auto bar = std::min(rest.find('|'), rest.size());
      allowed |= rest.substr(0, bar) == text;
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    if (!allowed) return wanted(text, fmt::format("one of {}", kind));
  }
  out = text;
  return {};
}

Status set_switch(std::string_view text, bool& out) {
  if (text != "0" && text != "1" && text != "on" && text != "off")
    return wanted(text, "a switch: want 0, 1, on or off");
  out = text == "1" || text == "on";
  return {};
}

Status set_count(const Entry& entry, std::string_view text, int& out) {
  std::uint64_t number = 0;
  if (!parse_number(text, number) || number > std::uint64_t(entry.highest))
    return wanted(text, fmt::format("a whole number from 0 to {}", entry.highest));
  out = int(number);
  return {};
}

Status set_milliseconds(std::string_view text, milliseconds& out) {
  auto parsed = parse_duration(text);
  if (!parsed) return parsed.status();
  if (parsed->count() % 1000 != 0) return wanted(text, "a duration in whole milliseconds");
  out = std::chrono::duration_cast<milliseconds>(*parsed);
  return {};
}

Status set(const Entry& entry, std::string_view text, Settings& settings) {
  return std::visit(
      [&](auto field) -> Status {
        using Type = decltype(field);
        if constexpr (std::is_same_v<Type, std::monostate>) {
          return {};
        } else {
          auto& out = settings.*field;
          if constexpr (std::is_same_v<Type, std::string Settings::*>) {
            return set_text(entry, text, out);
          } else if constexpr (std::is_same_v<Type, int Settings::*>) {
            return set_count(entry, text, out);
          } else if constexpr (std::is_same_v<Type, bool Settings::*>) {
            return set_switch(text, out);
          } else if constexpr (std::is_same_v<Type, milliseconds Settings::*>) {
            return set_milliseconds(text, out);
          } else if constexpr (std::is_same_v<Type, microseconds Settings::*>) {
            if (text == "auto") return out = microseconds(-1), Status();
            auto parsed = parse_duration(text);
            return parsed ? (out = *parsed, Status()) : parsed.status();
          } else {
            auto parsed = parse_bytes(text);
            return parsed ? (out = *parsed, Status()) : parsed.status();
          }
        }
      },
      entry.field);
}

std::string text_of(const Entry& entry, const Settings& settings) {
  return std::visit(
      [&](auto field) -> std::string {
        using Type = decltype(field);
        if constexpr (std::is_same_v<Type, std::monostate>) {
          return "";
        } else {
          const auto& value = settings.*field;
          if constexpr (std::is_same_v<Type, std::string Settings::*>)
            return value;
          else if constexpr (std::is_same_v<Type, bool Settings::*>)
            return value ? "1" : "0";
          else if constexpr (std::is_same_v<Type, int Settings::*>)
            return std::to_string(value);
          else if constexpr (std::is_same_v<Type, ByteCount Settings::*>)
            return tutti::to_text(value);
          else if constexpr (std::is_same_v<Type, std::optional<ByteCount> Settings::*>)
            return value ? tutti::to_text(*value) : "";
          else
            return to_text(microseconds(value));
        }
      },
      entry.field);
}

// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

constexpr ByteCount kLeastMemory = 1ull << 20;   // below, transports could not keep two large segments under way

Status check_grammar(const Settings& settings) {
  if (Status status = check_interface_rule(settings.interface); !status)
    return {status.code(), "TUTTI_INTERFACE=" + settings.interface + ": " + status.text()};
  auto range = parse_port_range(settings.port_range);
  if (!range) return {Code::invalid_argument, "TUTTI_PORT_RANGE=" + settings.port_range + ": " + range.status().text()};
  const std::string& metrics = settings.metrics;
  int port = 0;
  const auto [end, error] = std::from_chars(metrics.data(), metrics.data() + metrics.size(), port);
  const bool is_port = error == std::errc() && end == metrics.data() + metrics.size() && port > 0 && port < 65536;
  if (!metrics.empty() && !is_port && (metrics[0] != '@' || metrics.size() < 2))
    return {Code::invalid_argument,
            "TUTTI_METRICS=" + metrics + ": want a port from 1 to 65535, or \"@name\" for an abstract Unix socket"};
  static const std::regex devices(R"(\^?([\w.-]+\*?|\*)(:\d+)?(,([\w.-]+\*?|\*)(:\d+)?)*)");
  if (!settings.ib_hca.empty() && !std::regex_match(settings.ib_hca, devices))
    return {Code::invalid_argument, "TUTTI_IB_HCA=" + settings.ib_hca +
                                        ": want devices such as mlx5_0, mlx5_0:1 or mlx5_*, separated by commas, with "
                                        "^ in front of all to exclude them"};
  std::uint64_t gid = 0;
  if (!settings.ib_gid_index.empty() && (!parse_number(settings.ib_gid_index, gid) || gid > 255))
    return {Code::invalid_argument,
            "TUTTI_IB_GID_INDEX=" + settings.ib_gid_index + ": want a whole number from 0 to 255"};
  if (settings.ib_qps < 1) return {Code::invalid_argument, "TUTTI_IB_QPS=0: want a whole number from 1 to 8"};
  if (settings.memory_limit < kLeastMemory)
    return {Code::invalid_argument, "TUTTI_MEMORY_LIMIT=" + tutti::to_text(settings.memory_limit) + ": want at least " +
                                        tutti::to_text(kLeastMemory)};
  return {};
}

void complain_about(std::span<const std::string> names) {
  for (const std::string& name : names)
    if (std::string text = complaint_about_name(name); !text.empty()) log::write_once(log::Level::warning, text);
}

log::Level level_from(std::string_view name) {
  if (name == "error") return log::Level::error;
  if (name == "info") return log::Level::info;
  return name == "debug" ? log::Level::debug : log::Level::warning;
}

}  // namespace

Result<ByteCount> parse_bytes(std::string_view text) {
  constexpr std::string_view kWant =
      "a size: want a whole number of bytes, with K, M, G or T behind it if wished, such as 64K";
  std::size_t digits = digits_of(text);
  std::uint64_t number = 0;
  if (!parse_number(text.substr(0, digits), number)) return wanted(text, kWant);
  std::string_view unit = text.substr(digits);
  int shift = 0;
  if (!unit.empty() && unit != "B") {
    auto at = std::string_view("KMGT").find(char(unit[0] & ~0x20));
    bool letter = (unit[0] >= 'a' && unit[0] <= 'z') || (unit[0] >= 'A' && unit[0] <= 'Z');
    if (!letter || at == std::string_view::npos) return wanted(text, kWant);
    shift = 10 * (int(at) + 1);
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "iB") return wanted(text, kWant);
  }
  if (shift > 0 && number > (std::numeric_limits<std::uint64_t>::max() >> shift))
    return wanted(text, "a size: it exceeds 64 bits");
  return ByteCount(number << shift);
}

std::string to_text(ByteCount bytes) {
  for (int i = 4; i >= 1; --i)
    if (bytes != 0 && bytes % (1ull << (10 * i)) == 0) return std::to_string(bytes >> (10 * i)) + "?KMGT"[i];
  return std::to_string(bytes);
}

Result<microseconds> parse_duration(std::string_view text) {
  constexpr std::string_view kWant =
      "a duration: want a whole number of seconds, or one with us, ms, s, m or h behind it, such as 500ms";
  struct Unit {
    std::string_view name;
    std::uint64_t microseconds;
  };
  constexpr Unit kUnits[] = {{"", 1000000},  {"us", 1},       {"ms", 1000},
                             {"s", 1000000}, {"m", 60000000}, {"h", 3600000000}};
  constexpr std::uint64_t kHighest = 366ull * 24 * 3600 * 1000000;  // a year: far from overflow in nanoseconds
  std::size_t digits = digits_of(text);
  std::uint64_t number = 0;
  if (!parse_number(text.substr(0, digits), number)) return wanted(text, kWant);
  for (const Unit& unit : kUnits) {
    if (unit.name != text.substr(digits)) continue;
    if (number > kHighest / unit.microseconds) return wanted(text, "a duration: at most a year is");
    return microseconds(number * unit.microseconds);
  }
  return wanted(text, kWant);
}

Result<PortRange> parse_port_range(std::string_view text) {
  if (text.empty()) return PortRange{};
  auto dash = text.find('-');
  std::uint64_t first = 0, last = 0;
  bool good = parse_number(text.substr(0, dash), first);
  good = good && parse_number(dash == std::string_view::npos ? text : text.substr(dash + 1), last);
  if (!good || first == 0 || last > 65535 || first > last) return wanted(text, "a range of ports, such as 40000-40100");
  return PortRange{int(first), int(last)};
}

std::uint64_t Settings::shared_hash() const {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const Entry& entry : kEntries) {
    if (!entry.variable.shared) continue;
    for (char c : fmt::format("{}={}\n", entry.variable.name, text_of(entry, *this)))
      hash = (hash ^ std::uint8_t(c)) * 0x100000001b3ull;
  }
  return hash;
}

std::string Settings::shared_text() const {
  std::string out;
  const Settings defaults;
  for (const Entry& entry : kEntries) {
    std::string text = text_of(entry, *this);
    if (!entry.variable.shared || text == text_of(entry, defaults)) continue;
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", entry.variable.name, text);
  }
  return out;
}

std::span<const Variable> variables() {
  static const std::vector<Variable> table = [] {
    std::vector<Variable> out;
    for (const Entry& entry : kEntries) out.push_back(entry.variable);
    return out;
  }();
  return table;
}

std::string complaint_about_name(std::string_view name) {
  if (name.substr(0, 6) != "TUTTI_") return "";
  const Variable* nearest = nullptr;
  std::size_t distance = 0;
  for (const Variable& variable : variables()) {
    std::size_t d = edit_distance(name, variable.name);
    if (d == 0) return "";
    if (!nearest || d < distance) nearest = &variable, distance = d;
  }
  return fmt::format("{} is not a setting of tutti and has no effect; the nearest one is {}", name, nearest->name);
}

Result<Settings> read_settings(const ReadVariable& read, std::span<const std::string> all_names) {
  Settings settings;
  const auto tell = [](const std::string& text) { log::write_once(log::Level::warning, text); };
  for (const Entry& entry : kEntries) {
    std::string name(entry.variable.name), foreign;
    const char* text = read(name.c_str());
    if (!text || !*text) {
      if (std::holds_alternative<std::monostate>(entry.field)) continue;
      foreign = from_nccl(name, read, tell).value_or("");
      text = foreign.c_str();
    }
    if (!*text) continue;
    Status status = set(entry, text, settings);
    if (!status) return Status(status.code(), fmt::format("{}={}: {}", name, text, status.text()));
  }
  tell_nccl_without_effect(read, tell);
  if (Status status = check_grammar(settings); !status) return status;
  complain_about(all_names);
  return settings;
}

Result<Settings> read_settings() {
  std::vector<std::string> names;
  for (char** at = environ; at && *at; ++at) {
    std::string_view pair(*at);
    names.emplace_back(pair.substr(0, pair.find('=')));
  }
  auto settings = read_settings([](const char* name) { return std::getenv(name); }, {});
  if (settings) log::set_level(level_from(settings->log));
  complain_about(names);
  return settings;
}

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

}  // namespace tutti
