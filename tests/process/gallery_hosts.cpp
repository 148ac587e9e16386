// Causes of the gallery that lie in hosts: families of addresses, memory, threads, and what lies between two hosts.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/process/gallery.h"
#include "tests/process/hosts.h"
#include "tests/process/scenes.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Two hosts with one cable: 10.77.0.1 and 10.77.0.2, and of the first fd77::1.
struct TwoHosts {
  TwoHosts() {
    b.shell("echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6");
    a.connect(b);
    a.shell(
        "ip addr add 10.77.0.1/24 dev v0; ip addr add fd77::1/64 dev v0 nodad 2>/dev/null || true; ip link set v0 up");
    b.shell("ip addr add 10.77.0.2/24 dev v1; ip link set v1 up");
  }
  Host a, b;
};

// These ports are of the namespaces alone.
constexpr const char* kAddressOfA = "10.77.0.1:4000";

// Joins at A's address, then some all_reduces.
Status works(const Host& host, int rank, int count) {
  host.enter();
  auto made = Communicator::create(rank, count, kAddressOfA, {.init_timeout = seconds(20), .job_key = "k"});
  return made ? reduce_often(*made, 50'000, 5) : made.status();
}

Statuses on_two_hosts(const Settings& settings) {
  const Environment environment(settings);
  const TwoHosts hosts;
  return together({[&] { return works(hosts.a, 0, 3); }, [&] { return works(hosts.b, 1, 3); },
                   [&] { return works(hosts.a, 2, 3); }});
}

Statuses from_b(const std::string& address) {
  const TwoHosts hosts;
  hosts.b.shell(
      "ip neigh add 10.77.0.99 lladdr 02:00:00:00:00:99 dev v1 nud permanent");  // nobody: what goes there is lost
  return together({[&] {
    hosts.b.enter();
    return alone(1, 2, address, milliseconds(1500));
  }});
}

Statuses with_one_port() {
  const TwoHosts hosts;
  hosts.b.shell("echo '40000 40000' > /proc/sys/net/ipv4/ip_local_port_range");
  return together({[&] {
    hosts.b.enter();
    return alone(1, 2, kAddressOfA, milliseconds(1500));
  }});
}

Statuses at_own_loopback() {
  const TwoHosts hosts;
  const auto on = [](const Host& host, int rank) {
    host.enter();
    return alone(rank, 2, "127.0.0.1:4000", milliseconds(1500));
  };
  return together({[&] { return on(hosts.a, 0); }, [&] { return on(hosts.b, 1); }});
}

std::string lacks_mounts() {
  if (::geteuid() != 0) return "mounting needs root";
  const Status status = apart([] {
    return ::unshare(CLONE_NEWNS) == 0 ? Status()
                                       : Status(Code::unsupported, "unshare(CLONE_NEWNS) is not allowed here");
  });
  return status.text();
}

// Fills it to the last page.
void fill(const std::string& folder) {
  std::ofstream file(folder + "/filler", std::ios::binary);
  while (file.write(std::string(4096, 'x').data(), 4096).flush()) continue;
}

Status with_small_shm() {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0)
    return Status(Code::internal, "mount");
  fill("/dev/shm");
  const Environment environment(Settings{{"TUTTI_TRANSPORT", "shm"}, {"XDG_RUNTIME_DIR", ""}});
  for (const Status& status : ranks(2, {}, [](Communicator& comm) { return reduce_often(comm, 2'000'000, 3); }))
    if (!status.ok()) return status;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("/dev/shm"))
    if (entry.is_regular_file() && entry.path().filename() != "filler")
      return Status(Code::internal, entry.path().string() + " is ours");
  return {};
}

// This process may have so many bytes more of addresses.
void allow_memory(std::size_t more) {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * std::size_t(sysconf(_SC_PAGESIZE)) + more;
  ::setrlimit(RLIMIT_AS, &limit);
}

// Averages of f16, whose partial sums go around a ring as f32.
Status average(Communicator& comm) {
  constexpr std::size_t kCount = 9'000'000;  // 72 MB: more than an arena that malloc may have set aside before
  std::vector<std::uint16_t> x(kCount);
  if (const Status status = comm.barrier().wait(); !status.ok()) return status;
  if (comm.rank() == 1) allow_memory(8 << 20);
  return comm.all_reduce({x.data(), x.data(), kCount, DataType::f16, ReduceOp::avg}).wait();
}

