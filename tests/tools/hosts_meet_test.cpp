// How launchers of several hosts find each other, in one process: rosters that
// gossip keeps alike, what Slurm says of hosts, GPUs.
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sys/mman.h>
#include "comm/roster.h"
#include "tools/allocation.h"
#include "tools/assembly.h"
#include "tools/gpus.h"
#include "tools/gossip.h"

namespace tutti::tools {
namespace {

using testing::HasSubstr;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// A roster in memory, kept like others by gossip.
struct Host {
  explicit Host(const std::string& key = "secret") : file(memfd_create("roster", MFD_CLOEXEC)) {
    fcntl(file.get(), F_SETFL, O_APPEND);
    auto opened = Gossip::open(file.get(), {"127.0.0.1:0"}, comm::make_job_key(key));
    if (opened) gossip = std::move(*opened);
    else ADD_FAILURE() << opened.status().to_string();
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", gossip->port()); }
  void add(const std::string& line) const { EXPECT_TRUE(comm::Roster(file.get()).add(line).ok()); }
  std::multiset<std::string> lines() const {
    comm::Roster roster(file.get());
    EXPECT_TRUE(roster.read().ok());
    return {roster.other_lines().begin(), roster.other_lines().end()};
  }
  bool comes_to(const std::multiset<std::string>& wanted) const {
    for (const auto end = Clock::now() + seconds(30); Clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      if (lines() == wanted) return true;
    return lines() == wanted;
  }
  Descriptor file;
  std::unique_ptr<Gossip> gossip;      // goes first
};

TEST(GossipTest, LinesOfEachHostComeToAllOnce) {
  Host a, b, c;
  a.add("x from a");
  b.gossip->keep_calling({a.address()});
  c.gossip->keep_calling({a.address(), b.address()});
  b.add("x from b");
  c.add("x from c");
  c.add("x from c");      // said twice, heard twice
  const std::multiset<std::string> all = {"x from a", "x from b", "x from c", "x from c"};
  for (const Host* host : {&a, &b, &c}) EXPECT_TRUE(host->comes_to(all));
  EXPECT_EQ(c.gossip->trouble(a.address()), "");
}

TEST(GossipTest, WithoutTheOneWhereAllMetTheOthersGoOnAndWhoComesLaterHearsAll) {
  auto first = std::make_unique<Host>();
  Host b, c, late;
  b.gossip->keep_calling({first->address()});
  c.gossip->keep_calling({first->address(), b.address()});
  first->add("x of old");
  EXPECT_TRUE(b.comes_to({"x of old"}));
  EXPECT_TRUE(c.comes_to({"x of old"}));
  first.reset();
  b.add("x of new");
  EXPECT_TRUE(c.comes_to({"x of old", "x of new"}));
  late.gossip->keep_calling({c.address()});
  EXPECT_TRUE(late.comes_to({"x of old", "x of new"}));
}

TEST(GossipTest, AnotherKeyIsTurnedAway) {
  Host a, stranger("another secret");
  a.add("x");
  stranger.gossip->keep_calling({a.address()});
  const auto says = [&] { return stranger.gossip->trouble(a.address()); };
  for (const auto end = Clock::now() + seconds(30);
       Clock::now() < end && says().find("another job key") == std::string::npos;)
    std::this_thread::yield();
  EXPECT_THAT(says(), HasSubstr("another job key"));
  EXPECT_TRUE(stranger.lines().empty());
}

AssemblyPlan plan_for(const std::string& file, std::vector<std::string>& told) {
  AssemblyPlan plan;
  plan.file = file;
  plan.least = 1;
  plan.limit = seconds(60);
  plan.tell = [&told](const std::string& line) { told.push_back(line); };
  return plan;
}

TEST(AssemblyTest, AFileGivesNumbersKeyAndAddressAndGoesAwayWithTheLast) {
  const std::string file = testing::TempDir() + "meeting-of-two";
  std::ofstream(file) << "job 9 9\nkey of a job that is over\n";
  std::vector<std::string> told;
  Job job;
  job.host_count = 2;
  Job other = job;
  std::unique_ptr<Assembly> first, second;
  std::thread thread([&] {
    auto met = Assembly::meet(other, plan_for(file, told));
    if (met) second = std::move(*met);
  });
  std::vector<std::string> ours;
  auto met = Assembly::meet(job, plan_for(file, ours));
  thread.join();
  ASSERT_TRUE(met.ok()) << met.status().to_string();
  ASSERT_TRUE(second);
  first = std::move(*met);
  EXPECT_EQ(job.host_rank + other.host_rank, 1);
  EXPECT_EQ(job.job_key, other.job_key);
  EXPECT_EQ(job.job_key.size(), 64u);
  EXPECT_EQ(job.master_port, other.master_port);
  EXPECT_GT(job.master_port, 0);
  Job third = job;
  EXPECT_THAT(Assembly::meet(third, plan_for(file, told)).status().text(),
              HasSubstr("all 2 hosts of the job are there already"));
  Job different = job;
  different.local_ranks = 7;
  EXPECT_THAT(Assembly::meet(different, plan_for(file, told)).status().text(),
              HasSubstr("--nnodes and -n must be the same on all"));
  const int number = other.host_rank;
  second.reset();
  Job again = other;
  auto back = Assembly::meet(again, plan_for(file, told));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(again.host_rank, number) << "who comes back gets the number that is free";
  back->reset();
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(AssemblyTest, SaysWhoIsMissing) {
  const std::string file = testing::TempDir() + "meeting-of-three";
  std::vector<std::string> told;
  AssemblyPlan plan = plan_for(file, told);
  plan.limit = std::chrono::milliseconds(2600);
  plan.host_names = {"a", "b", "c"};
  Job job;
  job.host_count = 3;
  const auto met = Assembly::meet(job, plan);
  EXPECT_EQ(met.status().code(), Code::timeout);
  EXPECT_THAT(met.status().text(), HasSubstr("1 of 3 hosts joined within 2 s, missing: b, c"));
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told[0], HasSubstr("1 of 3 hosts joined, waiting for b, c, 1 s left"));
}

TEST(AssemblyTest, TwoHostsOfOneNumberAreTold) {
  Job job;
  job.host_count = 3;
  job.host_rank = 1;
  job.job_key = "secret";
  Host zero;      // in the place of host 0, which passes lines on
  job.master_port = zero.gossip->port();
  std::vector<std::string> told;
  AssemblyPlan plan = plan_for("", told);
  plan.limit = seconds(3);
  Job twin = job;
  Status other;
  std::vector<std::string> told_too;
  std::thread thread([&] {
    AssemblyPlan plan_too = plan_for("", told_too);
    plan_too.limit = seconds(3);
    other = Assembly::meet(twin, plan_too).status();
  });
  const Status own = Assembly::meet(job, plan).status();
  thread.join();
  EXPECT_TRUE(own.code() == Code::invalid_argument || other.code() == Code::invalid_argument)
      << own.text() << other.text();
  const std::string text = own.code() == Code::invalid_argument ? own.text() : other.text();
  EXPECT_THAT(text, HasSubstr("as host number 1 too: each host wants a --node-rank of its own"));
}

Result<std::optional<Allocation>> allocation(std::map<std::string, std::string> names) {
  return read_allocation([&](const char* name) {
    const auto found = names.find(name);
    return found == names.end() ? nullptr : found->second.c_str();
  });
}

TEST(AllocationTest, WhatSrunSaysOfHosts) {
  const std::map<std::string, std::string> step = {{"SLURM_JOB_ID", "12"},
                                                   {"SLURM_STEP_ID", "1"},
                                                   {"SLURM_NODEID", "2"},
                                                   {"SLURM_PROCID", "2"},
                                                   {"SLURM_STEP_NODELIST", "gpu[08-09],head"},
                                                   {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}};
  const auto read = allocation(step);
  ASSERT_TRUE(read.ok() && *read);
  EXPECT_EQ((*read)->hosts, (std::vector<std::string>{"gpu08", "gpu09", "head"}));
  EXPECT_EQ((*read)->host_number, 2);
  EXPECT_EQ((*read)->port, 20085);
  auto two = step;
  two["SLURM_STEP_TASKS_PER_NODE"] = "1,2(x2)";
  EXPECT_THAT(allocation(two).status().text(), HasSubstr("--ntasks-per-node=1"));
  auto batch = step;
  batch["SLURM_STEP_ID"] = "4294967291";
  EXPECT_FALSE(*allocation(batch));
  EXPECT_FALSE(*allocation({}));
  auto one = step;
  one["SLURM_STEP_NODELIST"] = "head", one["SLURM_STEP_TASKS_PER_NODE"] = "1";
  EXPECT_FALSE(*allocation(one));
  auto torn = step;
  torn["SLURM_STEP_NODELIST"] = "gpu[08";
  EXPECT_THAT(allocation(torn).status().text(), HasSubstr("SLURM_STEP_NODELIST=gpu[08"));
}

TEST(GpusTest, AreThoseOfTheDriverThatAreVisible) {
  const std::filesystem::path driver = testing::TempDir() + "gpus";
  for (const char* one : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"})
    std::filesystem::create_directories(driver / one);
  EXPECT_EQ(usable_gpus("", driver), 3);
  EXPECT_EQ(usable_gpus("0,2", driver), 2);
  EXPECT_EQ(usable_gpus("1,7,2", driver), 1);
  EXPECT_EQ(usable_gpus("-1", driver), 0);
  EXPECT_EQ(usable_gpus("GPU-aa,GPU-bb", driver), 2);
  EXPECT_EQ(usable_gpus("", "/nonexistent"), 0);
  EXPECT_EQ(usable_gpus("0", "/nonexistent"), 0);
  std::filesystem::remove_all(driver);
}

}  // namespace
}  // namespace tutti::tools
