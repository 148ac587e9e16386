// What is made of a run afterwards: samples, the report, the trace; and the plan's arithmetic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include "tests/trainer/command.h"
#include "trainer/host_backend.h"
#include "trainer/gemm.h"
#include "trainer/generation.h"
#include "trainer/plan.h"
#include "trainer/report.h"

namespace tutti::trainer::test {
namespace {

TEST(GenerationTest, DrawsByTheTaste) {
  const std::vector<float> logits = {0, 3, 2, -5};
  EXPECT_EQ(draw(logits.data(), 4, {0, 0, 1}, 0), 1);
  std::vector<int> seen(4);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) ++seen[std::size_t(draw(logits.data(), 4, {1, 0, 1}, std::uint64_t(i)))];
  const double sum = std::exp(0) + std::exp(3) + std::exp(2) + std::exp(-5);
  for (std::size_t i = 0; i < 4; ++i) {
    const double p = std::exp(double(logits[i])) / sum;
    EXPECT_NEAR(seen[i] / double(kDraws), p, 5 * std::sqrt(p / kDraws) + 1e-4) << i;
  }
  for (int i = 0; i < 200; ++i) EXPECT_THAT(draw(logits.data(), 4, {1, 2, 7}, std::uint64_t(i)), testing::AnyOf(1, 2));
}

// With other tokens behind the window, or a longer prompt than the context, the same text follows.
TEST(GenerationTest, SeesItsWindowOnly) {
  ModelConfig c;
  c.layers = 2, c.heads = c.kv_heads = 2, c.width = 16, c.hidden = 32, c.vocabulary = 30, c.context = 8;
  const Layout layout(c);
  WholeWeights<float> weights(layout);
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) start_weights(layout, 3, unit, weights.at(unit));
  keep_blas_on_one_thread();
  Threads threads(1);
  const std::vector<Token> last = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<Token> longer = {20, 21};
  longer.insert(longer.end(), last.begin(), last.end());
  const auto a = continued(c, weights, threads, last, 5, {1, 0, 9}), b = continued(c, weights, threads, longer, 5, {1, 0, 9});
  EXPECT_TRUE(std::equal(a.begin() + 8, a.end(), b.begin() + 10));
}

struct Runs : testing::Test {
  static void SetUpTestSuite() {
    folder_ = new Folder;
    outcome_ = new Outcome(train_on(2, "shm", kSmall + fmt::format("--steps 4 --run {0} --trace {0}/trace.json --bucket-mb 0.01 --rate 0.01", run())));
  }
  static void TearDownTestSuite() {
    delete folder_;
    delete outcome_;
  }
  static std::string run() { return *folder_ / "run"; }
  static Folder* folder_;
  static Outcome* outcome_;
};
Folder* Runs::folder_ = nullptr;
Outcome* Runs::outcome_ = nullptr;

TEST_F(Runs, SampleIsText) {
  ASSERT_EQ(outcome_->status, 0) << outcome_->text;
  const Outcome a = shell(train_program() + " sample " + run() + " --prompt The --tokens 40 --temperature 0");
  EXPECT_TRUE(a.says("\nThe")) << a.text;
  EXPECT_EQ(a.text, shell(train_program() + " sample " + run() + "/checkpoint-00000004 --prompt The --tokens 40 --temperature 0").text);
  EXPECT_NE(shell(train_program() + " sample /nonexistent").status, 0);
}

TEST_F(Runs, ReportShowsAllRanks) {
  const auto logs = read_logs(run());
  ASSERT_TRUE(logs.ok());
  ASSERT_EQ(logs->size(), 2u);
  ASSERT_EQ((*logs)[1].size(), 4u);
  for (const LoggedStep& step : (*logs)[1]) {
    EXPECT_NEAR(step.compute_seconds + step.exposed_seconds + step.data_seconds, step.seconds, 1e-9);
    EXPECT_EQ(step.tokens, 2 * 8 * 16);
  }
  EXPECT_EQ((*logs)[0][3].loss, (*logs)[1][3].loss);
  ASSERT_EQ(shell(train_program() + " report " + run()).status, 0);
  const std::string page = read_text(run() + "/report.html");
  EXPECT_THAT(page, testing::AllOf(testing::HasSubstr("2 ranks, steps 1 to 4"), testing::HasSubstr("<polyline"), testing::HasSubstr("</html>")));
  EXPECT_FALSE(read_logs(run() + "/nothing").ok());
  write_file(*folder_ / "rank-0.jsonl", "nonsense\n{}\n");
  EXPECT_FALSE(read_logs(*folder_ / "").ok());
}

