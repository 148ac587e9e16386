// Checkpoints: files that go there and back bit by bit, torn ones that are passed over, and runs that stop and go on with another
// number of ranks to the same bytes.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include "tests/said.h"
#include "tests/trainer/command.h"
#include "trainer/checkpoint.h"
#include "trainer/random.h"

namespace tutti::trainer::test {
namespace {

namespace fs = std::filesystem;

TEST(SafetensorsTest, GoThereAndBack) {
  const Folder folder;
  fs::create_directories(folder / "f");
  const std::vector<float> a = {1, -0.0f, 3e-40f, 4, 5, 6}, b = {7};
  const auto written = write_safetensors(folder / "f", "x", {{"a", {2, 3}, a.data()}, {"b.c", {1}, b.data()}});
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(fs::file_size(folder / "f/x"), written->bytes);
  EXPECT_EQ(*digest_of_file(folder / "f/x"), written->digest);
  EXPECT_EQ(to_hex(written->digest), shell("sha256sum " + (folder / "f/x")).text.substr(0, 64));
  const Safetensors read = *Safetensors::open(folder / "f/x");
  ASSERT_EQ(read.tensors().size(), 2u);
  EXPECT_EQ(read.tensors().at("a").shape, (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(std::memcmp(read.tensors().at("a").data, a.data(), sizeof(float) * a.size()), 0);
  EXPECT_EQ(read.tensors().at("b.c").data[0], 7);
  EXPECT_FALSE(fs::exists(folder / "f/x.partial"));
}

TEST(SafetensorsTest, EveryTornLengthIsRefused) {
  const Folder folder;
  fs::create_directories(folder / "f");
  const std::vector<float> a(5, 1.5f);
  ASSERT_TRUE(write_safetensors(folder / "f", "x", {{"a", {5}, a.data()}}).ok());
  const std::string whole = read_text(folder / "f/x");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    write_file(folder / "torn", whole.substr(0, n));
    EXPECT_FALSE(Safetensors::open(folder / "torn").ok()) << n;
  }
  EXPECT_FALSE(write_safetensors(folder / "missing", "x", {}).ok());
}

TEST(SafetensorsTest, DamagedHeadersAreRefused) {
  const Folder folder;
  fs::create_directories(folder / "f");
  const std::vector<float> a(5, 1.5f);
  ASSERT_TRUE(write_safetensors(folder / "f", "x", {{"a", {5}, a.data()}}).ok());
  const std::string whole = read_text(folder / "f/x");
  for (std::size_t i = 0; i < 400; ++i) {      // nothing is read out of bounds, whatever it says
    std::string text = whole;
    text[mix(1, i) % text.size()] = char(mix(2, i));
    write_file(folder / "strange", text);
    const auto opened = Safetensors::open(folder / "strange");
    if (!opened) continue;
    for (const auto& [name, entry] : opened->tensors()) EXPECT_LE(entry.count, 5u);
  }
}

const std::string kRun = kSmall + "--seed 3 --dropout 0.1 --rate 0.01 --deterministic --hash --steps 6 --checkpoint-every 2 ";

std::string wanted() {
  static const std::string hash = train(kSmall + "--seed 3 --dropout 0.1 --rate 0.01 --deterministic --hash --steps 6").last_after("sha256 ");
  return hash;
}

// Runs to step 6 and forgets what came after step 4: as if it had been stopped there.
Outcome stopped(int ranks, int zero, const std::string& run) {
  const Outcome outcome = train_on(ranks, "shm", kRun + fmt::format("--zero {} --run {}", zero, run));
  fs::remove_all(run + "/checkpoint-00000006");
  return outcome;
}

struct Change {
  int before, zero_before, after, zero_after;
};
class Resume : public testing::TestWithParam<Change> {};

TEST_P(Resume, WithOtherRanksGivesTheSameBytes) {
  const Folder folder;
  const Change& change = GetParam();
  const Outcome first = stopped(change.before, change.zero_before, folder / "run");
  ASSERT_EQ(first.last_after("sha256 "), wanted()) << first.text;
  const Outcome second = train_on(change.after, "shm", kRun + fmt::format("--zero {} --run {} --resume auto", change.zero_after, folder / "run"));
  EXPECT_TRUE(second.says("after step 4")) << second.text;
  EXPECT_TRUE(second.says("step 5/6")) << second.text;
  EXPECT_FALSE(second.says("step 4/6")) << second.text;
  EXPECT_EQ(second.last_after("sha256 "), wanted()) << second.text;
}
INSTANTIATE_TEST_SUITE_P(All, Resume, testing::Values(Change{1, 0, 2, 0}, Change{2, 0, 3, 1}, Change{3, 3, 1, 0}, Change{2, 2, 4, 3}),
                         [](const auto& test) {
                           return fmt::format("{}_zero{}_to_{}_zero{}", test.param.before, test.param.zero_before, test.param.after,
                                              test.param.zero_after);
                         });

TEST(ResumeTest, TornCheckpointsArePassedOverAndNamed) {
  const Folder folder;
  const std::string run = folder / "run";
  ASSERT_EQ(train(kRun + "--run " + run).status, 0);
  ASSERT_TRUE(fs::exists(run + "/checkpoint-00000006/manifest.json"));
  fs::remove(run + "/checkpoint-00000006/manifest.json");                                  // killed before the end
  std::string model = read_text(run + "/checkpoint-00000004/model.safetensors");
  model[model.size() / 2] ^= 1;                                                            // a bit of the disk
  write_file(run + "/checkpoint-00000004/model.safetensors", model);
  const Outcome outcome = train(kRun + "--resume auto --run " + run);
  EXPECT_TRUE(outcome.says("checkpoint-00000006/manifest.json: is missing")) << outcome.text;
  EXPECT_TRUE(outcome.says("checkpoint-00000004/model.safetensors: has another SHA-256")) << outcome.text;
  EXPECT_TRUE(outcome.says("after step 2")) << outcome.text;
  EXPECT_EQ(outcome.last_after("sha256 "), wanted());
}

TEST(ResumeTest, OtherModelsAndSettingsAreRefusedAndNothingIsOverwritten) {
  const Folder folder;
  const std::string run = folder / "run", file = run + "/checkpoint-00000006/model.safetensors";
  ASSERT_EQ(train(kRun + "--run " + run).status, 0);
  const std::string before = read_text(file);
  struct Line {
    const char *flags, *words;
  };
  for (const Line& line : {Line{"--resume auto --width 64", "of another model: hidden 128 instead of 256"}, {"--resume auto --seed 5", "was made with --seed 3"},
                           {"", "holds checkpoints"}, {"--resume /nonexistent", "is missing"}}) {
    const Outcome outcome = train(kRun + "--run " + run + " " + line.flags);
    EXPECT_EQ(outcome.status, 1) << line.flags;
    EXPECT_TRUE(outcome.says(line.words)) << line.flags << ": " << outcome.text;
  }
  EXPECT_EQ(read_text(file), before);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ResumeTest, OnlyTheNewestAreKept) {
  const Folder folder;
  ASSERT_EQ(train(kRun + "--keep 2 --checkpoint-every 1 --run " + (folder / "run")).status, 0);
  EXPECT_EQ(names_in(folder / "run"), (std::vector<std::string>{"checkpoint-00000005", "checkpoint-00000006", "rank-0.jsonl"}));
}

TEST(ResumeTest, LightOnesHoldTheWeightsAndAreNotGoneOnFrom) {
  const Folder folder;
  const std::string run = folder / "run", light = run + "/weights-00000005";
  const std::string flags = kSmall + "--seed 3 --dropout 0.1 --rate 0.01 --deterministic --steps 6 --checkpoint-every 3 --light-every 1 --keep 2 ";
  ASSERT_EQ(train_on(2, "shm", flags + "--run " + run).status, 0);
  EXPECT_EQ(names_in(run), (std::vector<std::string>{"checkpoint-00000003", "checkpoint-00000006", "rank-0.jsonl", "rank-1.jsonl", "weights-00000004",
                                                     "weights-00000005"}));
  EXPECT_EQ(names_in(light), (std::vector<std::string>{"config.json", "manifest.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                                       "model.safetensors.index.json"}));
  const auto says = [&](const std::string& line, const std::string& words) {
    const Outcome outcome = shell(line);
    EXPECT_TRUE(outcome.says(words)) << line << ": " << outcome.text;
  };
  const std::string sample = train_program() + " sample --tokens 1 ";
  says(train_program() + " " + flags + "--run " + (folder / "other") + " --resume " + light, "holds weights alone: training goes on from a folder checkpoint-");
  says(sample + run, "checkpoint-00000006, after step 6");
  fs::remove_all(run + "/checkpoint-00000006");
  says(sample + run, "weights-00000005, after step 5");
  says(sample + light, "after step 5");
  says(train_program() + " " + flags + "--run " + run, "holds checkpoints");
  // The weights are those of the step.
  ASSERT_EQ(train(flags + "--checkpoint-every 5 --run " + (folder / "whole")).status, 0);
  const auto wanted = Safetensors::open(folder / "whole/checkpoint-00000005/model.safetensors");
  ASSERT_TRUE(wanted.ok()) << wanted.status().to_string();
  std::size_t seen = 0;
  for (const std::string part : {"/model-00001-of-00002.safetensors", "/model-00002-of-00002.safetensors"}) {
    const auto got = Safetensors::open(light + part);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    for (const auto& [name, entry] : got->tensors()) {
      EXPECT_EQ(std::memcmp(entry.data, wanted->tensors().at(name).data, entry.count * sizeof(float)), 0) << name;
      ++seen;
    }
  }
  EXPECT_EQ(seen, wanted->tensors().size());
  says(train_program() + " " + flags + "--resume auto --run " + run, "checkpoint-00000003, after step 3");
  EXPECT_EQ(names_in(light), (std::vector<std::string>{"config.json", "manifest.json", "model.safetensors"}));      // made anew by one rank
}

// Light ones of a course that was left, of which --keep would keep the latest.
TEST(ResumeTest, WhatIsWrittenAfterAResumeIsKeptBesideLaterStepsOfACourseThatWasLeft) {
  const Folder folder;
  const std::string run = folder / "run";
  const std::string flags = kSmall + "--seed 3 --checkpoint-every 3 --light-every 1 --keep 1 --run " + run;
  ASSERT_EQ(train(flags + " --steps 3").status, 0);
  ASSERT_TRUE(fs::exists(run + "/weights-00000002"));
  fs::copy(run + "/weights-00000002", run + "/weights-00000009", fs::copy_options::recursive);
  const Outcome outcome = train(flags + " --steps 5 --resume auto");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("weights of step 4: ")) << outcome.text;
  EXPECT_TRUE(fs::exists(run + "/weights-00000004/manifest.json"));
  EXPECT_FALSE(fs::exists(run + "/weights-00000002")) << "but one is kept";
}

// A file may not grow beyond 8 blocks: to a program that is as a full disk.
TEST(ResumeTest, AFullDiskIsAWarning) {
  const Folder folder;
  const Outcome outcome = shell(fmt::format("trap '' XFSZ; ulimit -f 8; {} --threads 1 {} --run {}", train_program(), kRun, folder / "run"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.says("warning: no checkpoint of step 2: ")) << outcome.text;
  EXPECT_TRUE(outcome.says("File too large")) << outcome.text;
  const auto begin = outcome.text.find("warning: no checkpoint of step 2");
  tutti::test::expect_said("disk_full_at_a_checkpoint", "a checkpoint's file cannot grow; training goes on", outcome.text.substr(begin, outcome.text.find('\n', begin) - begin));
  EXPECT_EQ(outcome.last_after("sha256 "), wanted());
  EXPECT_FALSE(has_checkpoints(folder / "run"));
}

TEST(CheckpointTest, HasWhatHuggingFaceLooksFor) {
  const Folder folder;
  ASSERT_EQ(train_on(2, "shm", kRun + "--run " + (folder / "run")).status, 0);
  const std::string at = folder / "run/checkpoint-00000006/";
  const auto config = nlohmann::json::parse(read_text(at + "config.json"));
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["n_embd"], 32);
  const auto index = nlohmann::json::parse(read_text(at + "model.safetensors.index.json"));
  for (const auto& [name, file] : index["weight_map"].items()) {
    const Safetensors read = *Safetensors::open(at + file.get<std::string>());
    EXPECT_TRUE(read.tensors().count(name)) << name;
  }
  EXPECT_EQ(index["weight_map"].size(), 2u + 2 * 12 + 2);
}

}  // namespace
}  // namespace tutti::trainer::test
