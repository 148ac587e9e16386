// Environments as launchers leave them, and broken ones.
#include "comm/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "comm/host_list.h"

namespace tutti::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Environment = std::map<std::string, std::string>;

Result<Launch> read(const Environment& environment, const std::vector<Ancestor>& ancestors = {}) {
  return read_launch(
      [&](const char* name) -> const char* {
        auto at = environment.find(name);
        return at == environment.end() ? nullptr : at->second.c_str();
      },
      ancestors);
}

Environment with(Environment base, const Environment& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

Environment without(Environment base, const std::string& name) {
  base.erase(name);
  return base;
}

const Environment kTorchrun = {{"RANK", "3"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "node1"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "run7"}};
const Environment kTutti = {{"TUTTI_RANK", "1"}, {"TUTTI_RANK_COUNT", "2"}, {"TUTTI_ADDRESS", "10.0.0.1:4000"}};
const Environment kSlurm = {{"SLURM_PROCID", "5"},
                            {"SLURM_NTASKS", "11"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "1"},
                            {"SLURM_STEP_NODELIST", "gpu[07-08,11]"},
                            {"SLURM_JOB_NODELIST", "gpu[01-11]"},
                            {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                            {"SLURM_JOB_ID", "4711"},
                            {"SLURM_STEP_ID", "2"}};
const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"PMIX_RANK", "1"},
    {"PMIX_NAMESPACE", "1560477697"},
    {"OMPI_MCA_orte_hnp_uri", "1560477696.0;tcp://192.0.2.2,172.17.0.1:50353;tcp6://[fd00::2]:45623"}};
const Environment kHydra = {
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "6"}};

TEST(Launch, without_a_launcher_it_is_rank_0_of_1) {
  auto launch = read({{"PATH", "/bin"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  EXPECT_EQ(launch->launcher, "none");
  EXPECT_EQ(launch->rank, 0);
  EXPECT_EQ(launch->rank_count, 1);
  EXPECT_THAT(launch->addresses, IsEmpty());
}

TEST(Launch, own_names_win) {
  auto launch = read(with(kTorchrun, with(kTutti, {{"TUTTI_LOCAL_RANK", "0"}})));
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  EXPECT_EQ(launch->launcher, "tutti");
  EXPECT_EQ(launch->rank, 1);
  EXPECT_EQ(launch->rank_count, 2);
  EXPECT_EQ(launch->local_rank, 0);
  EXPECT_THAT(launch->addresses, ElementsAre("10.0.0.1:4000"));
  EXPECT_EQ(launch->ports, 1) << "an address that was given is meant";
}

TEST(Launch, torchrun) {
  auto launch = read(kTorchrun);
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  EXPECT_EQ(launch->launcher, "torchrun");
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->rank_count, 8);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_rank_count, 2);
  EXPECT_THAT(launch->addresses, ElementsAre("node1:29500"));
  EXPECT_EQ(launch->ports, 16) << "torchrun's store holds the first";
  EXPECT_EQ(launch->job, "run7");
  EXPECT_THAT(read(with(kTorchrun, {{"MASTER_ADDR", "fd00::1"}}))->addresses, ElementsAre("[fd00::1]:29500"));
}

TEST(Launch, slurm_takes_the_first_host_of_the_step_and_a_port_by_rule) {
  auto launch = read(kSlurm);
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  EXPECT_EQ(launch->launcher, "slurm");
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->rank_count, 11);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_rank_count, 4);
  EXPECT_THAT(launch->addresses, ElementsAre("gpu07:22979"));  // 20000 + (4711 x 7 + 2) mod 10000
  EXPECT_THAT(read(without(kSlurm, "SLURM_STEP_NODELIST"))->addresses, ElementsAre("gpu01:22979"));
}

TEST(Launch, a_script_of_sbatch_is_no_rank) {
  auto launch = read(with(kSlurm, {{"SLURM_STEP_ID", "4294967294"}}));
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->launcher, "none");
  EXPECT_EQ(launch->rank_count, 1);
}

