// Ranks on described machines: who may run where, and what is said of it.
#include "tools/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/answers.h"
#include "topology/read.h"

namespace tutti::tools {
namespace {

using testing::HasSubstr;

topology::Graph synthetic(const std::string& text) {
  auto graph = topology::read_synthetic(text, text);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  return std::move(graph).value();
}

std::vector<std::string> sets(const Binding& binding) {
  std::vector<std::string> out;
  for (const auto& cpus : binding.cpus) out.push_back(cpus.to_string());
  return out;
}

using Sets = std::vector<std::string>;

TEST(Binding, SpreadsRanksOverNodesInOrder) {
  const auto machine = synthetic("numa:2 core:4 pu:1");
  const Binding four = bind_ranks(machine, Bind::automatic, 4);
  EXPECT_EQ(sets(four), (Sets{"0-3", "0-3", "4-7", "4-7"}));
  EXPECT_EQ(four.told,
            "local ranks bound: 0-1 on node 0 (CPUs 0-3), 2-3 on node 1 (CPUs 4-7); --bind none leaves them free");
  EXPECT_EQ(sets(bind_ranks(machine, Bind::numa, 3)), (Sets{"0-3", "0-3", "4-7"}));
  EXPECT_EQ(sets(bind_ranks(machine, Bind::numa, 1)), (Sets{"0-3"}));
}

TEST(Binding, AutomaticLeavesAloneWhereNothingIsWon) {
  EXPECT_TRUE(bind_ranks(synthetic("numa:2 core:4 pu:1"), Bind::automatic, 1).cpus.empty());
  EXPECT_TRUE(bind_ranks(synthetic("numa:1 core:4 pu:1"), Bind::automatic, 4).cpus.empty());
  EXPECT_TRUE(bind_ranks(synthetic("numa:2 core:4 pu:1"), Bind::none, 4).cpus.empty());
}

TEST(Binding, CoresAreRunsAndSharedWhenThereAreTooFew) {
  const auto machine = synthetic("numa:1 core:4 pu:2");
  EXPECT_EQ(sets(bind_ranks(machine, Bind::core, 2)), (Sets{"0-3", "4-7"}));
  EXPECT_EQ(sets(bind_ranks(machine, Bind::core, 3)), (Sets{"0-1", "2-3", "4-7"}));
  EXPECT_EQ(sets(bind_ranks(machine, Bind::core, 8)), (Sets{"0-1", "0-1", "2-3", "2-3", "4-5", "4-5", "6-7", "6-7"}));
}

TEST(Binding, ARankSitsNearTheGpuOfItsNumber) {
  const auto machine = topology::read_file(TUTTI_SOURCE_DIR "/tests/topology/data/interleaved.nccl.xml");
  ASSERT_TRUE(machine.ok()) << machine.status().to_string();
  const auto gpus = machine->all(topology::VertexKind::gpu);
  const Binding binding = bind_ranks(*machine, Bind::automatic, int(gpus.size()));
  ASSERT_EQ(binding.cpus.size(), gpus.size()) << "as many nodes as the file has";
  for (std::size_t i = 0; i < gpus.size(); ++i)
    EXPECT_EQ(binding.cpus[i], machine->vertices[std::size_t(topology::numa_of(*machine, gpus[i]))].cpus)
        << "GPU " << i;
}

TEST(Binding, NamesAreTheFour) {
  EXPECT_EQ(bind_from("numa"), Bind::numa);
  EXPECT_FALSE(bind_from("socket"));
  EXPECT_GE(numa_nodes(), 0);
}

}  // namespace
}  // namespace tutti::tools
