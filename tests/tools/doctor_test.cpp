// `tutti doctor`: values there and back, each fault to its verdict, readings of a made-up /sys, the meeting and the
// pair's measurements over loopback, and what the views must not let through.
#include "tools/doctor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "tests/tools/launched.h"
#include "tools/cores.h"
#include "tools/doctor/baseline.h"
#include "tools/doctor/coordinator.h"
#include "tools/doctor/devices.h"
#include "tools/doctor/disk.h"
#include "tools/doctor/findings.h"
#include "tools/doctor/libraries.h"
#include "tools/doctor/link_probe.h"
#include "tools/doctor/meeting.h"
#include "tools/doctor/view.h"

namespace tutti::tools::doctor {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / "tutti-doctor-test-XXXXXX") {
    std::string name = path_.string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text << '\n';
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Facts good_host(int rank) {
  Facts facts;
  facts.host = rank == 0 ? "head" : "second";
  facts.identity = std::uint64_t(rank) + 1;
  facts.rank = rank;
  facts.version = "0.1.0";
  facts.wire = 2;
  facts.kernel = "Linux 6.1.0";
  facts.processor = "EPYC 7302";
  facts.cores = 16;
  facts.memory = 64ull << 30;
  facts.memory_available = 60ull << 30;
  facts.shm = 32ull << 30;
  facts.shm_free = 31ull << 30;
  facts.open_files = 65536;
  facts.locked_memory = kUnlimited;
  const std::string address = rank == 0 ? "10.0.0.1" : "10.0.0.2";
  facts.interfaces = {{.name = "lo", .addresses = {"127.0.0.1/8"}, .up = true, .loopback = true, .mtu = 65536},
                      {.name = "eth0",
                       .driver = "mlx5_core",
                       .addresses = {address + "/24"},
                       .up = true,
                       .megabits = 10000,
                       .mtu = 1500,
                       .packets = 1000000}};
  facts.chosen = {address};
  facts.pci = {{"eth0 (0000:3b:00.0)", 8, 8, 8, 8}};
  facts.segments_sent = 1000000;
  facts.segments_resent = 10;
  facts.meeting = {.name = "head", .addresses = {"10.0.0.1"}, .milliseconds = 0.2};
  facts.disk = {.folder = "/data", .free_bytes = 1ull << 40, .bytes_per_second = 900e6};
  return facts;
}

Pair good_pair() {
  Pair pair{.from = 0, .to = 1};
  pair.attempts = {{"10.0.0.2:4000", Reach::connected, "connected"}};
  pair.back = {{"10.0.0.1:4001", Reach::connected, "connected"}};
  pair.from_address = "10.0.0.1:5000";
  pair.to_address = "10.0.0.2:4000";
  pair.round_trip_us = 25;
  pair.round_trip_p99_us = 60;
  pair.path_mtu = pair.datagram = pair.back_datagram = pair.wanted_datagram = pair.back_wanted = 1500;
  pair.large_passed = true;
  pair.there = {1.08e9, 0.4};
  pair.here = {1.17e9, 0.4};
  return pair;
}

Examination good() {
  Examination out{.version = "0.1.0", .when = "2026-05-01 12:00:00 UTC", .rank_count = 2};
  out.hosts = {good_host(0), good_host(1)};
  out.pairs = {good_pair()};
  out.clocks = {{1, 0.002, 0.0001}};
  out.trials = {{.what = "all 2 ranks", .transport = "tcp", .milliseconds = 0.2}};
  return out;
}

std::string told(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& f : findings) out += nlohmann::json(f).dump() + "\n";
  return out;
}

// Exactly these findings are above a pass: topic, verdict, and a part of the text.
struct Wanted {
  std::string topic;
  Verdict verdict;
  std::string text;
};
void expect(const Examination& examination, const std::vector<Wanted>& wanted) {
  const auto findings = examine(examination);
  std::size_t raised = 0;
  for (const Finding& f : findings) {
    raised += f.verdict != Verdict::pass;
    EXPECT_EQ(f.cure.empty(), f.verdict == Verdict::pass) << f.topic << ": " << f.text;
  }
  EXPECT_EQ(raised, wanted.size()) << told(findings);
  for (const Wanted& want : wanted)
    EXPECT_TRUE(std::any_of(findings.begin(), findings.end(),
                            [&](const Finding& f) {
                              return f.topic == want.topic && f.verdict == want.verdict &&
                                     f.text.find(want.text) != std::string::npos;
                            }))
        << want.topic << ": " << want.text << "\n"
        << told(findings);
}