TEST(Launch, open_mpi_on_one_host_meets_by_a_name_that_all_ranks_derive) {
  auto first = read(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}})), second = read(kOpenMpi);
  ASSERT_TRUE(first.ok() && second.ok()) << second.status().to_string();
  EXPECT_EQ(second->launcher, "openmpi");
  EXPECT_EQ(second->rank, 1);
  EXPECT_EQ(first->addresses, second->addresses);
  EXPECT_THAT(second->addresses, ElementsAre(StartsWith("@tutti-")));
  auto other = read(with(kOpenMpi, {{"PMIX_NAMESPACE", "1560477698"}}));
  EXPECT_NE(other->addresses, second->addresses) << "another job";
}

TEST(Launch, open_mpi_on_several_hosts_meets_where_mpirun_is) {
  auto launch = read(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  ASSERT_EQ(launch->addresses.size(), 3u);
  EXPECT_THAT(launch->addresses,
              ElementsAre(StartsWith("192.0.2.2:2"), StartsWith("172.17.0.1:2"), StartsWith("[fd00::2]:2")));
  EXPECT_EQ(launch->ports, 16);
  auto none = read(without(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}), "OMPI_MCA_orte_hnp_uri"));
  EXPECT_THAT(none.status().text(), HasSubstr("TUTTI_ADDRESS"));
}