Status averages(int rank, const std::string& address) {
  Communicator comm = joined(rank, 3, address);
  return average(comm);
}

Statuses out_of_memory() {
  const Environment environment(Settings{{"TUTTI_ALGO", "ring"}});
  const std::string address = fresh_address();
  Apart poor([&] { return averages(1, address); });
  Statuses out = together({[&] { return averages(0, address); }, [&] { return averages(2, address); }});
  out.push_back(poor.status());
  return out;
}

// Rank 1 may have no thread but its first.
Statuses without_threads() {
  const std::string address = fresh_address();
  Apart poor([&] {
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)
      return Status(Code::internal, "setresuid");
    const rlimit none{1, 1};
    ::setrlimit(RLIMIT_NPROC, &none);
    return alone(1, 2, address, seconds(10));
  });
  (void)alone(0, 2, address, seconds(10));
  return {poor.status()};
}

// Each rank waits in another of two communicators that both have.
Statuses in_opposite_order() {
  return ranks(2, {{"TUTTI_ABSENT_TIMEOUT", "1s"}}, [](Communicator& comm) {
    auto first = comm.split(0, comm.rank()), second = comm.split(0, comm.rank());
    if (!first || !second) return first ? second.status() : first.status();
    Communicator& mine = comm.rank() == 0 ? *first : *second;
    return reduce(mine, 100);
  });
}

}  // namespace

std::vector<Cause> poor_hosts() {
  return {
      {"ipv4_only_host", "rank 1's host has no IPv6, the other one has both", Code::ok, -1, seconds(30),
       [] { return on_two_hosts({}); }, lacks_hosts},
      {"shm_across_hosts", "shared memory alone is allowed, and rank 1 is on another host", Code::network, kEither,
       seconds(30),
       [] {
         return on_two_hosts({{"TUTTI_TRANSPORT", "shm"}});
       },
       lacks_hosts},
      {"packets_are_dropped", "what goes to rank 0's address is lost on the way", Code::timeout, 0, seconds(20),
       [] { return from_b("10.77.0.99:4000"); }, lacks_hosts},
      {"no_local_port_left", "rank 1's host has one port for all its connections", Code::timeout, 0, seconds(20),
       with_one_port, lacks_hosts},
      {"loopback_for_all", "all hosts were given 127.0.0.1 as the address of rank 0", Code::timeout, kEither,
       seconds(20), at_own_loopback, lacks_hosts},
      {"only_loopback_is_offered", "TUTTI_INTERFACE leaves nothing but loopback, on both hosts", Code::peer_lost,
       kEither, seconds(30),
       [] {
         return on_two_hosts({{"TUTTI_INTERFACE", "lo"}});
       },
       lacks_hosts},
      {"address_of_no_network", "rank 0's address belongs to a network that this host has no route to", Code::timeout,
       0, seconds(20), [] { return from_b("10.78.0.1:4000"); }, lacks_hosts},
      {"unknown_host", "rank 0's host has a name that nobody knows", Code::timeout, 0, seconds(40),
       [] { return from_b("no-such-host.invalid:4000"); }, lacks_hosts},
      {"communicators_in_opposite_order", "of two communicators rank 0 uses the first one first, rank 1 the second",
       Code::timeout, kEither, seconds(20), in_opposite_order},
      {"small_dev_shm", "/dev/shm holds 1 MB, and that is full", Code::ok, -1, seconds(30),
       [] { return Statuses{apart(with_small_shm)}; }, lacks_mounts},
      {"out_of_memory", "rank 1 has no memory for the partial sums of an average", Code::out_of_resources, 1,
       seconds(30), out_of_memory},
      {"no_more_threads", "rank 1 may start no thread", Code::out_of_resources, -1, seconds(30), without_threads,
       [] { return std::string(::geteuid() == 0 ? "" : "becoming another user needs root"); }},
  };
}

}  // namespace tutti::test
