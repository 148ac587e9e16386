// What one host's facts come to; and which facts differ between hosts. See findings.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "tools/doctor/findings.h"
#include "topology/pci_speed.h"

namespace tutti::tools::doctor {
namespace {

constexpr std::uint64_t kMiB = 1u << 20, kGiB = 1u << 30;

class HostFindings {
 public:
  HostFindings(const Facts& facts, std::string name, int rank_count)
      : facts_(facts), name_(std::move(name)), ranks_(rank_count) {}
  std::vector<Finding> all() {
    names();
    addresses();
    overlaps();
    limits();
    shared_memory();
    quota();
    links();
    nics();
    tcp();
    pci();
    rdma();
    gpus();
    libraries();
    disk();
    return std::move(out_);
  }

 private:
  void add(const char* topic, Verdict verdict, std::string text, std::string cure = "") {
    out_.push_back({topic, name_, verdict, std::move(text), std::move(cure)});
  }
  void names();
  void addresses();
  void overlaps();
  void limits();
  void shared_memory();
  void quota();
  void links();
  bool carries_rdma(const std::string& interface) const;
  void nics();
  void tcp();
  void pci();
  void rdma();
  void gpus();
  void libraries();
  void disk();

  const Facts& facts_;
  const std::string name_;
  const int ranks_;
  std::vector<Finding> out_;
};

void HostFindings::names() {
  constexpr double kSlow = 200, kVerySlow = 2000;  // milliseconds; a file or a cache answers in less than one
  const Lookup& meeting = facts_.meeting;
  if (meeting.name.empty()) return;
  const bool loopback = all_loopback(meeting.addresses);
  if (loopback && facts_.rank > 0 && meeting.name != meeting.addresses[0])
    add("names", Verdict::note,
        fmt::format("'{}', where ranks meet, is {} here: good for ranks of this host only", meeting.name,
                    meeting.addresses[0]),
        fmt::format("remove '{}' from the 127.… lines of /etc/hosts", meeting.name));
  else if (meeting.milliseconds > kSlow)
    add("names", meeting.milliseconds > kVerySlow ? Verdict::warn : Verdict::note,
        fmt::format("looking up '{}' took {:.0f} ms", meeting.name, meeting.milliseconds),
        "a name server does not answer at first: check /etc/resolv.conf, or enter the hosts in /etc/hosts");
  else if (!meeting.addresses.empty() && meeting.name != meeting.addresses[0])
    add("names", Verdict::pass, fmt::format("'{}' is {}", meeting.name, meeting.addresses[0]));
}

void HostFindings::addresses() {
  if (!facts_.chosen_error.empty())
    return add("addresses", Verdict::fail,
               fmt::format("TUTTI_INTERFACE={}: {}", facts_.interface_rule, facts_.chosen_error),
               "name an interface that exists here, a prefix as in eth*, or a network as in 10.1.0.0/16");
  if (facts_.chosen.empty())
    return add("addresses", ranks_ > 1 ? Verdict::warn : Verdict::note,
               "no address but loopback: no other host can reach this one", "bring a network interface up: `ip addr`");
  const Interface* best = interface_of(facts_, facts_.chosen[0]);
  std::string why =
      !facts_.interface_rule.empty() ? fmt::format("TUTTI_INTERFACE={} asks for it", facts_.interface_rule)
      : facts_.chosen.size() == 1    ? "the only one that others can use"
                                     : fmt::format("physical before virtual, IPv4 before IPv6; then {}",
                                                   fmt::join(facts_.chosen.begin() + 1, facts_.chosen.end(), ", "));
  std::string speed = best && best->megabits > 0 ? fmt::format(", {:g} Gb/s", double(best->megabits) / 1e3) : "";
  add("addresses", Verdict::pass,
      fmt::format("offers {}{} ({})", facts_.chosen[0],
                  best ? fmt::format(" on {}{}, MTU {}", best->name, speed, best->mtu) : "", why));
}

// "10.0.0.1/24" -> its network's bits as text, "" for IPv6 and for single hosts.
std::string network_of(const std::string& address) {
  unsigned a = 0, b = 0, c = 0, d = 0, bits = 0;
  if (std::sscanf(address.c_str(), "%u.%u.%u.%u/%u", &a, &b, &c, &d, &bits) != 5 || bits == 0 || bits > 31) return "";
  const std::uint32_t host = a << 24 | b << 16 | c << 8 | d, network = host & ~((1u << (32 - bits)) - 1);
  return fmt::format("{}.{}.{}.{}/{}", network >> 24, network >> 16 & 255, network >> 8 & 255, network & 255, bits);
}

// NVIDIA/nccl#1581: traffic leaves by the interface that was not asked for.
void HostFindings::overlaps() {
  std::map<std::string, std::string> seen;
  for (const Interface& interface : facts_.interfaces) {
    if (!interface.up || interface.loopback) continue;
    for (const std::string& address : interface.addresses) {
      const std::string network = network_of(address);
      if (network.empty()) continue;
      const auto [at, fresh] = seen.emplace(network, interface.name);
      if (!fresh && at->second != interface.name)
        add("addresses", Verdict::warn,
            fmt::format("{} and {} are both in {}: traffic may leave by the other one", at->second, interface.name,
                        network),
            "give each interface a network of its own, or rules for its source address (`ip rule`)");
    }
  }
}

void HostFindings::limits() {
  const std::uint64_t files = facts_.open_files, needed = std::uint64_t(64 + 8 * ranks_);  // sockets, memory, libraries
  const std::string text =
      fmt::format("{} open files allowed (ulimit -n)", files == kUnlimited ? "unlimited" : std::to_string(files));
  if (files < needed)
    add("open files", Verdict::fail, fmt::format("{}; {} ranks may need {}", text, ranks_, needed),
        "`ulimit -n 65536`, or nofile in /etc/security/limits.conf");
  else if (files < 1024)
    add("open files", Verdict::warn, text + ": usual is 1024 or more",
        "`ulimit -n 65536`, or nofile in /etc/security/limits.conf");
  else
    add("open files", Verdict::pass, text);
  const std::uint64_t locked = facts_.locked_memory;
  const std::string lock = fmt::format("{} may be locked (ulimit -l)", bytes_text(locked));
  if (!facts_.rdma.empty() && locked < kGiB)
    add("locked memory", Verdict::warn, lock + ", and there is RDMA here, which locks every buffer",
        "`ulimit -l unlimited`, memlock in /etc/security/limits.conf, or LimitMEMLOCK= of the service");
  else if (locked < kMiB)
    add("locked memory", Verdict::note, lock + ": no RDMA and no pinned buffers with that",
        "`ulimit -l unlimited` if you need them");
  else
    add("locked memory", Verdict::pass, lock);
}

void HostFindings::shared_memory() {
  const std::string text =
      fmt::format("{} of {} free in /dev/shm", bytes_text(facts_.shm_free), bytes_text(facts_.shm));
  if (facts_.shm_free < 4 * kMiB)
    add("shared memory", Verdict::warn, text + ": flight recorders go there, and other libraries' segments",
        "remove old files there, or `mount -o remount,size=8G /dev/shm`; containers: --shm-size");
  else if (facts_.shm <= 64 * kMiB)
    add("shared memory", Verdict::note, text + ": enough for tutti, too little for PyTorch's data loaders and NCCL",
        "containers: --shm-size=8g or --ipc=host");
  else
    add("shared memory", Verdict::pass, text);
  if (facts_.memory > 0 && facts_.memory_available < facts_.memory / 50)
    add("memory", Verdict::warn,
        fmt::format("{} of {} available", bytes_text(facts_.memory_available), bytes_text(facts_.memory)),
        "who uses it: `ps -eo rss,cmd --sort -rss | head`");
}

void HostFindings::quota() {
  const std::string cores = fmt::format("{} core{}", facts_.cores, facts_.cores == 1 ? "" : "s");
  if (facts_.quota <= 0 || facts_.quota >= facts_.cores)
    return add("cores", Verdict::pass, fmt::format("{}, no quota below that ({})", cores, facts_.processor));
  const bool little = facts_.quota < 1;
  add("cores", little ? Verdict::warn : Verdict::note,
      fmt::format("the cgroup allows the time of {:.3g} core{} of {}{}", facts_.quota, facts_.quota == 1 ? "" : "s",
                  facts_.cores, little ? ": a rank stands still for a part of every tenth of a second" : ""),
      "raise cpu.max of the cgroup; containers: --cpus, Kubernetes: limits.cpu");
}

void HostFindings::nics() {
  constexpr double kNote = 1e-6, kWarn = 1e-4;  // of packets; a good link has none
  for (const Interface& nic : facts_.interfaces) {
    if (nic.loopback || !nic.up || nic.packets == 0) continue;
    const double share = double(nic.errors) / double(nic.packets);
    if (share <= kNote) continue;
    add("NIC errors", share > kWarn && nic.errors > 10 ? Verdict::warn : Verdict::note,
        fmt::format("{}: {} errors in {} packets", nic.name, nic.errors, nic.packets),
        fmt::format("cable, transceiver or port: `ethtool -S {}`", nic.name));
  }
}

void HostFindings::links() {
  for (const Interface& nic : facts_.interfaces) {
    if (nic.loopback || !nic.up || nic.duplex.empty()) continue;
    const std::string pause = nic.pause.empty()    ? ""
                              : nic.pause == "off" ? ", pause frames off"
                                                   : fmt::format(", pause frames {}", nic.pause);
    if (nic.duplex == "half")
      add("link", Verdict::warn, fmt::format("{} runs at half duplex: it cannot send and receive at once", nic.name),
          fmt::format("let both ends negotiate: `ethtool -s {} autoneg on`, and on the switch port", nic.name));
    else if (nic.pause == "off" && carries_rdma(nic.name))
      add("link", Verdict::note,
          fmt::format("{}: full duplex, pause frames off, and RDMA runs over it, which bears no losses", nic.name),
          fmt::format("`ethtool -A {} rx on tx on`, unless the switches have priority flow control for it", nic.name));
    else if (!nic.is_virtual || !pause.empty())
      add("link", Verdict::pass, fmt::format("{}: full duplex{}", nic.name, pause));
  }
}

// As the GIDs of RDMA ports say: "3: ... RoCE v2 eth0".
bool HostFindings::carries_rdma(const std::string& interface) const {
  return std::any_of(facts_.rdma.begin(), facts_.rdma.end(), [&](const RdmaPort& port) {
    return std::any_of(port.gids.begin(), port.gids.end(),
                       [&](const std::string& gid) { return gid.ends_with(" " + interface); });
  });
}

void HostFindings::tcp() {
  constexpr double kNote = 0.01;
  const double share = facts_.segments_sent > 1000 ? double(facts_.segments_resent) / double(facts_.segments_sent) : 0;
  if (share > kNote)
    add("retransmits", Verdict::note,
        fmt::format("{:.1f} % of TCP's segments were sent again since the network came up", share * 100),
        "losses on some path: the pairs below show whether on one of these");
}

void HostFindings::pci() {
  for (const PciLink& link : facts_.pci) {
    const std::string now = topology::to_string({link.rate, link.width}),
                      most = topology::to_string({link.most_rate, link.most_width});
    if (link.width < link.most_width)
      add("PCIe", Verdict::warn, fmt::format("{} runs at {}, it can {}", link.device, now, most),
          "seat the card again, or move it to a slot with all lanes: `lspci -vv`");
    else if (link.rate < link.most_rate)
      add("PCIe", Verdict::note, fmt::format("{} runs at {}, it can {}", link.device, now, most),
          "idle devices save power and speed up under load; else the slot or a riser is slower");
    else
      add("PCIe", Verdict::pass, fmt::format("{}: {}", link.device, now));
  }
}

void HostFindings::rdma() {
  for (const RdmaPort& port : facts_.rdma) {
    const std::string text =
        fmt::format("{} port {}: {}, {}, {}", port.device, port.port, port.state, port.link_layer, port.rate);
    const bool ethernet = port.link_layer == "Ethernet";
    const bool v2 = std::any_of(port.gids.begin(), port.gids.end(),
                                [](const std::string& gid) { return gid.find("v2") != std::string::npos; });
    if (port.state != "ACTIVE")
      add("RDMA", Verdict::warn, text, "cable, or for InfiniBand a subnet manager: `ibstat`");
    else if (ethernet && !v2)
      add("RDMA", Verdict::warn, text + "; no GID for RoCE v2", "give the interface an IP address; `show_gids`");
    else
      add("RDMA", Verdict::pass,
          text + (ethernet || port.gids.empty() ? "" : fmt::format(", {} GIDs", port.gids.size())));
  }
}

void HostFindings::gpus() {
  if (facts_.gpus.empty()) return;
  add("GPU", Verdict::pass,
      fmt::format("{} × {}, driver {}, CUDA {}", facts_.gpus.size(), facts_.gpus[0], facts_.driver,
                  facts_.cuda.empty() ? "?" : facts_.cuda));
}

// Of many processes the first few.
void HostFindings::libraries() {
  constexpr std::size_t kNamed = 4;
  for (const LoadedLibrary& library : facts_.nccl) {
    const auto named = std::min(kNamed, library.processes.size());
    std::string who = fmt::format(
        "{}", fmt::join(library.processes.begin(), library.processes.begin() + std::ptrdiff_t(named), ", "));
    if (named < library.processes.size()) who += fmt::format(" and {} more", library.processes.size() - named);
    const std::string whose = library.tutti.empty() ? "not tutti's" : fmt::format("tutti {}", library.tutti);
    add("NCCL", Verdict::note, fmt::format("{}, {}, is loaded by {}", library.path, whose, who));
  }
}

void HostFindings::disk() {
  constexpr double kSlow = 50e6, kVerySlow = 2e6, kCheckpoint = 10e9;  // bytes; a second
  const Disk& disk = facts_.disk;
  if (disk.folder.empty()) return;
  if (!disk.error.empty())
    return add("disk", Verdict::note, fmt::format("{} cannot be written: {}", disk.folder, disk.error),
               "run it where checkpoints go: --folder");
  const std::string text =
      fmt::format("{}: {} written and synced, so 10 GB of checkpoint take {:.0f} s; {} free", disk.folder,
                  rate_text(disk.bytes_per_second), kCheckpoint / disk.bytes_per_second, bytes_text(disk.free_bytes));
  if (disk.free_bytes < kGiB)
    add("disk", Verdict::warn, text, "make room where checkpoints go");
  else if (disk.bytes_per_second < kVerySlow)
    add("disk", Verdict::warn, text, "a local disk for checkpoints, copied later");
  else if (disk.bytes_per_second < kSlow)
    add("disk", Verdict::note, text, "a local disk for checkpoints, copied later");
  else
    add("disk", Verdict::pass, text);
}

// A row that should be equal everywhere.
struct Row {
  const char* topic;
  Verdict verdict;  // where it is not
  std::function<std::string(const Facts&)> value;
  const char* cure;
};

std::string limit_text(std::uint64_t limit) { return limit == kUnlimited ? "unlimited" : std::to_string(limit); }

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"wire version", Verdict::fail, [](const Facts& f) { return std::to_string(f.wire); },
       "install the same tutti on all hosts: these cannot talk to each other"},
      {"version", Verdict::warn, [](const Facts& f) { return f.version; }, "install the same tutti on all hosts"},
      {"settings", Verdict::fail, [](const Facts& f) { return f.settings.empty() ? "default" : f.settings; },
       "set the same on all hosts: the library refuses to start with different ones"},
      {"kernel", Verdict::note, [](const Facts& f) { return f.kernel; }, "usually harmless"},
      {"processor", Verdict::note, [](const Facts& f) { return f.processor; },
       "harmless; the slower one decides, and equal bits are promised on one kind only"},
      {"driver", Verdict::warn, [](const Facts& f) { return f.driver.empty() ? "none" : f.driver; },
       "install the same NVIDIA driver on all hosts"},
      {"CUDA", Verdict::warn, [](const Facts& f) { return f.cuda.empty() ? "none" : f.cuda; },
       "install the same NVIDIA driver on all hosts"},
      {"GPUs", Verdict::note, [](const Facts& f) { return fmt::format("{}", fmt::join(f.gpus, ", ")); },
       "harmless; the slowest decides"},
      {"core count", Verdict::note, [](const Facts& f) { return std::to_string(f.cores); },
       "harmless; the slower host decides"},
      {"open files limit", Verdict::note, [](const Facts& f) { return limit_text(f.open_files); }, "ulimit -n"},
      {"locked memory limit", Verdict::note, [](const Facts& f) { return bytes_text(f.locked_memory); }, "ulimit -l"},
      {"link speed", Verdict::warn,
       [](const Facts& f) {
         const Interface* nic = f.chosen.empty() ? nullptr : interface_of(f, f.chosen[0]);
         return nic && nic->megabits > 0 ? fmt::format("{:g} Gb/s", double(nic->megabits) / 1e3)
                                         : std::string("unknown");
       },
       "a link that came up slower: cable, switch port, `ethtool`"},
      {"pause frames", Verdict::note,
       [](const Facts& f) {
         const Interface* nic = f.chosen.empty() ? nullptr : interface_of(f, f.chosen[0]);
         return nic && !nic->pause.empty() ? nic->pause : std::string("unknown");
       },
       "the same flow control on all hosts and switch ports: `ethtool -A`"},
      {"MTU", Verdict::warn,
       [](const Facts& f) {
         const Interface* nic = f.chosen.empty() ? nullptr : interface_of(f, f.chosen[0]);
         return nic ? std::to_string(nic->mtu) : std::string("unknown");
       },
       "the same MTU on all hosts and switches of a network: `ip link set DEVICE mtu N`"},
  };
  return all;
}