TEST(Launch, a_master_address_serves_mpirun_too) {
  auto launch = read(with(kOpenMpi, {{"MASTER_ADDR", "node1"},
                                     {"MASTER_PORT", "29500"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}));
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  EXPECT_THAT(launch->addresses, ElementsAre("node1:29500"));
}

TEST(Launch, hydra_on_one_host_goes_by_its_proxy_even_through_a_shell) {
  const Ancestor shell{12818, "sh", "900"}, other_shell{12819, "sh", "901"}, proxy{12817, "hydra_pmi_proxy", "899"};
  auto first = read(kHydra, {shell, proxy}),
       second = read(with(kHydra, {{"PMI_RANK", "1"}, {"MPI_LOCALRANKID", "1"}}), {other_shell, proxy});
  ASSERT_TRUE(first.ok() && second.ok()) << first.status().to_string();
  EXPECT_EQ(first->launcher, "mpich");
  EXPECT_EQ(second->rank, 1);
  EXPECT_EQ(first->addresses, second->addresses);
  EXPECT_THAT(first->addresses, ElementsAre(StartsWith("@tutti-")));
  EXPECT_NE(read(kHydra, {{shell}, {12817, "hydra_pmi_proxy", "950"}})->addresses, first->addresses)
      << "a later job with the same pid";
}

TEST(Launch, hydra_on_several_hosts_asks_for_an_address) {
  auto launch = read(with(kHydra, {{"MPI_LOCALNRANKS", "1"}}), {{1, "hydra_pmi_proxy", "1"}});
  ASSERT_FALSE(launch.ok());
  EXPECT_EQ(launch.status().code(), Code::invalid_argument);
  EXPECT_THAT(launch.status().text(), HasSubstr("TUTTI_ADDRESS"));
}

TEST(Launch, pmix_under_srun_takes_the_count_and_the_hosts_from_slurm) {
  auto launch = read(with(kSlurm, {{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.4711.2"}}));
  ASSERT_TRUE(launch.ok()) << launch.status().to_string();
  EXPECT_EQ(launch->launcher, "pmix");
  EXPECT_EQ(launch->rank_count, 11);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_THAT(launch->addresses, ElementsAre("gpu07:22979"));
}

TEST(Launch, errors_name_variable_and_value) {
  struct Case {
    Environment environment;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {with(kTorchrun, {{"RANK", "5"}, {"WORLD_SIZE", "4"}}), {"RANK=5", "WORLD_SIZE=4", "from 0 to 3"}},
      {with(kTorchrun, {{"RANK", "abc"}}), {"RANK=abc"}},
      {with(kTorchrun, {{"RANK", "-1"}}), {"RANK=-1"}},
      {with(kTorchrun, {{"RANK", "1 "}}), {"RANK=1 "}},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0"}},
      {with(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), {"WORLD_SIZE=99999999999"}},
      {without(kTorchrun, "WORLD_SIZE"), {"WORLD_SIZE is not set", "RANK=3"}},
      {without(kTorchrun, "RANK"), {"RANK is not set", "WORLD_SIZE=8"}},
      {without(kTorchrun, "MASTER_ADDR"), {"MASTER_ADDR"}},
      {without(kTorchrun, "MASTER_PORT"), {"MASTER_PORT", "MASTER_ADDR=node1"}},
      {with(kTorchrun, {{"MASTER_PORT", "70000"}}), {"MASTER_PORT=70000"}},
      {with(kTorchrun, {{"MASTER_PORT", "x"}}), {"MASTER_PORT=x"}},
      {with(kTorchrun, {{"LOCAL_RANK", "2"}}), {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"}},
      {without(kTutti, "TUTTI_RANK"), {"TUTTI_RANK is not set", "TUTTI_RANK_COUNT=2"}},
      {without(kTutti, "TUTTI_RANK_COUNT"), {"TUTTI_RANK_COUNT is not set", "TUTTI_RANK=1"}},
      {without(kTutti, "TUTTI_ADDRESS"), {"TUTTI_ADDRESS is not set"}},
      {with(kTutti, {{"TUTTI_ADDRESS", "node1"}}), {"TUTTI_ADDRESS=node1"}},
      {with(kTutti, {{"TUTTI_ADDRESS", "node1:0"}}), {"TUTTI_ADDRESS=node1:0"}},
      {with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu[07-"}}), {"SLURM_STEP_NODELIST=gpu[07-"}},
      {with(kSlurm, {{"SLURM_NTASKS", "5"}}), {"SLURM_PROCID=5", "SLURM_NTASKS=5"}},
      {without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), {"OMPI_COMM_WORLD_SIZE is not set"}},
      {{{"PMIX_RANK", "0"}}, {"PMIX_SIZE is not set"}},
  };
  for (const Case& c : cases) {
    auto launch = read(c.environment);
    ASSERT_FALSE(launch.ok()) << c.words[0];
    EXPECT_EQ(launch.status().code(), Code::invalid_argument);
    for (const auto& word : c.words) EXPECT_THAT(launch.status().text(), HasSubstr(word));
  }
}

TEST(Launch, ancestors_begin_with_the_parent) {
  auto ancestors = read_ancestors();
  ASSERT_FALSE(ancestors.empty());
  EXPECT_EQ(ancestors[0].pid, ::getppid());
  EXPECT_FALSE(ancestors[0].program.empty());
  EXPECT_FALSE(ancestors[0].started.empty());
}

TEST(HostList, expands_brackets) {
  EXPECT_THAT(*expand_host_list("node1"), ElementsAre("node1"));
  EXPECT_THAT(*expand_host_list("node[01-03,07],gpu5"), ElementsAre("node01", "node02", "node03", "node07", "gpu5"));
  EXPECT_THAT(*expand_host_list("rack[1-2]n[8-9]"), ElementsAre("rack1n8", "rack1n9", "rack2n8", "rack2n9"));
  EXPECT_THAT(*expand_host_list("a[9-11]-ib,b"), ElementsAre("a9-ib", "a10-ib", "a11-ib", "b"));
  EXPECT_THAT(*expand_host_list("n[001-002]"), ElementsAre("n001", "n002"));
  EXPECT_EQ(expand_host_list("n[0-65535]")->size(), 65536u);
}

TEST(HostList, refuses_malformed_ones) {
  for (const char* text : {"", ",", "a,", "n[", "n]", "n[]", "n[1-]", "n[-1]", "n[3-1]", "n[a-b]", "n[1,]", "n[[1]]",
                           "n[0-65536]", "n[0-999]m[0-999]", "n[1-99999999999]"})
    EXPECT_EQ(expand_host_list(text).status().code(), Code::invalid_argument) << text;
}

TEST(HostList, counts_per_host) {
  EXPECT_THAT(*expand_counts("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(*expand_counts("2"), ElementsAre(2));
  for (const char* text : {"", "x", "4(x)", "4(x0)", "4(x2", "4(2)", "-1", "1,,2", "1(x99999999)"})
    EXPECT_FALSE(expand_counts(text).ok()) << text;
}

}  // namespace
}  // namespace tutti::comm