TEST(DoctorFindings, AHealthyPairGetsNoWarningAndNoNote) {
  expect(good(), {});
  const auto findings = examine(good());
  EXPECT_NE(told(findings).find("1.08 of 1.25 GB/s: 86 %, pass"), std::string::npos) << told(findings);
}

TEST(DoctorFindings, FaultsOfOneHost) {
  Examination e = good();
  e.hosts[1].open_files = 70;
  expect(e, {{"open files", Verdict::fail, "70 open files"}, {"open files limit", Verdict::note, "70 on second"}});
  e = good();
  for (Facts& f : e.hosts) f.open_files = 512;
  expect(e, {{"open files", Verdict::warn, "512"}, {"open files", Verdict::warn, "512"}});
  e = good();
  for (Facts& f : e.hosts) f.locked_memory = 65536;
  expect(e, {{"locked memory", Verdict::note, "64 KiB"}, {"locked memory", Verdict::note, "64 KiB"}});
  for (Facts& f : e.hosts)
    f.rdma = {{.device = "mlx5_0", .state = "ACTIVE", .link_layer = "InfiniBand", .rate = "100 Gb/sec"}};
  expect(e, {{"locked memory", Verdict::warn, "RDMA"}, {"locked memory", Verdict::warn, "RDMA"}});
  e = good();
  e.hosts[0].quota = 0.5;
  expect(e, {{"cores", Verdict::warn, "0.5 cores of 16"}});
  e.hosts[0].quota = 4;
  expect(e, {{"cores", Verdict::note, "4 cores of 16"}});
  e = good();
  e.hosts[0].shm = e.hosts[0].shm_free = 64u << 20;
  expect(e, {{"shared memory", Verdict::note, "64 MiB"}});
  e = good();
  e.hosts[0].interfaces[1].errors = 5000;
  expect(e, {{"NIC errors", Verdict::warn, "eth0: 5000 errors"}});
  e.hosts[0].interfaces[1].errors = 0;
  e.hosts[0].interfaces[1].duplex = "half";
  expect(e, {{"link", Verdict::warn, "eth0 runs at half duplex"}});
  e = good();
  for (Facts& f : e.hosts) {
    f.interfaces[1].duplex = "full", f.interfaces[1].pause = "off";
    f.rdma = {{.device = "mlx5_0",
               .state = "ACTIVE",
               .link_layer = "Ethernet",
               .rate = "100 Gb/sec",
               .gids = {"3: 0000:0000:0000:0000:0000:ffff:0a00:0001 RoCE v2 eth0"}}};
  }
  e.hosts[1].interfaces[1].pause = "rx tx";
  expect(e, {{"link", Verdict::note, "pause frames off, and RDMA runs over it"},
             {"pause frames", Verdict::note, "off on head; rx tx on second"}});
  e = good();
  e.hosts[1].pci = {{"GPU (0000:01:00.0)", 16, 16, 8, 16}};
  expect(e, {{"PCIe", Verdict::warn, "16.0 GT/s x8, it can 16.0 GT/s x16"}});
  e = good();
  e.hosts[1].rdma = {{.device = "mlx5_0", .state = "DOWN", .link_layer = "Ethernet", .rate = "25 Gb/sec"}};
  expect(e, {{"RDMA", Verdict::warn, "mlx5_0 port 1: DOWN"}});
  e = good();
  e.hosts[0].disk.free_bytes = 1 << 20;
  expect(e, {{"disk", Verdict::warn, "1 MiB free"}});
  e = good();
  e.hosts[0].interfaces.push_back({.name = "eth1", .addresses = {"10.0.0.9/24"}, .up = true, .mtu = 1500});
  expect(e, {{"addresses", Verdict::warn, "eth0 and eth1 are both in 10.0.0.0/24"}});
}