// Of meeting names, only ranks beyond rank 0's host are compared: on its own host loopback is as good.
void add_names(const std::vector<Facts>& hosts, std::vector<Finding>& out) {
  std::map<std::string, std::vector<std::string>> by_value;
  const auto names = name_hosts(hosts);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    auto addresses = hosts[i].meeting.addresses;
    if (addresses.empty() || all_loopback(addresses)) continue;
    std::sort(addresses.begin(), addresses.end());
    by_value[fmt::format("{}", fmt::join(addresses, " "))].push_back(names[i]);
  }
  if (by_value.size() < 2) return;
  std::string text;
  for (const auto& [value, at] : by_value)
    text += fmt::format("{}{} on {}", text.empty() ? "" : "; ", value, fmt::join(at, ", "));
  out.push_back({"names", "", Verdict::warn, fmt::format("'{}' is {}", hosts[0].meeting.name, text),
                 "the same line in /etc/hosts on all hosts, or one DNS"});
}

}  // namespace

std::vector<Finding> host_findings(const Facts& facts, const std::string& name, int rank_count) {
  return HostFindings(facts, name, rank_count).all();
}

std::vector<Finding> difference_findings(const std::vector<Facts>& hosts) {
  std::vector<Finding> out;
  if (hosts.empty()) return out;
  const auto names = name_hosts(hosts);
  std::vector<const char*> equal;
  for (const Row& row : rows()) {
    std::map<std::string, std::vector<std::string>> by_value;
    for (std::size_t i = 0; i < hosts.size(); ++i) by_value[row.value(hosts[i])].push_back(names[i]);
    if (by_value.size() == 1) {
      equal.push_back(row.topic);
      continue;
    }
    std::string text;
    for (const auto& [value, at] : by_value)
      text += fmt::format("{}{} on {}", text.empty() ? "" : "; ", value.empty() ? "none" : value, fmt::join(at, ", "));
    // An unknown speed differs from nothing.
    const bool unknown = by_value.contains("unknown");
    out.push_back({row.topic, "", unknown ? Verdict::note : row.verdict, text, row.cure});
  }
  add_names(hosts, out);
  const std::string own = fmt::format("tutti {} (wire {}), {}", hosts[0].version, hosts[0].wire, hosts[0].kernel);
  if (hosts.size() == 1)
    out.insert(out.begin(), {"version", "", Verdict::pass, own, ""});
  else if (out.empty())
    out.push_back({"version", "", Verdict::pass,
                   fmt::format("all {} hosts agree: {}; also {}", hosts.size(), own, fmt::join(equal, ", ")), ""});
  return out;
}

}  // namespace tutti::tools::doctor
