// What comes by way of libhwloc, /sys and NVML: synthetic topologies, snapshots (folders and archives), this machine, a
// driver played by the test. Snapshots are made here, file by file.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/topology/expectations.h"
#include "tests/topology/said.h"
#include "topology/answers.h"
#include "topology/describe.h"
#include "topology/nvml_links.h"
#include "topology/read.h"
#include "topology/sysfs_figures.h"

namespace tutti::topology::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tutti-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

// Two NUMA nodes of two CPUs, a GPU and a NIC on each, as the kernel shows them.
void put_machine(const Folder& f, const std::string& top = "") {
  f.put(top + "sys/devices/system/cpu/online", "0-3\n");
  f.put(top + "sys/devices/system/cpu/possible", "0-3\n");
  f.put(top + "sys/devices/system/node/online", "0-1\n");
  f.put(top + "sys/devices/system/node/possible", "0-1\n");
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::string at = fmt::format("{}sys/devices/system/cpu/cpu{}/", top, cpu),
                      package = fmt::format("{:x}", cpu < 2 ? 3 : 12);
    f.put(at + "online", "1\n");
    f.put(at + "topology/core_id", fmt::format("{}\n", cpu));
    f.put(at + "topology/physical_package_id", fmt::format("{}\n", cpu / 2));
    f.put(at + "topology/package_cpus", package + "\n");
    f.put(at + "topology/core_siblings", package + "\n");
    f.put(at + "topology/core_cpus", fmt::format("{:x}\n", 1 << cpu));
    f.put(at + "topology/thread_siblings", fmt::format("{:x}\n", 1 << cpu));
  }
  for (int node = 0; node < 2; ++node) {
    const std::string at = fmt::format("{}sys/devices/system/node/node{}/", top, node);
    f.put(at + "cpumap", node == 0 ? "3\n" : "c\n");
    f.put(at + "cpulist", node == 0 ? "0-1\n" : "2-3\n");
    f.put(at + "meminfo", fmt::format("Node {} MemTotal:       16777216 kB\n", node));
    f.put(at + "distance", node == 0 ? "10 21\n" : "21 10\n");
  }
  f.put(top + "proc/cpuinfo", "");
  f.put(top + "proc/meminfo", "MemTotal:       33554432 kB\n");
}

struct Function {
  std::string address, device_class, vendor, device, numa_node, cpus, speed, width, most;
};

void put_function(const Folder& f, const Function& p, const std::string& top = "") {
  const std::string at = top + "sys/bus/pci/devices/" + p.address + "/";
  f.put(at + "class", p.device_class + "\n");
  f.put(at + "vendor", p.vendor + "\n");
  f.put(at + "device", p.device + "\n");
  f.put(at + "subsystem_vendor", "0x0000\n");
  f.put(at + "subsystem_device", "0x0000\n");
  f.put(at + "revision", "0x00\n");
  f.put(at + "numa_node", p.numa_node + "\n");
  f.put(at + "local_cpus", p.cpus + "\n");
  f.put(at + "current_link_speed", p.speed + "\n");
  f.put(at + "current_link_width", p.width + "\n");
  f.put(at + "max_link_speed", p.most + "\n");
  f.put(at + "max_link_width", p.width + "\n");
  // Configuration space: class and ids where hwloc looks for them.
  std::string config(256, '\0');
  const auto word = [&config](std::size_t where, const std::string& hex) {
    const unsigned value = unsigned(std::stoul(hex, nullptr, 16));
    config[where] = char(value & 0xff);
    config[where + 1] = char(value >> 8 & 0xff);
  };
  word(0, p.vendor);
  word(2, p.device);
  word(10, p.device_class.substr(0, 6));
  f.put(at + "config", config);
}

const Link* link_of(const Graph& graph, LinkKind kind, const std::string& name) {
  for (const Link& link : graph.links) {
    const int device = kind == LinkKind::network ? link.a : link.b;
    if (link.kind == kind && graph.vertices[std::size_t(device)].name == name) return &link;
  }
  return nullptr;
}

std::string about(const std::vector<std::string>& lines, const std::string& word) {
  for (const std::string& line : lines)
    if (line.find(word) != std::string::npos) return line;
  return "nothing about " + word;
}

