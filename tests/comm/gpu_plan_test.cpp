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

// Of a sum of all there are shares; everything else is one meeting or the host's, whatever the thresholds of all_reduce say.
TEST(GpuPlan, OtherCollectivesAreOneShotOrTheHosts) {
  Settings settings;
  settings.one_shot_threshold = settings.two_shot_threshold = 0;
  for (const Collective what : {Collective::all_gather, Collective::reduce_scatter, Collective::broadcast, Collective::reduce, Collective::gather,
                                Collective::scatter, Collective::all_to_all}) {
    GpuQuestion question;
    question.collective = what;
    EXPECT_EQ(best(1 << 20, 4, settings, question).way, GpuWay::one_shot) << name_of(what);
    question.host_rule = true;
    EXPECT_EQ(best(1 << 20, 4, settings, question).way, GpuWay::staged) << name_of(what);
    question.bytes = 1 << 20;
    EXPECT_EQ(gpu_plans(question, settings).size(), 2u) << name_of(what);
  }
}

// Rows of a rank fit into what it puts before the others, and begin at multiples of 16 bytes.
TEST(GpuPlan, PiecesFit) {
  for (const std::size_t element : {1, 2, 4, 8})
    for (const int ranks : {2, 3, 7, 8})
      for (const auto& [what, rows] : {std::pair(Collective::all_reduce, 1), {Collective::all_gather, 1}, {Collective::broadcast, 1},
                                       {Collective::reduce_scatter, ranks}, {Collective::scatter, ranks}, {Collective::all_to_all, ranks}}) {
        const std::uint64_t row = gpu_piece(what, ranks, element) * element;
        EXPECT_EQ(row % 16, 0u);
        EXPECT_LE(row * std::uint64_t(rows), kGpuPiece);
        EXPECT_GT((row + 16 * element) * std::uint64_t(rows), kGpuPiece) << name_of(what) << " " << ranks;
      }
}

TEST(GpuPlan, BlocksGrowWithTheBytes) {
  EXPECT_EQ(gpu_blocks(0), 1);
  EXPECT_EQ(gpu_blocks(16 << 10), 1);
  EXPECT_EQ(gpu_blocks((16 << 10) + 1), 2);
  EXPECT_EQ(gpu_blocks(64 << 20), SharedExchange::kMostBlocks);
}

}  // namespace
}  // namespace tutti::comm
