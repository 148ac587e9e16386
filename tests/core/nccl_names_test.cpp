// NCCL's names: what each becomes, and that tutti's own win.
#include "core/nccl_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/config.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Shell {
  std::map<std::string, std::string> set;
  std::vector<std::string> told;
  ReadVariable reader() {
    return [this](const char* name) { return set.count(name) ? set.at(name).c_str() : nullptr; };
  }
  std::string becomes(const char* variable) {
    return from_nccl(variable, reader(), [this](const std::string& line) { told.push_back(line); }).value_or("-");
  }
};

TEST(NcclNames, BecomeSettings) {
  const struct { const char *name, *value, *variable, *ours; } rows[] = {
      {"NCCL_TREE_THRESHOLD", "4194304", "TUTTI_TREE_THRESHOLD", "4194304"},
      {"NCCL_ALGO", "Ring", "TUTTI_ALGO", "ring"},
      {"NCCL_ALGO", "^Tree,CollnetDirect", "TUTTI_ALGO", "^tree"},
      {"NCCL_BUFFSIZE", "4194304", "TUTTI_SEGMENT", "512K"},
      {"NCCL_SHM_DISABLE", "1", "TUTTI_TRANSPORT", "tcp"},
      {"NCCL_SOCKET_IFNAME", "eth,ib", "TUTTI_INTERFACE", "eth*,ib*"},
      {"NCCL_SOCKET_IFNAME", "=eth0,eth1", "TUTTI_INTERFACE", "eth0,eth1"},
      {"NCCL_SOCKET_IFNAME", "^docker,lo", "TUTTI_INTERFACE", "^docker*,lo*"},
      {"NCCL_SOCKET_IFNAME", "^=docker0", "TUTTI_INTERFACE", "^docker0"},
      {"NCCL_NSOCKS_PERTHREAD", "4", "TUTTI_SOCKETS", "4"},
      {"NCCL_DEBUG", "INFO", "TUTTI_LOG", "info"},
      {"NCCL_IB_DISABLE", "1", "TUTTI_IB_HCA", "^*"},
      {"NCCL_IB_HCA", "mlx5_0:1,mlx5_2", "TUTTI_IB_HCA", "mlx5_0*:1,mlx5_2*"},
      {"NCCL_IB_HCA", "^=mlx5_0:1,mlx5_2", "TUTTI_IB_HCA", "^mlx5_0:1,mlx5_2"},
      {"NCCL_IB_GID_INDEX", "3", "TUTTI_IB_GID_INDEX", "3"},
      {"NCCL_IB_TIMEOUT", "22", "TUTTI_IB_TIMEOUT", "22"},
      {"NCCL_IB_TC", "106", "TUTTI_IB_TRAFFIC_CLASS", "106"},
      {"NCCL_IB_PCI_RELAXED_ORDERING", "0", "TUTTI_IB_RELAXED_ORDERING", "0"},
      {"NCCL_NET_GDR_LEVEL", "PHB", "TUTTI_IB_GPU_DISTANCE", "PHB"},
      {"NCCL_NET_GDR_LEVEL", "4", "TUTTI_IB_GPU_DISTANCE", "SYS"},
      {"NCCL_TOPO_FILE", "/a/b.xml", "TUTTI_TOPOLOGY_FILE", "/a/b.xml"},
      {"NCCL_P2P_DISABLE", "1", "TUTTI_P2P", "0"},
      {"NCCL_P2P_LEVEL", "LOC", "TUTTI_P2P", "0"},
      {"NCCL_P2P_LEVEL", "SYS", "TUTTI_P2P", "auto"},
  };
  for (const auto& row : rows) {
    Shell shell{{{row.name, row.value}}, {}};
    EXPECT_EQ(shell.becomes(row.variable), row.ours) << row.name << "=" << row.value;
    EXPECT_THAT(shell.told, ElementsAre(testing::AllOf(HasSubstr(std::string(row.name) + "=" + row.value),
                                                       HasSubstr(std::string(row.variable) + "=" + row.ours))));
  }
}

TEST(NcclNames, WhatIsNotUnderstoodIsSaidAndHasNoEffect) {
  for (const auto& [name, value, variable] : {std::tuple{"NCCL_TREE_THRESHOLD", "4Q", "TUTTI_TREE_THRESHOLD"},
                                              {"NCCL_ALGO", "NVLS", "TUTTI_ALGO"},
                                              {"NCCL_DEBUG", "LOUD", "TUTTI_LOG"},
                                              {"NCCL_SOCKET_IFNAME", "a,,b", "TUTTI_INTERFACE"},
                                              {"NCCL_NSOCKS_PERTHREAD", "x", "TUTTI_SOCKETS"},
                                              {"NCCL_NET_GDR_LEVEL", "near", "TUTTI_IB_GPU_DISTANCE"},
                                              {"NCCL_P2P_LEVEL", "NVL", "TUTTI_P2P"}}) {
    Shell shell{{{name, value}}, {}};
    EXPECT_EQ(shell.becomes(variable), "-");
    EXPECT_THAT(shell.told, ElementsAre(HasSubstr("no effect"))) << name;
  }
  Shell quiet{{{"NCCL_SHM_DISABLE", "0"}, {"NCCL_IB_PCI_RELAXED_ORDERING", "2"}}, {}};
  EXPECT_EQ(quiet.becomes("TUTTI_TRANSPORT"), "-");
  EXPECT_EQ(quiet.becomes("TUTTI_IB_RELAXED_ORDERING"), "-");
  EXPECT_THAT(quiet.told, IsEmpty());
}

TEST(NcclNames, OursWin) {
  Shell shell{{{"NCCL_TREE_THRESHOLD", "1M"}, {"TUTTI_TREE_THRESHOLD", "64K"}}, {}};
  const auto settings = read_settings(shell.reader(), {});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->tree_threshold, ByteCount(64 << 10));
}

TEST(NcclNames, TheTreeThresholdWorks) {
  Shell shell{{{"NCCL_TREE_THRESHOLD", "1M"}, {"NCCL_SHM_DISABLE", "1"}}, {}};
  const auto settings = read_settings(shell.reader(), {});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->tree_threshold, ByteCount(1 << 20));
  EXPECT_EQ(settings->transport, "tcp");
}

}  // namespace
}  // namespace tutti