TEST(Synthetic, NodesPackagesAndCores) {
  const Result<Graph> graph = read_file("package:2 numa:2 core:4 pu:2");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->format, "synthetic");
  EXPECT_EQ(graph->all(VertexKind::package).size(), 2u);
  EXPECT_EQ(graph->all(VertexKind::numa).size(), 4u);
  EXPECT_EQ(graph->all(VertexKind::core).size(), 16u);
  EXPECT_EQ(graph->all(VertexKind::pu).size(), 32u);
  for (const int node : graph->all(VertexKind::numa)) EXPECT_EQ(graph->vertices[std::size_t(node)].cpus.count(), 8);
  EXPECT_EQ(read_file("numa:2 pu:4")->all(VertexKind::pu).size(), 8u);
  EXPECT_EQ(read_file("2 4 8")->all(VertexKind::pu).size(), 64u);
  EXPECT_EQ(read_file("pack:2 [numa(memory=16GB)] pu:4")->all(VertexKind::numa).size(), 2u);
}

TEST(Synthetic, RefusalsNameTheWord) {
  const auto text = [](const std::string& t) { return said(read_synthetic(t, t).status()); };
  EXPECT_EQ(text("numa:2 pu:x"),
            "invalid_argument: synthetic topology \"numa:2 pu:x\": at position 8 (\"pu:x\"): expected TYPE:COUNT, such "
            "as numa:2, package:2 or pu:4");
  EXPECT_EQ(text("numa:0 pu:2"),
            "invalid_argument: synthetic topology \"numa:0 pu:2\": at position 1 (\"numa:0 pu:2\"): expected "
            "TYPE:COUNT, such as numa:2, package:2 or pu:4");
  EXPECT_EQ(text("numa:1000 pu:1000"),
            "invalid_argument: synthetic topology \"numa:1000 pu:1000\": at position 11 (\"pu:1000\"): expected at "
            "most 16384 PUs in all");
  EXPECT_EQ(text("numa:2(memory=1 pu:2"),
            "invalid_argument: synthetic topology \"numa:2(memory=1 pu:2\": at position 7 (\"(memory=1 pu:2\"): "
            "expected a closing )");
  EXPECT_EQ(text(" "), "invalid_argument: synthetic topology: expected words such as \"numa:2 pu:4\", found none");
  EXPECT_EQ(text("zebra:2 pu:4").rfind("invalid_argument: synthetic topology \"zebra:2 pu:4\": hwloc refuses it", 0),
            0u);
  EXPECT_NE(text("pack:2(indexes=core:package) core:2 1").find("hwloc refuses it"),
            std::string::npos);  // hwloc 2.9 asserts
  EXPECT_NE(text("pu:2(indexes=1,1000000000)")
                .find("at position 5 (\"(indexes=1,100000000\"): expected indexes below 131072"),
            std::string::npos);
  EXPECT_EQ(said(read_file("no-such-file.xml").status()),
            "invalid_argument: no-such-file.xml: no such file or folder, and not a synthetic topology such as \"numa:2 "
            "pu:4\"");
}

