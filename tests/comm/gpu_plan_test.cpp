// Which way an all_reduce on GPUs goes: by the prices, and by what the user sets.
#include <gtest/gtest.h>

#include <comm/gpu_plan.h>
#include <core/device.h>

namespace tutti::comm {
namespace {

GpuPlan best(std::uint64_t bytes, int ranks, const Settings& settings = {}, GpuQuestion question = {}) {
  question.bytes = bytes, question.ranks = ranks;
  return gpu_plans(question, settings).front();
}

TEST(GpuPlan, PricesTakeOneShotForFewBytesAndTwoShotForMany) {
  for (const int ranks : {3, 4, 8}) {
    EXPECT_EQ(best(1024, ranks).way, GpuWay::one_shot) << ranks;
    EXPECT_EQ(best(2 << 20, ranks).way, GpuWay::two_shot) << ranks;
    EXPECT_EQ(best(1024, ranks).reason, "lowest predicted time");
    int changes = 0;
    for (std::uint64_t bytes = 64; bytes <= 64 << 20; bytes *= 2)
      changes += best(bytes, ranks).way != best(bytes * 2, ranks).way;
    EXPECT_EQ(changes, 1) << ranks;
  }
}

// Two ranks read as much of each other in either way, and the one-shot kernel meets once.
TEST(GpuPlan, TwoRanksAlwaysTakeOneShot) {
  for (std::uint64_t bytes = 64; bytes <= 64 << 20; bytes *= 4)
    EXPECT_EQ(best(bytes, 2).way, GpuWay::one_shot) << bytes;
}

TEST(GpuPlan, ThresholdsDecide) {
  Settings settings;
  settings.one_shot_threshold = 512 << 10;
  EXPECT_EQ(best(512 << 10, 8, settings).way, GpuWay::one_shot);
  EXPECT_EQ(best(512 << 10, 8, settings).reason, "TUTTI_ONE_SHOT_THRESHOLD=512K");
  EXPECT_EQ(best((512 << 10) + 1, 2, settings).way, GpuWay::two_shot);
  settings.two_shot_threshold = 1 << 20;
  EXPECT_EQ(best(1 << 20, 2, settings).way, GpuWay::two_shot);
  EXPECT_EQ(best((1 << 20) + 1, 2, settings).way, GpuWay::staged);
  EXPECT_EQ(best((1 << 20) + 1, 2, settings).reason, "TUTTI_TWO_SHOT_THRESHOLD=1M");
  settings.one_shot_threshold = settings.two_shot_threshold = 0;
  EXPECT_EQ(best(4, 4, settings).way, GpuWay::staged);
}

TEST(GpuPlan, AnAlgorithmOfTheHostsIsObeyed) {
  GpuQuestion question;
  question.host_rule = true;
  EXPECT_EQ(best(1024, 4, {}, question).way, GpuWay::staged);
  Settings settings;
  settings.one_shot_threshold = 4096;  // says more of these calls
  EXPECT_EQ(best(1024, 4, settings, question).way, GpuWay::one_shot);
}

TEST(GpuPlan, BlocksGrowWithTheBytes) {
  EXPECT_EQ(gpu_blocks(0), 1);
  EXPECT_EQ(gpu_blocks(16 << 10), 1);
  EXPECT_EQ(gpu_blocks((16 << 10) + 1), 2);
  EXPECT_EQ(gpu_blocks(64 << 20), SharedReduction::kMostBlocks);
}

}  // namespace
}  // namespace tutti::comm