TEST(DoctorFindings, DifferencesShowOnlyWhatDiffers) {
  Examination e = good();
  e.hosts[1].version = "0.2.0";
  e.hosts[1].wire = 3;
  expect(e, {{"version", Verdict::warn, "0.1.0 on head; 0.2.0 on second"},
             {"wire version", Verdict::fail, "2 on head; 3 on second"}});
  e = good();
  e.hosts[1].kernel = "Linux 5.10";
  expect(e, {{"kernel", Verdict::note, "Linux 5.10 on second"}});
  e = good();
  e.hosts[1].settings = "TUTTI_ORDER=canonical";
  expect(e, {{"settings", Verdict::fail, "TUTTI_ORDER=canonical on second"}});
  e = good();
  e.hosts[1].driver = "535.54.03";
  expect(e, {{"driver", Verdict::warn, "535.54.03 on second"}});
  e = good();
  e.hosts[1].meeting.addresses = {"10.0.0.77"};
  expect(e, {{"names", Verdict::warn, "10.0.0.77 on second"}});
}

TEST(DoctorFindings, FaultsOfAPair) {
  Examination e = good();
  e.pairs[0].there = {0.11e9, 0.1};
  expect(e, {{"bandwidth", Verdict::warn, "0.11 of 1.25 GB/s: 9 %"}});
  e.pairs[0].there.busy = 0.95;  // the same rate, but the processors were the limit
  expect(e, {{"bandwidth", Verdict::note, "processors were the limit"}});
  e = good();
  e.pairs[0].datagram = 1500;
  e.pairs[0].wanted_datagram = 9000;
  e.hosts[0].interfaces[1].mtu = 9000;
  expect(e, {{"MTU", Verdict::warn, "packets of 1500 bytes from head arrive, of 9000 do not"},
             {"MTU", Verdict::warn, "9000 on head"}});
  e = good();
  e.pairs[0].large_passed = false;
  e.pairs[0].error = "256 KiB at once: nothing came in time";
  expect(e, {{"MTU", Verdict::fail, "small messages pass and large ones stall"}});
  e = good();
  e.pairs[0].resent = 0.08;
  expect(e, {{"retransmits", Verdict::warn, "8.0 %"}});
  for (Facts& f : e.hosts) f.interfaces[1].pause = "off";
  expect(e, {{"retransmits", Verdict::warn,
              "pause frames are off on eth0 of head; pause frames are off on eth0 of second"}});
  e = good();
  e.growth = {{0, "eth0", 100000, 0, 50}, {1, "eth0", 100000, 3, 200}};
  expect(e, {{"NIC errors", Verdict::warn, "eth0: 3 errors in 100000 packets during the test"},
             {"NIC drops", Verdict::note, "200 of 100000"}});
  e = good();
  Pair closed{.from = 0, .to = 1};
  closed.attempts = {{"10.0.0.2:4000", Reach::filtered, "", true}};
  closed.back = good_pair().back;
  e.pairs = {closed};
  expect(e, {{"reach", Verdict::fail, "10.0.0.2:4000: filtered"}});
  e.pairs[0].attempts = {{"10.0.0.2:4000", Reach::filtered, "", false}};
  expect(e, {{"reach", Verdict::fail, "no answer at all"}});
  e.pairs[0].attempts = {{"10.0.0.2:4000", Reach::refused, ""}};
  expect(e, {{"reach", Verdict::fail, "refused: the host answers"}});
  e.pairs[0].attempts = {{"10.0.0.2:4000", Reach::stranger, "it says \"HTTP\""}};
  expect(e, {{"reach", Verdict::fail, "someone else answers: it says \"HTTP\""}});
  // The first address does not work, another one does: a warning, and the pair is measured.
  e = good();
  e.pairs[0].attempts.insert(e.pairs[0].attempts.begin(), {"172.17.0.1:4000", Reach::refused, ""});
  expect(e, {{"reach", Verdict::warn, "172.17.0.1:4000"}});
}

TEST(DoctorFindings, ClocksBothWaysAndOnlyBeyondTheUncertainty) {
  Examination e = good();
  e.clocks[0].seconds = 60;
  expect(e, {{"clock", Verdict::warn, "60 s ahead of that of head"}});
  e.clocks[0].seconds = -60;
  expect(e, {{"clock", Verdict::warn, "60 s behind that of head"}});
  e.clocks[0] = {1, 0.4, 0.001};
  expect(e, {{"clock", Verdict::note, "0.4 s ahead"}});
  e.clocks[0] = {1, 5, 6};  // the round trip was longer than the difference
  expect(e, {});
}

TEST(DoctorFindings, MissingRanksAndStrangers) {
  Examination e = good();
  e.rank_count = 3;
  e.missing = {{2, "did not come within 30 s"}};
  e.strangers = {"10.0.0.9:1234: it is no doctor; it says \"GET /\""};
  expect(e, {{"missing", Verdict::fail, "rank 2 did not come within 30 s (2 of 3 ranks came)"},
             {"strangers", Verdict::note, "GET /"}});
}