void put_devices(const Folder& f, const std::string& top = "") {
  put_function(f, {"0000:01:00.0", "0x030200", "0x10de", "0x2330", "0", "3", "2.5 GT/s PCIe", "16", "32.0 GT/s PCIe"},
               top);  // idle
  put_function(f, {"0000:02:00.0", "0x030200", "0x10de", "0x2330", "1", "c", "2.5 GT/s PCIe", "1", "2.5 GT/s PCIe"},
               top);  // passed through
  put_function(f, {"0000:03:00.0", "0x020700", "0x15b3", "0x1021", "-1", "f", "16.0 GT/s PCIe", "16", "16.0 GT/s PCIe"},
               top);
  put_function(f, {"0000:04:00.0", "0x020000", "0x8086", "0x1593", "1", "c", "Unknown", "0", "Unknown"}, top);
  f.put(top + "sys/bus/pci/devices/0000:03:00.0/infiniband/mlx5_0/node_type", "1: CA\n");
  f.put(top + "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  f.put(top + "sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  f.put(top + "sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
  f.put(top + "sys/class/infiniband/mlx5_0/ports/2/rate", "10 Gb/sec (4X SDR)\n");
  f.put(top + "sys/class/net/eth0/speed", "25000\n");
  f.put(top + "sys/bus/pci/devices/10000:e1:00.0/class", "0x020000\n");
}

// The figures alone, on a graph made here, without libhwloc.
TEST(SysfsFigures, SpeedsPortsAndWhatIsNotBelieved) {
  const Folder f;
  put_devices(f);
  Graph graph;
  const auto add = [&graph](VertexKind kind, const std::string& name, const std::string& address, int os_index = -1) {
    Vertex v;
    v.kind = kind;
    v.parent = graph.vertices.empty() ? -1 : 0;
    v.name = name;
    v.os_index = os_index;
    if (!address.empty()) v.pci = PciFunction{*parse_pci_address(address), 0x0200, 0x15b3, 0};
    graph.vertices.push_back(v);
  };
  add(VertexKind::machine, "machine", "");
  add(VertexKind::numa, "NUMA node 0", "", 0);
  add(VertexKind::numa, "NUMA node 1", "", 1);
  add(VertexKind::gpu, "GPU 0", "0000:01:00.0");
  add(VertexKind::gpu, "GPU 1", "0000:02:00.0");
  add(VertexKind::nic, "mlx5_0", "0000:03:00.0");
  add(VertexKind::nic, "eth0", "0000:04:00.0");
  graph.vertices[5].verbs_names = {"mlx5_0"};
  graph.vertices[6].net_names = {"eth0"};
  graph.links.push_back({0, 4, LinkKind::pci, 1, {}, {0.25e9, Origin::read, "before"}});
  add_sysfs_figures(graph, f.path());
  const Link* gpu = link_of(graph, LinkKind::pci, "GPU 0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_NEAR(gpu->bandwidth.value, 63.0e9, 0.1e9);
  EXPECT_EQ(gpu->bandwidth.source, "sysfs max_link_speed, 32.0 GT/s x16 (idle at 2.5)");
  EXPECT_EQ(link_of(graph, LinkKind::pci, "GPU 1"), nullptr);
  EXPECT_EQ(about(graph.distrusted, "0000:02:00.0"),
            "0000:02:00.0: PCI link of 2.5 GT/s x1, as virtual machines report it");
  EXPECT_EQ(about(graph.distrusted, "0000:03:00.0"),
            "0000:03:00.0: numa_node -1 on a machine with several: where it is is not known");
  EXPECT_EQ(about(graph.distrusted, "10000:e1"),
            "10000:e1:00.0: a PCI domain of more than 16 bits; hwloc leaves the device out");
  EXPECT_EQ(graph.vertices[3].numa, 0);
  EXPECT_EQ(graph.vertices[6].numa, 1);
  EXPECT_NEAR(link_of(graph, LinkKind::pci, "mlx5_0")->bandwidth.value, 31.5e9, 0.1e9);
  EXPECT_EQ(link_of(graph, LinkKind::pci, "eth0"), nullptr);
  EXPECT_DOUBLE_EQ(link_of(graph, LinkKind::network, "mlx5_0")->bandwidth.value, 50e9);
  EXPECT_EQ(about(graph.notes, "port 2"), "mlx5_0 port 2 is not active (1: DOWN)");
  EXPECT_DOUBLE_EQ(link_of(graph, LinkKind::network, "eth0")->bandwidth.value, 25e9 / 8);
}

TEST(Snapshot, FolderAndArchiveGiveTheSameMachine) {
  const Folder f, other;
  put_machine(f, "snapshot/");
  put_devices(f, "snapshot/");
  const Result<Graph> folder = read_file(f.path());
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  EXPECT_EQ(folder->format, "fsroot");
  const json is = describe(*folder);
  EXPECT_EQ(is["numa_nodes"], 2);
  EXPECT_EQ(is["sockets"], 2);
  EXPECT_EQ(is["gpu_numa"], json::parse("[0,1]"));
  EXPECT_EQ(is["nics"], 2);
  for (const char* flag : {"-cf", "-czf"}) {
    const std::string archive = other.path() + "/machine.tar";
    ASSERT_EQ(std::system(fmt::format("tar {} {} -C {} snapshot", flag, archive, f.path()).c_str()), 0);
    const Result<Graph> unpacked = read_file(archive);
    ASSERT_TRUE(unpacked.ok()) << unpacked.status().to_string();
    EXPECT_EQ(unpacked->vertices, folder->vertices);
    EXPECT_EQ(unpacked->links, folder->links);
    EXPECT_EQ(unpacked->source, archive);
  }
}

TEST(Snapshot, WhatIsNoSnapshotIsRefused) {
  const Folder f, out;
  EXPECT_EQ(
      said(read_file(f.path()).status()),
      "invalid_argument: " + f.path() + ": expected a snapshot of /sys, that is a folder with sys/ in it, found none");
  f.put("sys/nothing", "");
  const Result<Graph> empty = read_file(f.path());
  EXPECT_TRUE(empty.ok() || !empty.status().text().empty());  // whatever libhwloc makes of it, the process lives
  const std::string archive = out.path() + "/a.tar";
  const auto pack = [&](const std::string& what) {
    return std::system(fmt::format("tar -P -cf {} -C {} {} 2>/dev/null", archive, f.path(), what).c_str()) == 0;
  };
  const auto said = [&] { return read_file(archive).status().text(); };
  ASSERT_EQ(mkfifo((f.path() + "/pipe").c_str(), 0600), 0);
  ASSERT_TRUE(pack("pipe"));
  EXPECT_EQ(said(), archive + ": expected files, folders and links, found a device or pipe: pipe");
  ASSERT_TRUE(pack("sys/../sys/nothing"));
  EXPECT_EQ(said(), archive + ": expected names inside of the archive, found sys/../sys/nothing");
  ASSERT_TRUE(pack(f.path() + "/sys/nothing"));
  EXPECT_EQ(said(), archive + ": expected names inside of the archive, found " + f.path() + "/sys/nothing");
  ASSERT_TRUE(pack("--exclude=sys/nothing sys"));
  std::ofstream(archive, std::ios::binary) << "BZh9 but nothing more";
  EXPECT_NE(said().find(archive + ": tar failed"), std::string::npos) << said();
}

// A link out of the archive would show this machine's files.
TEST(Snapshot, LinksOutOfTheArchiveAreCut) {
  const Folder f, secret, out;
  put_machine(f, "s/");
  put_function(f, {"0000:01:00.0", "0x030200", "0x10de", "0x2330", "0", "3", "16.0 GT/s PCIe", "16", "16.0 GT/s PCIe"},
               "s/");
  secret.put("speed", "32.0 GT/s PCIe\n");
  fs::remove(f.path() + "/s/sys/bus/pci/devices/0000:01:00.0/current_link_speed");
  fs::create_symlink(secret.path() + "/speed", f.path() + "/s/sys/bus/pci/devices/0000:01:00.0/current_link_speed");
  const std::string archive = out.path() + "/a.tar";
  ASSERT_EQ(std::system(fmt::format("tar -cf {} -C {} s", archive, f.path()).c_str()), 0);
  const Result<Graph> graph = read_file(archive);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  ASSERT_EQ(graph->all(VertexKind::gpu).size(), 1u);
  for (const Link& link : graph->links)
    EXPECT_EQ(link.bandwidth.source.find("32.0 GT/s"), std::string::npos) << link.bandwidth.source;
}

TEST(ReadFile, TellsTheFormByContent) {
  const Folder f;
  f.put("a", "<?xml version=\"1.0\"?>\n<!-- <system> -->\n<other/>\n");
  EXPECT_EQ(read_file(f.path() + "/a").status().text(),
            f.path() + "/a: expected <topology> (hwloc) or <system> (NCCL) as the first element, found \"other\"");
  f.put("b", "  \n");
  EXPECT_EQ(read_file(f.path() + "/b").status().text(), f.path() + "/b:1: expected a topology, found an empty file");
  f.put("c",
        "<!-- x -->\n<topology version=\"2.0\"><object type=\"Machine\"><object type=\"PU\" "
        "os_index=\"0\"/></object></topology>");
  EXPECT_EQ(read_file(f.path() + "/c")->format, "hwloc-xml");
  f.put("d", "        GPU0    GPU1\nGPU0     X      NV4\nGPU1    NV4      X\n");
  EXPECT_EQ(read_file(f.path() + "/d")->format, "nvidia-smi");
  f.put("e",
        "<system version=\"1\"><cpu numaid=\"0\" affinity=\"0000ffff\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
        "familyid=\"143\" modelid=\"49\"/></system>");
  EXPECT_EQ(read_file(f.path() + "/e")->format, "nccl-xml");
  f.put("f", "\npackage:2 core:2 pu:1 \n");
  EXPECT_EQ(read_file(f.path() + "/f")->format, "synthetic");
  EXPECT_EQ(read_file(f.path() + "/f")->all(VertexKind::package).size(), 2u);
}

TEST(Live, WhatThisProcessMayUse) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const Result<Graph> all = read_live();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_EQ(all->format, "hwloc");
  EXPECT_EQ(int(all->all(VertexKind::pu).size()), CPU_COUNT(&before));
  EXPECT_GE(all->all(VertexKind::numa).size(), 1u);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const Result<Graph> narrow = read_live();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  ASSERT_TRUE(narrow.ok()) << narrow.status().to_string();
  EXPECT_EQ(narrow->vertices[0].cpus.to_string(), std::to_string(first));
  EXPECT_EQ(narrow->all(VertexKind::nic).size(), all->all(VertexKind::nic).size());  // devices stay
  EXPECT_EQ(narrow->all(VertexKind::gpu).size(), all->all(VertexKind::gpu).size());
}

// A driver of three GPUs: two with NVLinks to each other and to a switch, one with a link to nowhere.
struct Driver {
  int started = 0, stopped = 0, init_result = 0;
  struct Entry {
    unsigned type, bus;
  };
  std::vector<std::vector<Entry>> links = {
      {{0, 2}, {0, 2}, {2, 0x50}, {2, 0x50}}, {{0, 1}, {0, 1}, {0, 1}, {2, 0x50}}, {{0, 0x99}}};
};

NvmlFunctions functions_of(Driver& d) {
  const auto index = [](void* device) { return std::size_t(reinterpret_cast<std::uintptr_t>(device)) - 1; };
  NvmlFunctions f;
  f.init = [&d] { return ++d.started, d.init_result; };
  f.shutdown = [&d] { return ++d.stopped, 0; };
  f.device_count = [](unsigned* n) { return *n = 3, 0; };
  f.device = [](unsigned i, void** out) { return *out = reinterpret_cast<void*>(std::uintptr_t(i) + 1), 0; };
  f.pci_info = [index](void* device, NvmlPciInfo* info) {
    return *info = {}, info->bus = unsigned(index(device)) + 1, 0;
  };
  f.name = [](void*, char* out, unsigned) { return std::copy_n("Fake H100", 10, out), 0; };
  f.link_state = [&d, index](void* device, unsigned link, unsigned* active) {
    return *active = link < d.links[index(device)].size(), link < 12 ? 0 : 2;
  };
  f.link_version = [](void*, unsigned, unsigned* version) { return *version = 6, 0; };
  f.link_remote_type = [&d, index](void* device, unsigned link, unsigned* type) {
    return *type = d.links[index(device)][link].type, 0;
  };
  f.link_remote = [&d, index](void* device, unsigned link, NvmlPciInfo* info) {
    return *info = {}, info->bus = d.links[index(device)][link].bus, 0;
  };
  f.pcie_generation = [](void*, unsigned* out) { return *out = 5, 0; };
  f.pcie_width = [](void*, unsigned* out) { return *out = 16, 0; };
  return f;
}

TEST(Nvml, LinksOfGpusAndSwitches) {
  Driver driver;
  const auto devices = read_nvml(functions_of(driver));
  ASSERT_TRUE(devices.ok()) << devices.status().to_string();
  EXPECT_EQ(driver.started, 1);
  EXPECT_EQ(driver.stopped, 1);
  Graph graph;
  graph.vertices.resize(4);
  for (int i = 1; i < 4; ++i) {
    Vertex& v = graph.vertices[std::size_t(i)];
    v.kind = VertexKind::gpu;
    v.parent = 0;
    v.index = i - 1;
    v.name = fmt::format("GPU {}", i - 1);
    v.pci = PciFunction{PciAddress{0, std::uint8_t(i), 0, 0}, 0x0302, 0x10de, 0x2330};
  }
  graph.links.push_back({1, 3, LinkKind::nvlink, 9, {}, {1, Origin::read, "what was there"}});
  add_nvml(graph, *devices);
  const json is = describe(graph);
  EXPECT_EQ(is["direct_links"], json::parse("[[0,1,2]]"));
  EXPECT_EQ(is["links_to_switch_or_unlisted"], json::parse(R"({"0":2,"1":1})"));
  EXPECT_EQ(about(graph.distrusted, "one end"), "NVLinks between GPU 0 and GPU 1: one end reports 2, the other 3");
  EXPECT_EQ(about(graph.distrusted, "GPU 2"), "GPU 2: a NVLink to 0000:99:00.0, which is not there");
  for (const Link& link : graph.links) {
    const double expected = link.kind == LinkKind::pci ? 63.015e9 : link.count * 25e9;
    EXPECT_NEAR(link.bandwidth.value, expected, 1e6) << int(link.kind);
  }
  EXPECT_EQ(graph.vertices[1].printed, (std::vector<std::pair<std::string, std::string>>{{"GPUModel", "Fake H100"}}));
}

TEST(Nvml, ADriverThatIsNotThereOrTooOld) {
  Driver driver;
  driver.init_result = 9;
  EXPECT_EQ(said(read_nvml(functions_of(driver)).status()),
            "unsupported: NVML does not start (error 9): is the NVIDIA driver loaded?");
  EXPECT_EQ(driver.stopped, 0);
  EXPECT_EQ(said(read_nvml({}).status()), "unsupported: NVML is too old: functions of version 2 are missing");
  driver.init_result = 0;
  NvmlFunctions old = functions_of(driver);
  old.link_state = nullptr;  // a driver from before NVLink
  old.link_version = nullptr;
  old.link_remote = nullptr;
  const auto devices = read_nvml(old);
  ASSERT_TRUE(devices.ok());
  EXPECT_TRUE((*devices)[0].links.empty());
}

}  // namespace
}  // namespace tutti::topology::test
