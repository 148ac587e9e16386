#pragma once
// Facts: what one host says of itself, as a value. Reading them changes nothing but one file that is written and
// removed. They judge nothing: that is findings.h.
#include <cstdint>
#include <string>
#include <vector>

#include "tools/doctor/json_fields.h"

namespace tutti::tools::doctor {

struct PciLink {
  std::string device;              // "eth0 (0000:3b:00.0)"
  double rate = 0, most_rate = 0;  // GT/s a lane: now, and what the device can
  int width = 0, most_width = 0;   // lanes
  static void fields(auto& self, auto&& visit) {
    visit("device", self.device), visit("rate", self.rate), visit("most_rate", self.most_rate);
    visit("width", self.width), visit("most_width", self.most_width);
  }
};

struct Interface {
  std::string name, driver;
  std::vector<std::string> addresses;                     // "10.0.0.1/24"
  bool up = false, loopback = false, is_virtual = false;  // virtual: no device behind it (veth, bridge)
  std::int64_t megabits = 0;                              // a second, as the driver states it; 0: it does not
  std::string duplex;                                     // "full", "half"; "": the driver does not say
  std::string pause;                                      // flow control: "rx tx", "rx", "tx", "off"; "": not known
  int mtu = 0;
  std::uint64_t packets = 0, errors = 0, dropped = 0;  // both ways, since the interface exists
  static void fields(auto& self, auto&& visit) {
    visit("name", self.name), visit("driver", self.driver), visit("addresses", self.addresses), visit("up", self.up);
    visit("loopback", self.loopback), visit("virtual", self.is_virtual), visit("megabits", self.megabits);
    visit("duplex", self.duplex), visit("pause", self.pause);
    visit("mtu", self.mtu), visit("packets", self.packets), visit("errors", self.errors);
    visit("dropped", self.dropped);
  }
};

struct RdmaPort {
  std::string device, state, link_layer, rate;  // "mlx5_0", "ACTIVE", "Ethernet", "100 Gb/sec (4X EDR)"
  int port = 1;
  std::vector<std::string> gids;  // "3: 0000:…:ffff:0a00:0001 RoCE v2 eth0"; empty ones left out
  static void fields(auto& self, auto&& visit) {
    visit("device", self.device), visit("port", self.port), visit("state", self.state);
    visit("link_layer", self.link_layer), visit("rate", self.rate), visit("gids", self.gids);
  }
};

// What a name, or an address, came to on this host.
struct Lookup {
  std::string name;
  std::vector<std::string> addresses;  // numeric, without port
  std::string error;                   // the resolver's text when there are none
  double milliseconds = 0;
  static void fields(auto& self, auto&& visit) {
    visit("name", self.name), visit("addresses", self.addresses), visit("error", self.error);
    visit("milliseconds", self.milliseconds);
  }
};

struct Disk {
  std::string folder, error;  // error: why nothing was measured
  std::uint64_t free_bytes = 0;
  double bytes_per_second = 0;  // written and synced
  static void fields(auto& self, auto&& visit) {
    visit("folder", self.folder), visit("error", self.error), visit("free_bytes", self.free_bytes);
    visit("bytes_per_second", self.bytes_per_second);
  }
};

// A libnccl that processes of this host have loaded.
struct LoadedLibrary {
  std::string path, tutti;               // tutti: its version where it is ours, else ""
  std::vector<std::string> processes;    // "python3 (pid 411)"
  static void fields(auto& self, auto&& visit) {
    visit("path", self.path), visit("tutti", self.tutti), visit("processes", self.processes);
  }
};

inline constexpr std::uint64_t kUnlimited = ~0ull;

struct Facts {
  std::string host;            // its own name
  std::uint64_t identity = 0;  // equal: one kernel and one network namespace
  int rank = 0, local_rank = 0;
  std::string version, settings;  // of the library; shared settings that are not at their default
  unsigned wire = 0;
  std::string kernel, processor, driver, cuda;  // driver and CUDA: of NVIDIA GPUs, "" without
  std::vector<std::string> gpus;
  std::vector<LoadedLibrary> nccl;
  int cores = 0;     // by affinity
  double quota = 0;  // cores' worth of time that the cgroup allows; 0: no quota
  std::uint64_t memory = 0, memory_available = 0, shm = 0, shm_free = 0;  // bytes
  std::uint64_t open_files = 0, locked_memory = 0;                        // soft limits; kUnlimited
  std::vector<Interface> interfaces;
  std::vector<std::string> chosen;           // addresses that the library offers to peers, best first
  std::string chosen_error, interface_rule;  // TUTTI_INTERFACE, and what is wrong with it
  std::vector<RdmaPort> rdma;
  std::vector<PciLink> pci;
  std::uint64_t segments_sent = 0, segments_resent = 0;  // TCP, of the network namespace, since it exists
  Lookup meeting;                                        // the address where ranks meet; empty on one host
  double clock = 0;                                      // seconds since 1970 when the facts were read
  Disk disk;
  static void fields(auto& self, auto&& visit) {
    visit("host", self.host), visit("identity", self.identity), visit("rank", self.rank);
    visit("local_rank", self.local_rank), visit("version", self.version), visit("settings", self.settings);
    visit("wire", self.wire), visit("kernel", self.kernel), visit("processor", self.processor);
    visit("driver", self.driver), visit("cuda", self.cuda), visit("gpus", self.gpus), visit("nccl", self.nccl),
        visit("cores", self.cores);
    visit("quota", self.quota), visit("memory", self.memory), visit("memory_available", self.memory_available);
    visit("shm", self.shm), visit("shm_free", self.shm_free), visit("open_files", self.open_files);
    visit("locked_memory", self.locked_memory), visit("interfaces", self.interfaces), visit("chosen", self.chosen);
    visit("chosen_error", self.chosen_error), visit("interface_rule", self.interface_rule), visit("rdma", self.rdma);
    visit("pci", self.pci), visit("segments_sent", self.segments_sent);
    visit("segments_resent", self.segments_resent), visit("meeting", self.meeting), visit("clock", self.clock);
    visit("disk", self.disk);
  }
};

// "h1", or "h1 (rank 3)" where hosts share a name: see name_hosts().
std::vector<std::string> name_hosts(const std::vector<Facts>& hosts);
// The interface that holds `address` (numeric, without prefix); nullptr when none does.
const Interface* interface_of(const Facts& facts, const std::string& address);

struct FactsWish {
  int rank = 0, local_rank = 0;
  std::string meeting_host;       // looked up; "": none
  std::string disk_folder = ".";  // "": nothing is written
  std::string root;               // before /sys and /proc, for tests
};
// At most about a second: the disk's measurement ends after half a one, and name servers have their own limits.
Facts read_facts(const FactsWish& wish);

// Blocking look-up, numeric results without port.
Lookup look_up(const std::string& host);
bool all_loopback(const std::vector<std::string>& addresses);  // and there are some
// Packets sent and sent again by TCP in this network namespace; for differences over a test.
void read_tcp_counters(const std::string& root, std::uint64_t& sent, std::uint64_t& resent);
double clock_now();  // seconds since 1970

}  // namespace tutti::tools::doctor