TEST(DoctorValues, GoToJsonAndBack) {
  const Examination e = good();
  const auto back = parse<Examination>(json_view(e));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(json_view(*back), json_view(e));
  EXPECT_EQ(back->hosts[1].identity, 2u);
  EXPECT_EQ(back->hosts[0].locked_memory, kUnlimited);
  EXPECT_EQ(back->pairs[0].attempts[0].reach, Reach::connected);
}

TEST(DoctorValues, OfAnotherVersionAreReadAsFarAsTheyGo) {
  const auto facts = parse<Facts>(R"({"host": "a", "rank": 3, "news": [1, 2]})");
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->rank, 3);
  EXPECT_EQ(facts->version, "");
  for (const char* bad : {"", "[]", "{", R"({"host": 3})", R"({"interfaces": {"a": 1}})"})
    EXPECT_EQ(parse<Facts>(bad).status().code(), Code::invalid_argument) << bad;
}

TEST(DoctorBaseline, TellsWhatHasChanged) {
  const Examination before = good();
  const auto same = compare(before, good());
  ASSERT_EQ(same.size(), 1u) << told(same);
  EXPECT_EQ(same[0].verdict, Verdict::pass);
  Examination now = good();
  now.pairs[0].here = {0.4e9, 0.2};
  now.pairs[0].path_mtu = 1400;
  now.hosts[1].kernel = "Linux 6.9";
  const std::string changed = told(compare(before, now));
  EXPECT_NE(changed.find("bandwidth: 400 MB/s now, 1.17 GB/s on 2026-05-01"), std::string::npos) << changed;
  EXPECT_NE(changed.find("path MTU: 1400 now, 1500 on"), std::string::npos) << changed;
  EXPECT_NE(changed.find("kernel: Linux 6.9 now, Linux 6.1.0 on"), std::string::npos) << changed;
  now.pairs[0].here.busy = 0.9;  // the processors were busy: no fault of the link
  EXPECT_EQ(told(compare(before, now)).find("bandwidth"), std::string::npos);
  EXPECT_FALSE(read_examination("/nonexistent").ok());
}

TEST(DoctorViews, LetNoMarkupAndNoControlCharactersThrough) {
  Examination e = good();
  e.hosts[1].host = "<script>x\x1b[31m";
  e.hosts[1].open_files = 1;
  e.findings = examine(e);
  const std::string page = html_view(e), text = text_view(e, false);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;"), std::string::npos);
  EXPECT_EQ((page + text).find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("2 hosts: "), std::string::npos);
  EXPECT_NE(text.find("1 failure"), std::string::npos) << text;
}

TEST(DoctorPairs, EachOnceAndNobodyTwiceInARound) {
  for (int count = 0; count <= 17; ++count) {
    std::set<std::pair<int, int>> all;
    for (const auto& round : rounds_of_pairs(count)) {
      std::set<int> in_round;
      for (const auto& [a, b] : round) {
        EXPECT_TRUE(0 <= a && a < b && b < count);
        EXPECT_TRUE(in_round.insert(a).second && in_round.insert(b).second);
        EXPECT_TRUE(all.emplace(a, b).second);
      }
    }
    EXPECT_EQ(int(all.size()), count * (count - 1) / 2) << count;
  }
}

