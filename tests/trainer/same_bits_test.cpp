// --deterministic: the weights after some steps are the same bytes on any number of ranks, on either wire, with and without ZeRO.
// Without it the loss agrees, and the bits need not.
#include <gtest/gtest.h>
#include "tests/trainer/command.h"

namespace tutti::trainer::test {
namespace {

const std::string kRun = kSmall + "--steps 6 --seed 3 --dropout 0.1 --rate 0.01 ";

std::string hash_of_one() {
  static const std::string hash = train(kRun + "--deterministic --hash").last_after("weights sha256 ");
  return hash;
}

struct Ranks {
  int count;
  std::string transport;
  int zero;
};

class SameBits : public testing::TestWithParam<Ranks> {};

TEST_P(SameBits, AsOneRank) {
  ASSERT_EQ(hash_of_one().size(), 64u);
  const Ranks& ranks = GetParam();
  const Outcome outcome = train_on(ranks.count, ranks.transport, kRun + fmt::format("--deterministic --hash --check-every 2 --zero {}", ranks.zero));
  EXPECT_EQ(outcome.last_after("weights sha256 "), hash_of_one()) << outcome.text;
}

std::vector<Ranks> all() {
  std::vector<Ranks> list = {{1, "shm", 0}, {4, "tcp", 0}, {3, "tcp", 2}, {2, "tcp", 3}};
  for (int count = 2; count <= 4; ++count) {
    for (int zero = 0; zero <= 3; ++zero) list.push_back({count, "shm", zero});
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(All, SameBits, testing::ValuesIn(all()), [](const auto& test) {
  return fmt::format("{}_{}_zero{}", test.param.count, test.param.transport, test.param.zero);
});

// Twelve micro-batches: three ranks hold the leaves of the canonical tree, two and four do not.
TEST(SameBitsTest, AsOneRankWithMicroBatchesThatAreNoPowerOfTwo) {
  const std::string flags = kRun + "--micro-batches 12 --deterministic --hash ";
  const std::string wanted = train(flags).last_after("weights sha256 ");
  ASSERT_EQ(wanted.size(), 64u);
  EXPECT_NE(wanted, hash_of_one());
  for (const Ranks& ranks : {Ranks{2, "shm", 0}, {3, "shm", 0}, {3, "tcp", 1}, {4, "shm", 2}}) {
    const Outcome outcome = train_on(ranks.count, ranks.transport, flags + fmt::format("--zero {}", ranks.zero));
    EXPECT_EQ(outcome.last_after("weights sha256 "), wanted) << outcome.text;
  }
}

TEST(SameBitsTest, OtherSeedsGiveOtherBits) {
  const Outcome outcome = train(kRun + "--deterministic --hash --seed 4");
  EXPECT_EQ(outcome.last_after("weights sha256 ").size(), 64u);
  EXPECT_NE(outcome.last_after("weights sha256 "), hash_of_one());
}

TEST(SameBitsTest, ThreadsChangeNoBit) {
  EXPECT_EQ(shell(train_program() + " --threads 3 " + kRun + "--deterministic --hash").last_after("weights sha256 "), hash_of_one());
}

// Ranks whose weight decay differs go apart in what decays: the matrices, of which the embedding's is the first.
TEST(SameBitsTest, ADivergenceNamesStepTensorAndRank) {
  const Outcome outcome = shell(fmt::format("TUTTI_PROBE=0 {}/bin/tutti run -n 3 sh -c '{} --threads 1 {} --check-every 3 --decay 0.$((RANK / 2 + 1))'",
                                            TUTTI_BINARY_DIR, train_program(), kRun));
  EXPECT_NE(outcome.status, 0);
  EXPECT_TRUE(outcome.says("after step 3 the weights wte.weight of rank 2 differ from those of rank 0")) << outcome.text;
}

double last_loss(const Outcome& outcome) { return std::stod("0" + outcome.last_after("step 6/6  loss ")); }

// Sums in other orders: equal to rounding, whatever is sharded; and the order of samples is the same.
TEST(SameBitsTest, AnyOrderGivesTheSameLoss) {
  const double wanted = last_loss(train(kRun));
  ASSERT_GT(wanted, 1);
  for (const Ranks& ranks : {Ranks{2, "shm", 0}, {3, "shm", 0}, {3, "shm", 1}, {3, "shm", 2}, {3, "shm", 3}, {2, "tcp", 3}, {4, "shm", 2}}) {
    const Outcome outcome = train_on(ranks.count, ranks.transport, kRun + fmt::format("--zero {} --check-every 1 --bucket-mb 0.01", ranks.zero));
    EXPECT_NEAR(last_loss(outcome), wanted, 2e-3) << ranks.count << " " << ranks.zero << outcome.text;
  }
}

}  // namespace
}  // namespace tutti::trainer::test
