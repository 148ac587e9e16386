// Place: CPU lists, and the place of CPUs by files like those of /sys.
#include "topology/place.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

namespace tutti::topology {
namespace {

CpuSet cpus(const std::string& text) { return parse_cpu_list(text).value(); }

TEST(Place, CpuListsAreReadStrictly) {
  EXPECT_EQ(cpus("0-3,8,10-11").to_string(), "0-3,8,10-11");
  EXPECT_EQ(cpus("").count(), 0);
  for (const char* bad : {"3-1", "a", "1,,2", "1-", "-1", "0-99999999", "1 ", "99999999999999999999"})
    EXPECT_FALSE(parse_cpu_list(bad)) << bad;
}

TEST(Place, SettingsNamePackageAndNode) {
  EXPECT_EQ(parse_place("1/3"), (Place{1, 3}));
  EXPECT_EQ(parse_place("/3"), (Place{-1, 3}));
  EXPECT_EQ(parse_place("1/"), (Place{1, -1}));
  for (const char* bad : {"", "1", "a/b", "1/2/3", "-1/0"}) EXPECT_FALSE(parse_place(bad)) << bad;
}

// Two packages of four CPUs; two NUMA nodes in the first, one in the second; node 3 has memory alone.
class Machine : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("place-" + std::to_string(getpid()));
    for (int cpu = 0; cpu < 8; ++cpu)
      write("cpu/cpu" + std::to_string(cpu) + "/topology/physical_package_id", cpu < 4 ? "0" : "1");
    write("node/node0/cpulist", "0-1");
    write("node/node1/cpulist", "2-3");
    write("node/node2/cpulist", "4-7");
    write("node/node3/cpulist", "");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) {
    const auto path = root_ / "sys/devices/system" / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  Place place(const std::string& list) { return place_of(cpus(list), root_.string()); }
  std::filesystem::path root_;
};

TEST_F(Machine, CpusOfOneNodeHaveAPlace) {
  EXPECT_EQ(place("0"), (Place{0, 0}));
  EXPECT_EQ(place("2-3"), (Place{0, 1}));
  EXPECT_EQ(place("5,7"), (Place{1, 2}));
}

TEST_F(Machine, CpusOfSeveralNodesHaveLess) {
  EXPECT_EQ(place("0-3"), (Place{0, -1}));
  EXPECT_EQ(place("0-7"), (Place{-1, -1}));
  EXPECT_EQ(place("0,4"), (Place{-1, -1}));
}

TEST_F(Machine, WhatTheFilesDoNotSayIsUnknown) {
  EXPECT_EQ(place(""), (Place{-1, -1}));
  EXPECT_EQ(place("9"), (Place{-1, -1}));
  EXPECT_EQ(place_of(cpus("0"), "/nowhere"), (Place{-1, -1}));
}

}  // namespace
}  // namespace tutti::topology