TEST(DoctorReadings, OfAMadeUpMachine) {
  const Folder root;
  root.write("sys/class/net/eth7/speed", "25000");
  root.write("sys/class/net/eth7/mtu", "9000");
  root.write("sys/class/net/eth7/duplex", "half");
  root.write("sys/class/net/virt/duplex", "unknown");
  root.write("sys/class/net/eth7/statistics/rx_packets", "100");
  root.write("sys/class/net/eth7/statistics/rx_errors", "3");
  root.write("sys/class/net/eth7/statistics/tx_errors", "4");
  root.write("sys/class/net/virt/speed", "-1");
  const std::string device = "sys/devices/pci0000:00/0000:3b:00.0/";
  root.write(device + "current_link_speed", "8.0 GT/s PCIe");
  root.write(device + "current_link_width", "4");
  root.write(device + "max_link_speed", "16.0 GT/s PCIe");
  root.write(device + "max_link_width", "16");
  fs::create_directory_symlink(root.path() / device, root.path() / "sys/class/net/eth7/device");
  root.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  root.write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet");
  root.write("sys/class/infiniband/mlx5_0/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
  root.write("sys/class/infiniband/mlx5_0/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001");
  root.write("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3", "RoCE v2");
  root.write("proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023");
  root.write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200");
  root.write("proc/net/snmp", "Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 5000 40");
  const std::string at = root.path().string();
  const auto nics = read_interfaces(at);
  ASSERT_EQ(nics.size(), 2u);
  EXPECT_EQ(nics[0].name, "eth7");
  EXPECT_EQ(nics[0].megabits, 25000);
  EXPECT_EQ(nics[0].mtu, 9000);
  EXPECT_EQ(nics[0].duplex, "half");
  EXPECT_EQ(nics[1].duplex, "");
  EXPECT_EQ(nics[0].errors, 7u);
  EXPECT_FALSE(nics[0].is_virtual);
  EXPECT_EQ(nics[1].megabits, 0);
  EXPECT_TRUE(nics[1].is_virtual);
  const auto pci = read_pci(at);
  ASSERT_EQ(pci.size(), 1u);
  EXPECT_EQ(pci[0].device, "eth7 (0000:3b:00.0)");
  EXPECT_EQ(pci[0].width, 4);
  EXPECT_EQ(pci[0].most_width, 16);
  const auto rdma = read_rdma(at);
  ASSERT_EQ(rdma.size(), 1u);
  EXPECT_EQ(rdma[0].state, "ACTIVE");
  ASSERT_EQ(rdma[0].gids.size(), 1u);
  EXPECT_EQ(rdma[0].gids[0].substr(0, 2), "3:");
  EXPECT_NE(rdma[0].gids[0].find("RoCE v2"), std::string::npos);
  EXPECT_EQ(nvidia_driver(at), "535.54.03");
  EXPECT_EQ(nvidia_gpus(at), std::vector<std::string>{"NVIDIA H200"});
  std::uint64_t sent = 0, resent = 0;
  read_tcp_counters(at, sent, resent);
  EXPECT_EQ(sent, 5000u);
  EXPECT_EQ(resent, 40u);
}

TEST(DoctorReadings, WhichLibncclProcessesHaveLoaded) {
  Folder root;
  const auto maps = [](const std::string& file) {
    return "7f00-7f01 r-xp 00000000 08:01 42    " + file + "\n7f02-7f03 rw-p 00001000 08:01 42    " + file;
  };
  root.write("proc/411/maps",
             maps("/usr/lib/libnccl.so.2.28.9") + "\n7f04-7f05 r-xp 00000000 08:01 43    /usr/lib/libc.so.6");
  root.write("proc/411/comm", "python3");
  root.write("proc/97/maps", maps("/opt/tutti-nccl/libnccl.so.2.28.9"));
  root.write("proc/97/comm", "program");
  root.write("proc/98/maps", "7f04-7f05 r-xp 00000000 08:01 43    /usr/lib/libc.so.6");
  root.write("proc/98/comm", "cat");
  root.write("proc/412/maps", maps("/usr/lib/libnccl.so.2.28.9"));
  root.write("proc/412/comm", "python3");
  root.write("usr/lib/libnccl.so.2.28.9", "NCCL version 2.28.9");
  root.write("opt/tutti-nccl/libnccl.so.2.28.9", std::string("\0...libnccl.so.2 of tutti 0.1.0\0...", 36));
  Facts host = good_host(0);
  host.nccl = loaded_nccl(root.path().string());
  ASSERT_EQ(host.nccl.size(), 2u);
  EXPECT_EQ(host.nccl[0].tutti, "0.1.0");
  EXPECT_EQ(host.nccl[1].tutti, "");
  EXPECT_EQ(host.nccl[1].processes, (std::vector<std::string>{"python3 (pid 411)", "python3 (pid 412)"}));
  Examination examination;
  examination.hosts = {parse<Facts>(dump(host)).value()};
  std::vector<std::string> texts;
  for (const Finding& finding : examine(examination))
    if (finding.topic == "NCCL") texts.push_back(finding.text);
  EXPECT_EQ(texts, (std::vector<std::string>{
                       "/opt/tutti-nccl/libnccl.so.2.28.9, tutti 0.1.0, is loaded by program (pid 97)",
                       "/usr/lib/libnccl.so.2.28.9, not tutti's, is loaded by python3 (pid 411), python3 (pid 412)"}));
}

TEST(DoctorReadings, OfThisMachine) {
  const Folder folder;
  const Facts facts = read_facts({.meeting_host = "127.0.0.1", .disk_folder = folder.path().string()});
  EXPECT_FALSE(facts.host.empty());
  EXPECT_FALSE(facts.kernel.empty());
  EXPECT_GE(facts.cores, 1);
  EXPECT_GT(facts.memory, 0u);
  EXPECT_GT(facts.clock, 1.7e9);
  EXPECT_GT(facts.disk.bytes_per_second, 0) << facts.disk.error;
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_EQ(facts.meeting.addresses, std::vector<std::string>{"127.0.0.1"});
  EXPECT_FALSE(look_up("no-such-host.invalid").error.empty());
  EXPECT_FALSE(measure_disk("/nonexistent").error.empty());
}

TEST(DoctorReadings, AQuotaIsNotRounded) {
  const Folder root;
  root.write("membership", "0::/job");
  root.write("mount/job/cpu.max", "50000 100000");
  EXPECT_EQ(cpu_quota(root.path() / "membership", root.path() / "mount"), 0.5);
  EXPECT_EQ(quota_cores(root.path() / "membership", root.path() / "mount"), 1);
}

struct Ends {
  Descriptor a, b;
};
Ends local_pair() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Result<Channel> call_and_answer(Ends ends, const char* call_key, const char* answer_key, Result<Channel>& answered) {
  std::thread listener([&] {
    answered = Channel::answer(std::move(ends.b), comm::make_job_key(answer_key), Clock::now() + seconds(20));
  });
  auto called = Channel::call(std::move(ends.a), comm::make_job_key(call_key), Clock::now() + seconds(20));
  if (!called) called = Status(called.status());
  listener.join();
  return called;
}

TEST(DoctorChannel, CarriesWhatTheKeyProves) {
  Result<Channel> there = Status(Code::internal, "");
  auto here = call_and_answer(local_pair(), "k", "k", there);
  ASSERT_TRUE(here.ok() && there.ok()) << here.status().to_string() << there.status().to_string();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(here->send({{"i", i}}, Clock::now() + seconds(20)).ok());
    EXPECT_EQ(there->receive(Clock::now() + seconds(20))->value("i", -1), i);
    ASSERT_TRUE(there->send({{"back", i}}, Clock::now() + seconds(20)).ok());
    EXPECT_EQ(here->receive(Clock::now() + seconds(20))->value("back", -1), i);
  }
  // Bytes from nobody: no message without the session's key.
  const std::string forged = std::string("\x02\0\0\0", 4) + std::string(32, 'x') + "{}";
  ASSERT_TRUE(send_all(here->socket(), forged.data(), forged.size(), Clock::now() + seconds(20)).ok());
  EXPECT_EQ(there->receive(Clock::now() + seconds(20)).status().code(), Code::mismatch);
}