TEST_F(Runs, TraceHasComputeAndEachExchange) {
  const auto trace = nlohmann::json::parse(read_text(run() + "/trace.json"));
  std::map<std::string, int> names;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++names[event["name"]];
    EXPECT_GE(event["dur"].get<double>(), 0);
    EXPECT_EQ(event["cat"] == "compute", event["tid"] == 0) << event;
  }
  EXPECT_EQ(names["forward"], 4 * 4);                  // 4 of the 8 micro-batches, 4 steps
  EXPECT_EQ(names["backward"], 4 * 4);
  // Once a step and bucket, however many micro-batches: the embedding; down, up, and joint with qkv of the second block; all four of the
  // first, with which backward ends.
  EXPECT_EQ(names["sum of gradients"], 4 * (1 + 3 + 4));
  EXPECT_TRUE(std::filesystem::exists(run() + "/trace.json.1"));
}

TEST(PlanTest, TrafficIsThatOfTheFormulas) {
  PlanInput input;
  input.model = *preset("gpt2-124m");
  input.ranks = 4;
  input.micro_batches = 8;
  const double p = 4 * 124439808.0, share = 3.0 / 4 * p;
  const auto rows = plan(input);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_DOUBLE_EQ(rows[0].sent, 2 * share);
  EXPECT_DOUBLE_EQ(rows[1].sent, 2 * share);
  EXPECT_DOUBLE_EQ(rows[2].sent, 3 * share);           // 2 micro-batches a rank
  EXPECT_DOUBLE_EQ(rows[3].sent, 2 * 3 * share);
  EXPECT_DOUBLE_EQ(rows[0].optimizer, 2 * p);
  EXPECT_DOUBLE_EQ(rows[1].optimizer, 2 * p / 4);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_LT(rows[i].memory(), rows[i - 1].memory());
  input.narrow_wire = true;      // gradients are half as many bytes, weights not
  const auto narrow = plan(input);
  EXPECT_DOUBLE_EQ(narrow[0].sent, share);
  EXPECT_DOUBLE_EQ(narrow[1].sent, 1.5 * share);
  EXPECT_DOUBLE_EQ(narrow[2].sent, 2 * share);
  EXPECT_DOUBLE_EQ(narrow[3].sent, 2 * 2.5 * share);
}

TEST(PlanTest, ActivationsAreThoseOfTheModel) {
  keep_blas_on_one_thread();
  Threads threads(1);
  for (const auto& [recompute, precision] : {std::pair{false, Precision::f32}, {true, Precision::f32}, {false, Precision::bf16}, {true, Precision::bf16}}) {
    PlanInput input;
    input.model = *preset("tiny");
    input.recompute = recompute;
    input.precision = precision;
    HostBackend<float> backend(threads);
    const Model<float> model(input.model, {input.batch, input.model.context}, recompute, backend, precision);
    EXPECT_NEAR(activation_bytes(input), double(model.activation_bytes()), 0.01 * double(model.activation_bytes()));
  }
}

TEST(PlanTest, WhatDoesNotFitIsSaid) {
  PlanInput input;
  input.model = *preset("gpt2-124m");
  input.memory_bytes = 1e6;
  EXPECT_THAT(plan_text(input), testing::HasSubstr("none fits"));
  input.memory_bytes = 0;
  EXPECT_THAT(plan_text(input), testing::HasSubstr("fastest that fits: ddp"));
}

}  // namespace
}  // namespace tutti::trainer::test
