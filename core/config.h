#pragma once
// Every environment variable, in one table: name, kind, default, what it does. The only place that calls getenv for
// TUTTI_* names. A value that cannot be parsed is an error that names variable, value and what was wanted; an unknown
// TUTTI_* name is reported with the nearest known one.
#include <tutti/status.h>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

using ByteCount = std::uint64_t;

// "8", "64K", "1M", "2G" (binary suffixes, B or iB allowed behind them). Errors say what was wanted, without a
// variable's name.
Result<ByteCount> parse_bytes(std::string_view text);
std::string to_text(ByteCount bytes);  // "64K" where exact, else the number

// The settings of one rank. A value copies and compares; hash() of it is compared among the ranks at start.
struct Settings {
  std::string log = "warning";                        // TUTTI_LOG
  std::string algo;                                   // TUTTI_ALGO: rules, see comm/rules.h
  std::optional<ByteCount> tree_threshold;            // TUTTI_TREE_THRESHOLD
  std::optional<ByteCount> ring_threshold;            // TUTTI_RING_THRESHOLD
  std::optional<ByteCount> direct_threshold;          // TUTTI_DIRECT_THRESHOLD
  int channels = 1;                                   // TUTTI_CHANNELS: rings at once
  std::string transport = "auto";                     // TUTTI_TRANSPORT: auto, shm, tcp, rdma
  std::string p2p = "auto";                           // TUTTI_P2P: memory of other GPUs: auto, 0, 1
  std::optional<ByteCount> one_shot_threshold;        // TUTTI_ONE_SHOT_THRESHOLD
  std::optional<ByteCount> two_shot_threshold;        // TUTTI_TWO_SHOT_THRESHOLD
  std::string cma = "auto";                           // TUTTI_CMA: memory of other processes of the host: auto, 0, 1
  std::optional<ByteCount> cma_threshold;             // TUTTI_CMA_THRESHOLD
  std::string order = "any";                          // TUTTI_ORDER: any, canonical
  ByteCount segment = 0;                              // TUTTI_SEGMENT: 0 = by transport
  int sockets = 0;                                    // TUTTI_SOCKETS: per pair; 0 = by the library
  bool crc = true;                                    // TUTTI_CRC: CRC32C on TCP frames
  bool encrypt = false;                               // TUTTI_ENCRYPT: TLS 1.3 on TCP between ranks
  bool check = false;  // TUTTI_CHECK: checksums of shared memory and results, and of arguments
  std::string place;                                  // TUTTI_PLACE: package/numa of this rank
  bool probe = true;                                  // TUTTI_PROBE: measured figures rather than assumed ones
  ByteCount memory_limit = 8ull << 20;                // TUTTI_MEMORY_LIMIT: bytes that the library keeps for a rank
  std::chrono::milliseconds timeout{60000};           // TUTTI_TIMEOUT: no progress inside an operation; 0 = never
  std::chrono::milliseconds init_timeout{120000};     // TUTTI_INIT_TIMEOUT
  std::chrono::milliseconds absent_timeout{1800000};  // TUTTI_ABSENT_TIMEOUT
  std::chrono::milliseconds link_timeout{10000};      // TUTTI_LINK_TIMEOUT: for a new connection; 0 = none is made
  std::chrono::milliseconds report_after{10000};      // TUTTI_REPORT_AFTER: without progress, a report; 0 = none
  std::string recorder;                               // TUTTI_RECORDER: folder; "" = the user's own, "0" = off
  std::string metrics;                                // TUTTI_METRICS: where Prometheus text is served; "" = nowhere
  std::chrono::microseconds spin{-1};                 // TUTTI_SPIN: -1 = adaptive
  std::string interface;                              // TUTTI_INTERFACE: names, prefix*, ^exclusion, CIDR
  std::string port_range;                             // TUTTI_PORT_RANGE: "40000-40100"
  std::string ib_hca;                                 // TUTTI_IB_HCA: RDMA devices: names, prefix*, ^exclusion
  std::string ib_gid_index;                           // TUTTI_IB_GID_INDEX: a number; "" = by the peer's subnet
  int ib_timeout = 16;  // TUTTI_IB_TIMEOUT: 4.096 us * 2^n without an answer, then a retry
  int ib_retry = 7;                                   // TUTTI_IB_RETRY: so many retries, then the queue pair has failed
  int ib_sl = 0;                                      // TUTTI_IB_SL: service level
  int ib_traffic_class = 0;                           // TUTTI_IB_TRAFFIC_CLASS: of RoCE packets
  int ib_qps = 1;                                     // TUTTI_IB_QPS: queue pairs for each pair of ranks and rail
  bool ib_tcp = true;                                 // TUTTI_IB_TCP: instead of RDMA that stays broken
  bool ib_relaxed_ordering = true;                    // TUTTI_IB_RELAXED_ORDERING: of PCIe
  std::string ib_gpu_distance = "PXB";  // TUTTI_IB_GPU_DISTANCE: LOC, PIX, PXB, PHB, SYS: between GPU and device
  std::string simd;                                   // TUTTI_SIMD: scalar, avx2, avx512, neon
  std::string job_key;                                // TUTTI_JOB_KEY
  std::string topology_file;                          // TUTTI_TOPOLOGY_FILE: as topology::read_file; "" = this machine
  std::string topology_dump;                          // TUTTI_TOPOLOGY_DUMP: written by whoever reads the topology
  bool operator==(const Settings&) const = default;
  // Of those settings that all ranks must share (algo, thresholds, order, segment, ...).
  std::uint64_t shared_hash() const;
  std::string shared_text() const;  // "TUTTI_ORDER=canonical TUTTI_ALGO=ring": the shared ones that are not at default
};

struct Variable {
  std::string_view name, kind, default_text, meaning;
  bool shared = false;  // must be equal on all ranks
};
std::span<const Variable> variables();  // sorted as documented: who, what to choose, limits

// For a TUTTI_* name that is not in the table: a sentence with the nearest one that is. Empty for names that are, and
// for others.
std::string complaint_about_name(std::string_view name);

// First and last port, both included; {0, 0} for "": any.
struct PortRange {
  int first = 0, last = 0;
  bool operator==(const PortRange&) const = default;
};
Result<PortRange> parse_port_range(std::string_view text);
// "30" (seconds), "500ms", "20us", "2m", "1h". As for parse_bytes, errors say what was wanted.
Result<std::chrono::microseconds> parse_duration(std::string_view text);

using ReadVariable = std::function<const char*(const char* name)>;
// From the process's environment; also sets the log level. Both warn about unknown TUTTI_* names (once a process).
Result<Settings> read_settings();
Result<Settings> read_settings(const ReadVariable& read, std::span<const std::string> all_names);
// One variable of the process's environment, for code that reads other programs' names (RANK, SLURM_PROCID). "" when
// unset.
std::string environment(const char* name);

}  // namespace tutti
