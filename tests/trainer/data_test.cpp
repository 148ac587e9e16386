// The order of samples, token files good and bad, and the generated text.
#include <gtest/gtest.h>
#include <cstring>
#include <set>
#include "tests/trainer/command.h"
#include "trainer/failure.h"
#include "trainer/sampler.h"
#include "trainer/text.h"
#include "trainer/tokens.h"

namespace tutti::trainer::test {
namespace {

TEST(SamplerTest, AnEpochVisitsEachSampleOnce) {
  for (const std::size_t tokens : {17u, 100u, 1000u, 65537u}) {
    const Sampler sampler(5, tokens, 16, 4, false);
    for (std::size_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::size_t> seen;
      for (std::size_t place = 0; place < sampler.samples(); ++place) seen.insert(sampler.sample_at(epoch, place));
      EXPECT_EQ(seen.size(), sampler.samples());
      EXPECT_EQ(*seen.rbegin(), sampler.samples() - 1);
    }
  }
}

TEST(SamplerTest, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  const Sampler a(5, 10000, 16, 4, false), b(6, 10000, 16, 4, false);
  EXPECT_NE(a.order_hash(0), a.order_hash(1));
  EXPECT_NE(a.order_hash(0), b.order_hash(0));
  EXPECT_EQ(a.order_hash(0), Sampler(5, 10000, 16, 8, true).order_hash(0));
}

TEST(SamplerTest, TailsRunOnOrAreDropped) {
  const Sampler on(1, 16 * 10 + 1, 16, 4, false), dropped(1, 16 * 10 + 1, 16, 4, true);      // 10 samples, 4 a step
  EXPECT_EQ(on.epoch_of(2), 0u);
  EXPECT_EQ(on.token_at(2, 1), 16 * on.sample_at(0, 9));
  EXPECT_EQ(on.token_at(2, 2), 16 * on.sample_at(1, 0));
  EXPECT_EQ(dropped.epoch_of(2), 1u);
  EXPECT_EQ(dropped.token_at(2, 0), 16 * dropped.sample_at(1, 0));
  EXPECT_NE(on.text().find("2 samples left over"), std::string::npos);
  EXPECT_NE(dropped.text().find("2 of an epoch's samples are dropped"), std::string::npos);
}

TEST(SamplerTest, TooLittleDataIsAnError) {
  EXPECT_THROW(Sampler(1, 16, 16, 4, false), Failure);
  EXPECT_THROW(Sampler(1, 0, 16, 4, false), Failure);
  EXPECT_NO_THROW(Sampler(1, 17, 16, 4, false));
  EXPECT_THROW(Sampler(1, 17, 16, 4, true), Failure);
}

std::string token_file(std::int32_t magic, std::int32_t version, std::int32_t count, const std::string& body) {
  std::string text(1024, '\0');
  const std::int32_t header[3] = {magic, version, count};
  std::memcpy(text.data(), header, sizeof(header));
  return text + body;
}

TEST(TokensTest, ReadsTextAndTokenFiles) {
  const Folder folder;
  write_file(folder / "text", "ab\xff");
  const Tokens text = *Tokens::open(folder / "text");
  EXPECT_EQ(text.count(), 3u);
  EXPECT_EQ(text.at(2), 255);
  EXPECT_EQ(text.largest(), 255);
  write_file(folder / "narrow", token_file(20240520, 1, 2, std::string("\x01\x02\x50\xc4", 4)));
  const Tokens narrow = *Tokens::open(folder / "narrow");
  EXPECT_EQ(narrow.count(), 2u);
  EXPECT_EQ(narrow.at(0), 0x201);
  EXPECT_EQ(narrow.at(1), 0xc450);
  write_file(folder / "wide", token_file(20240801, 7, 1, std::string("\x01\x02\x01\x00", 4)));
  EXPECT_EQ((*Tokens::open(folder / "wide")).at(0), 0x10201);
}

TEST(TokensTest, BadFilesAreNamed) {
  const Folder folder;
  write_file(folder / "empty", "");
  write_file(folder / "torn", token_file(20240520, 1, 3, "1234"));
  write_file(folder / "old", token_file(20240520, 9, 1, "12"));
  write_file(folder / "none", token_file(20240520, 1, 0, ""));
  const auto text = [&](const std::string& name) { return Tokens::open(folder / name).status().text(); };
  EXPECT_NE(text("missing").find("No such file"), std::string::npos);
  EXPECT_NE(text("empty").find("is empty"), std::string::npos);
  EXPECT_NE(text("torn").find("says 3 tokens but holds 2"), std::string::npos);
  EXPECT_NE(text("old").find("version 9"), std::string::npos);
  EXPECT_NE(text("none").find("no tokens"), std::string::npos);
  EXPECT_NE(Tokens::open(folder / "").status().text().find("not a file"), std::string::npos);
}

TEST(TextTest, IsSentencesAndTheSameEachTime) {
  const std::string text = generated_text(20000);
  EXPECT_EQ(text.size(), 20000u);
  EXPECT_EQ(text, generated_text(20000));
  EXPECT_EQ(text.find('$'), std::string::npos);
  EXPECT_NE(text.find(" the conductor "), std::string::npos);
}

TEST(TextTest, BigramEntropyOfKnownTexts) {
  EXPECT_NEAR(bigram_entropy("abababababab"), 0, 1e-12);
  std::string random;
  for (std::size_t i = 0; i < 400000; ++i) random += char('a' + i * i / 7 % 2);       // a's and b's in no simple order
  EXPECT_LE(bigram_entropy(random), std::log(2.0) + 1e-9);
  EXPECT_GT(bigram_entropy(generated_text(100000)), 1.0);
}

TEST(BadInput, IsToldAndEndsTheRun) {
  const Folder folder;
  write_file(folder / "text", std::string(5000, 'z'));
  struct Line {
    const char *flags, *words;
  };
  for (const Line& line : {Line{"--data /nonexistent", "/nonexistent: cannot be opened"}, {"--vocabulary 100", "give --vocabulary"},
                           {"--width 33", "33 cannot be shared by 2 heads"}, {"--zero 4", "--zero"}, {"--batch 0", "--batch"},
                           {"--run /proc/nothing", "cannot be written"}, {"--trace /nonexistent/x", "--trace /nonexistent/x: cannot be written: No such file"},
                           {"--data /dev/null", "/dev/null: is not a file"}}) {
    const Outcome outcome = train(kSmall + "--steps 1 " + line.flags);
    EXPECT_NE(outcome.status, 0) << line.flags;
    EXPECT_TRUE(outcome.says(line.words)) << line.flags << ": " << outcome.text;
  }
  write_file(folder / "short", std::string(17 * 2, 'z'));
  const Outcome few = train_on(3, "shm", kSmall + "--steps 1 --data " + (folder / "short"));
  EXPECT_NE(few.status, 0);
  EXPECT_TRUE(few.says("has 2 samples of 16 tokens for 3 ranks")) << few.text;
  const Outcome again = train(kSmall + "--steps 1 --data " + (folder / "short"));
  EXPECT_TRUE(again.status == 0 && again.says("a step has samples more than once")) << again.text;
  EXPECT_TRUE(shell(train_program() + " sample /nonexistent").says("/nonexistent: there is no such folder"));
  EXPECT_TRUE(shell(train_program() + " sample " + (folder / "")).says("holds no valid checkpoint"));
  const Outcome many = train_on(3, "shm", kSmall + "--steps 1 --micro-batches 2");
  EXPECT_NE(many.status, 0);
  EXPECT_TRUE(many.says("3 ranks share 2 micro-batches")) << many.text;
}

TEST(Expectation, IsOfTheLastLoss) {
  const Outcome met = train(kSmall + "--steps 60 --rate 0.01 --expect-loss 4"), missed = train(kSmall + "--steps 2 --expect-loss 4");
  EXPECT_EQ(met.status, 0) << met.text;
  EXPECT_TRUE(met.says("loss of a table of character pairs: ")) << met.text;
  EXPECT_EQ(missed.status, 1);
  EXPECT_TRUE(missed.says("at most 4 was expected")) << missed.text;
}

TEST(BadInput, NotANumberNamesTheTensor) {
  const Outcome stop = train(kSmall + "--steps 9 --rate 1e30 --clip 0");
  EXPECT_NE(stop.status, 0);
  EXPECT_TRUE(stop.says("the first gradient that is not finite is that of wte.weight")) << stop.text;
  const Outcome skip = train(kSmall + "--steps 9 --rate 1e30 --clip 0 --on-nan skip");
  EXPECT_EQ(skip.status, 0);
  EXPECT_TRUE(skip.says("skipped: not a number")) << skip.text;
}

}  // namespace
}  // namespace tutti::trainer::test
