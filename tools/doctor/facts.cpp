#include "tools/doctor/facts.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <tutti/version.h>
#include <algorithm>
#include <chrono>
#include <memory>

#include "core/config.h"
#include "core/host.h"
#include "core/interfaces.h"
#include "core/socket_address.h"
#include "tools/cores.h"
#include "tools/doctor/devices.h"
#include "tools/doctor/libraries.h"
#include "tools/doctor/disk.h"

namespace tutti::tools::doctor {
namespace {

std::uint64_t soft_limit(int resource) {
  rlimit limit{};
  if (getrlimit(__rlimit_resource_t(resource), &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur;
}

void read_limits(Facts& facts) {
  cpu_set_t set;
  CPU_ZERO(&set);
  facts.cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : int(sysconf(_SC_NPROCESSORS_ONLN));
  facts.quota = cpu_quota();
  facts.open_files = soft_limit(RLIMIT_NOFILE);
  facts.locked_memory = soft_limit(RLIMIT_MEMLOCK);
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    facts.shm = std::uint64_t(shm.f_blocks) * shm.f_frsize;
    facts.shm_free = std::uint64_t(shm.f_bavail) * shm.f_frsize;
  }
}

void read_memory(Facts& facts, const std::string& root) {
  for (const std::string& line : lines_of(root + "/proc/meminfo")) {
    unsigned long long kilobytes = 0;
    if (sscanf(line.c_str(), "MemTotal: %llu", &kilobytes) == 1) facts.memory = kilobytes << 10;
    if (sscanf(line.c_str(), "MemAvailable: %llu", &kilobytes) == 1) facts.memory_available = kilobytes << 10;
  }
}

void read_system(Facts& facts, const std::string& root) {
  utsname system{};
  if (uname(&system) == 0) facts.kernel = fmt::format("{} {}", system.sysname, system.release);
  for (const std::string& line : lines_of(root + "/proc/cpuinfo")) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) facts.processor = line.substr(colon + 2);
    if (!facts.processor.empty()) break;
  }
  if (facts.processor.empty()) facts.processor = system.machine;
}

// The driver's part of CUDA, asked by name: no header, no start of a device.
std::string cuda_version() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return "";
  int number = 0;
  const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  const bool told = ask && ask(&number) == 0;
  dlclose(library);
  return told ? fmt::format("{}.{}", number / 1000, number % 1000 / 10) : "";
}

void read_network(Facts& facts, const FactsWish& wish) {
  facts.interfaces = read_interfaces(wish.root);
  facts.interface_rule = environment("TUTTI_INTERFACE");
  auto chosen = choose_addresses(interface_addresses(), facts.interface_rule, false);
  if (chosen)
    facts.chosen = *chosen;
  else
    facts.chosen_error = chosen.status().text();
  read_tcp_counters(wish.root, facts.segments_sent, facts.segments_resent);
  if (!wish.meeting_host.empty()) facts.meeting = look_up(wish.meeting_host);
}

}  // namespace

double clock_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool all_loopback(const std::vector<std::string>& addresses) {
  const auto loopback = [](const std::string& host) { return host.starts_with("127.") || host == "::1"; };
  return !addresses.empty() && std::all_of(addresses.begin(), addresses.end(), loopback);
}

Lookup look_up(const std::string& host) {
  Lookup out{.name = host};
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const auto start = std::chrono::steady_clock::now();
  const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  out.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (failed != 0) out.error = gai_strerror(failed);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(failed ? nullptr : found, [](addrinfo* a) {
    if (a) freeaddrinfo(a);
  });
  for (const addrinfo* at = list.get(); at; at = at->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (std::find(out.addresses.begin(), out.addresses.end(), text) == out.addresses.end())
      out.addresses.emplace_back(text);
  }
  return out;
}

Facts read_facts(const FactsWish& wish) {
  Facts facts;
  const HostFacts own = read_host_facts();
  facts.host = own.name;
  facts.identity = own.identity;
  facts.rank = wish.rank;
  facts.local_rank = wish.local_rank;
  facts.version = TUTTI_VERSION_STRING;
  facts.wire = kWireVersion;
  if (const auto settings = read_settings()) facts.settings = settings->shared_text();
  read_system(facts, wish.root);
  read_limits(facts);
  read_memory(facts, wish.root);
  read_network(facts, wish);
  facts.driver = nvidia_driver(wish.root);
  facts.gpus = nvidia_gpus(wish.root);
  facts.nccl = loaded_nccl(wish.root);
  if (!facts.driver.empty()) facts.cuda = cuda_version();
  facts.rdma = read_rdma(wish.root);
  facts.pci = read_pci(wish.root);
  if (!wish.disk_folder.empty()) facts.disk = measure_disk(wish.disk_folder);
  facts.clock = clock_now();
  return facts;
}

std::vector<std::string> name_hosts(const std::vector<Facts>& hosts) {
  std::vector<std::string> names;
  for (const Facts& facts : hosts) {
    const auto same = std::count_if(hosts.begin(), hosts.end(), [&](const Facts& f) { return f.host == facts.host; });
    names.push_back(same > 1 ? fmt::format("{} (rank {})", facts.host, facts.rank) : facts.host);
  }
  return names;
}

const Interface* interface_of(const Facts& facts, const std::string& address) {
  for (const Interface& interface : facts.interfaces)
    for (const std::string& own : interface.addresses)
      if (own.substr(0, own.find('/')) == address) return &interface;
  return nullptr;
}

}  // namespace tutti::tools::doctor