TEST(DoctorChannel, TellsAnotherKeyAndAStranger) {
  Result<Channel> there = Status(Code::internal, "");
  const auto here = call_and_answer(local_pair(), "k", "other", there);
  EXPECT_EQ(here.status().code(), Code::mismatch);
  EXPECT_FALSE(there.ok());
  Ends ends = local_pair();
  const std::string text = "HTTP/1.1 400 Bad Request\r\n";
  ASSERT_TRUE(send_all(ends.b.get(), text.data(), text.size(), Clock::now() + seconds(20)).ok());
  const auto stranger = Channel::call(std::move(ends.a), comm::make_job_key("k"), Clock::now() + seconds(20));
  EXPECT_NE(stranger.status().text().find("HTTP/1.1 400"), std::string::npos) << stranger.status().text();
}

// A port of loopback that was free a moment ago.
std::string free_address(Descriptor* holder = nullptr) {
  auto listener = listen_on(*parse_address("127.0.0.1:0"));
  EXPECT_TRUE(listener.ok());
  const std::string address = own_end(listener->get());
  if (holder) *holder = std::move(*listener);
  return address;
}

TEST(DoctorMeeting, SaysWhyNot) {
  const std::string address = free_address();
  const MeetingPlace place{{address}, comm::make_job_key("k")};
  const Call refused = call_meeting(place, Clock::now());
  ASSERT_EQ(refused.attempts.size(), 1u);
  EXPECT_EQ(refused.attempts[0].reach, Reach::refused) << refused.attempts[0].text;
  EXPECT_NE(told(why_not(refused, good_host(1))).find("refused"), std::string::npos);
  const Call unknown = call_meeting({{"no-such-host.invalid:4000"}, place.key}, Clock::now());
  EXPECT_NE(told(why_not(unknown, good_host(1))).find("resolves to nothing here"), std::string::npos);
  Descriptor holder;
  const MeetingPlace taken{{free_address(&holder)}, place.key};
  EXPECT_EQ(open_meeting(taken).status().code(), Code::out_of_resources);
}

TEST(DoctorMeeting, GathersWhoComesAndLosesNoTimeOnOthers) {
  const MeetingPlace place{{free_address()}, comm::make_job_key("k")};
  const auto listeners = open_meeting(place);
  ASSERT_TRUE(listeners.ok()) << listeners.status().to_string();
  std::thread member([&] {
    Call call = call_meeting(place, Clock::now() + seconds(20));
    ASSERT_TRUE(call.channel.has_value());
    EXPECT_TRUE(call.channel->send(good_host(1), Clock::now() + seconds(20)).ok());
    (void)call.channel->receive(Clock::now() + seconds(20));
  });
  std::thread stranger([&] {
    const Connection scraper = connect_to(place.addresses[0], Clock::now() + seconds(20));
    (void)send_all(scraper.socket.get(), "GET / HTTP/1.1\r\n", 16, Clock::now() + seconds(20));
    char end = 0;
    (void)receive_all(scraper.socket.get(), &end, 1, Clock::now() + seconds(20));
  });
  Gathered gathered = gather(*listeners, place, 3, Clock::now() + seconds(5), -1);
  EXPECT_EQ(gathered.channels.size(), 1u);
  EXPECT_EQ(gathered.facts.at(1).host, "second");
  ASSERT_EQ(gathered.strangers.size(), 1u);
  EXPECT_NE(gathered.strangers[0].find("GET /"), std::string::npos) << gathered.strangers[0];
  gathered.channels.clear();
  member.join();
  stranger.join();
}

TEST(DoctorLink, MeasuresLoopbackBothWays) {
  const std::string token(kTokenBytes, 't');
  const auto server = LinkServer::start(token);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  ProbeOrder order{.from = 0,
                   .to = 1,
                   .addresses = {"127.0.0.1"},
                   .port = (*server)->port(),
                   .token = to_hex(token),
                   .streams = 2,
                   .mtu = 1500,
                   .other_mtu = 1500};
  const Pair pair = probe(order);
  ASSERT_EQ(pair.attempts.size(), 1u);
  EXPECT_EQ(pair.attempts[0].reach, Reach::connected) << pair.attempts[0].text;
  EXPECT_TRUE(pair.large_passed) << pair.error;
  EXPECT_GT(pair.round_trip_us, 0);
  EXPECT_GE(pair.round_trip_p99_us, pair.round_trip_us);
  EXPECT_EQ(pair.datagram, 1500);
  EXPECT_EQ(pair.back_datagram, 1500);
  EXPECT_GT(pair.there.bytes_per_second, 1e6) << pair.there.error;
  EXPECT_GT(pair.here.bytes_per_second, 1e6) << pair.here.error;
  order.token = to_hex(std::string(kTokenBytes, 'u'));
  EXPECT_EQ(probe(order).attempts[0].reach, Reach::stranger);
}

TEST(DoctorCommand, QuickRunsTheLibraryOverBothTransports) {
  Launched quick({"doctor", "quick"});
  EXPECT_EQ(quick.exit_status(), 0) << quick.out() << quick.err();
  for (const char* transport : {"over shm: right sums", "over tcp: right sums"})
    EXPECT_NE(quick.out().find(transport), std::string::npos) << quick.out();
}

TEST(DoctorCommand, RefusesWhatItCannotObey) {
  Launched wrong({"doctor", "--wait", "-1"});
  EXPECT_EQ(wrong.exit_status(), 2) << wrong.err();
  Launched unknown({"doctor", "--no-such-flag"});
  EXPECT_EQ(unknown.exit_status(), 2);
  Launched against({"doctor", "--against", "/nonexistent"});
  EXPECT_EQ(against.exit_status(), 2) << against.err();
}

}  // namespace
}  // namespace tutti::tools::doctor
