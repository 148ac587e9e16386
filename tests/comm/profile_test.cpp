// Profiles: kept and read again, never believed blindly, merged alike in every order; and what ranks lack.
#include "comm/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "comm/placement.h"
#include "comm/probe.h"

namespace tutti::comm {
namespace {

using testing::HasSubstr;

MachineKey some_key() { return {"a processor \"quoted\"", "6.1", "0.1.0", "crc true", 8}; }

Figures some_figures() {
  Figures f;
  f.link(Medium::memory, false) = LinkFigures{3e-7, 1e-7, 1e-10, 32768};
  f.link(Medium::sockets, true) = LinkFigures{1.25e-5, 3.3e-6, 7e-10};
  f.reduction = ReductionFigures{5e-12, 4e-11};
  return f;
}

Profile some_profile() {
  Profile profile{some_figures(), {}};
  profile.keep(Medium::memory,
               {4, "", {{"direct", 128 << 10, 1.5e-4}, {"two_shot", 128 << 10, 1.25e-4}, {"direct", 512 << 10, 8e-4}, {"tree", 8, 2e-5, Collective::broadcast}}});
  profile.keep(Medium::sockets, {2, "1+1", {}});
  return profile;
}

class ProfileFile : public testing::Test {
 protected:
  ProfileFile() : folder_(testing::TempDir() + "/profile-" + std::to_string(::getpid())) {
    std::filesystem::remove_all(folder_);
  }
  ~ProfileFile() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(ProfileFile, IsReadAsItWasWrittenAndLeavesNothingElse) {
  ASSERT_TRUE(write_profile(folder_ + "/deep", some_key(), some_profile()).ok());
  EXPECT_EQ(read_profile(folder_ + "/deep", some_key()), some_profile());
  Profile other = some_profile();
  other.figures.link(Medium::network, false) = LinkFigures{1e-5, 1e-6, 1e-9};
  other.keep(Medium::memory, {4, "", {{"ring", 2048, 1e-5}}});
  EXPECT_EQ(other.trials.size(), 2u);
  ASSERT_TRUE(write_profile(folder_ + "/deep", some_key(), other).ok());
  EXPECT_EQ(read_profile(folder_ + "/deep", some_key()), other);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/deep"), {}), 1);
}

TEST_F(ProfileFile, OfAnotherMachineIsNotRead) {
  ASSERT_TRUE(write_profile(folder_, some_key(), some_profile()).ok());
  MachineKey others[] = {some_key(), some_key(), some_key(), some_key(), some_key()};
  others[0].processor += "2";
  others[1].kernel = "6.2";
  others[2].version = "0.2.0";
  others[3].settings = "crc false";
  others[4].cores = 4;
  for (const MachineKey& key : others) {
    EXPECT_EQ(read_profile(folder_, key), Profile{});
    // Nor when it lies where that machine's would.
    EXPECT_THAT(parse_profile(profile_text(some_key(), some_profile()), key).status().text(),
                HasSubstr("another machine"));
  }
}

TEST_F(ProfileFile, DamageIsToldAndIgnored) {
  const std::string whole = profile_text(some_key(), some_profile());
  for (std::size_t size = 0; size + 2 < whole.size(); ++size)
    EXPECT_FALSE(parse_profile(whole.substr(0, size), some_key()).ok()) << size;
  std::filesystem::create_directories(folder_);
  std::ofstream(profile_path(folder_, some_key())) << whole.substr(0, whole.size() / 2);
  testing::internal::CaptureStderr();
  EXPECT_EQ(read_profile(folder_, some_key()), Profile{});
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("is damaged"));
  EXPECT_THAT(told, HasSubstr("measured anew"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);
}

TEST_F(ProfileFile, BytesChangedAtRandomNeverGiveAbsurdFigures) {
  const std::string whole = profile_text(some_key(), some_profile());
  std::mt19937 random(7);
  int read = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = whole;
    for (int changes = 1 + int(random() % 3); changes > 0; --changes)
      text[random() % text.size()] = "0123456789eE.-+\"{}[],: \0x"[random() % 25];
    const auto profile = parse_profile(text, some_key());
    if (!profile) continue;
    ++read;
    for (const auto& medium : profile->figures.links)
      for (const auto& link : medium) EXPECT_TRUE(!link || plausible(*link));
    EXPECT_TRUE(!profile->figures.reduction || plausible(*profile->figures.reduction));
    for (const auto& [medium, trials] : profile->trials)
      for (const Trial& time : trials.times) EXPECT_TRUE(time.seconds > 0 && time.seconds <= 10 && time.bytes > 0);
  }
  EXPECT_GT(read, 0);
}

TEST_F(ProfileFile, AbsurdFiguresMakeTheFileUnusable) {
  const auto status_with = [](const char* from, const char* to) {
    std::string text = profile_text(some_key(), some_profile());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return parse_profile(text.replace(at, std::string(from).size(), to), some_key()).status();
  };
  for (const char* value : {"\"alpha_s\": 0", "\"alpha_s\": -3e-07", "\"alpha_s\": 5", "\"alpha_s\": 1e999",
                            "\"alpha_s\": null", "\"alpha_s\": \"fast\""})
    EXPECT_FALSE(status_with("\"alpha_s\": 3e-07", value).ok()) << value;
  EXPECT_THAT(status_with("\"alpha_s\": 3e-07", "\"alpha_s\": 5").text(), HasSubstr("memory are absurd"));
  EXPECT_THAT(status_with("\"cached_s_per_byte\": 5e-12", "\"cached_s_per_byte\": 1").text(),
              HasSubstr("reductions are absurd"));
  EXPECT_THAT(status_with("\"memory\": {", "\"pigeons\": {").text(), HasSubstr("pigeons"));
  EXPECT_THAT(status_with("\"format\": 5", "\"format\": 1").text(), HasSubstr("format"));
  EXPECT_THAT(status_with("\"seconds\": 0.00015", "\"seconds\": -1").text(), HasSubstr("trials are absurd"));
  EXPECT_THAT(status_with("\"over\": \"memory\"", "\"over\": \"pigeons\"").text(), HasSubstr("pigeons"));
}

TEST_F(ProfileFile, AFolderThatCannotBeIsAStatus) {
  std::ofstream(folder_) << "a file";
  EXPECT_FALSE(write_profile(folder_, some_key(), some_profile()).ok());
  EXPECT_FALSE(write_profile("", some_key(), some_profile()).ok());
  EXPECT_EQ(read_profile(folder_, some_key()), Profile{});
}

TEST(Figures, TravelAndAreCheckedOnArrival) {
  for (const Figures& figures : {Figures{}, some_figures()}) {
    ByteWriter out;
    encode(figures, out);
    EXPECT_LE(out.bytes().size(), kMaxFiguresBytes);
    ByteReader in(out.bytes());
    EXPECT_EQ(decode_figures(in), figures);
    EXPECT_TRUE(in.at_end());
  }
  Figures bad = some_figures();
  bad.link(Medium::memory, false)->beta = std::numeric_limits<double>::quiet_NaN();
  bad.reduction->memory = -1;
  ByteWriter out;
  encode(bad, out);
  ByteReader in(out.bytes());
  const Figures back = decode_figures(in);
  EXPECT_FALSE(back.link(Medium::memory, false));
  EXPECT_FALSE(back.reduction);
  EXPECT_EQ(back.link(Medium::sockets, true), bad.link(Medium::sockets, true));
}

TEST(Figures, BoundsTakeAnything) {
  const double odd[] = {0, -1, 1e300, std::numeric_limits<double>::infinity(),
                        std::numeric_limits<double>::quiet_NaN()};
  for (const double value : odd) {
    EXPECT_TRUE(plausible(bounded(LinkFigures{value, value, value}))) << value;
    EXPECT_TRUE(plausible(bounded(ReductionFigures{value, value}))) << value;
  }
  EXPECT_EQ(bounded(LinkFigures{3e-7, 1e-7, 1e-10}), (LinkFigures{3e-7, 1e-7, 1e-10}));
}

// --- ranks that know different things ---

Figures random_figures(std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(1e-7, 1e-4), per_byte(1e-11, 1e-9);
  Figures f;
  for (auto& medium : f.links)
    for (auto& link : medium)
      if (random() % 2) link = LinkFigures{seconds(random), seconds(random), per_byte(random), random() % 2 ? std::optional<std::uint64_t>(random()) : std::nullopt};
  if (random() % 2) f.reduction = ReductionFigures{per_byte(random), per_byte(random)};
  return f;
}

std::vector<RankInfo> random_ranks(std::mt19937& random) {
  std::vector<RankInfo> ranks(6);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].rank = int(r);
    ranks[r].host_identity = 100 + r / 3;
    ranks[r].cores = 4;
    ranks[r].figures = random_figures(random);
  }
  return ranks;
}

void expect_same(const Prices& a, const Prices& b) {
  ASSERT_EQ(a.borders.size(), b.borders.size());
  for (std::size_t i = 0; i < a.borders.size(); ++i) {
    EXPECT_EQ(a.borders[i].alpha, b.borders[i].alpha);
    EXPECT_EQ(a.borders[i].message, b.borders[i].message);
    EXPECT_EQ(a.borders[i].beta, b.borders[i].beta);
    EXPECT_EQ(a.borders[i].measured, b.borders[i].measured);
  }
  EXPECT_EQ(a.gamma, b.gamma);
  EXPECT_EQ(a.gamma_memory, b.gamma_memory);
}

TEST(MergedFigures, DoNotDependOnTheOrderOfRanks) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<RankInfo> ranks = random_ranks(random);
    const Placement before = place_ranks(ranks, {});
    const Wanted wanted = wanted_figures(ranks, {});
    std::shuffle(ranks.begin(), ranks.end(), random);
    expect_same(place_ranks(ranks, {}).prices, before.prices);
    EXPECT_EQ(wanted_figures(ranks, {}).within_hosts, wanted.within_hosts);
    EXPECT_EQ(wanted_figures(ranks, {}).between_hosts, wanted.between_hosts);
  }
}

TEST(MergedFigures, AreTheSlowestWherePresentAndSayThatTheyAreMeasured) {
  std::mt19937 random(1);
  std::vector<RankInfo> ranks = random_ranks(random);
  for (RankInfo& r : ranks) r.figures = {};
  const Prices assumed = place_ranks(ranks, {}).prices;
  EXPECT_FALSE(assumed.borders.back().measured);
  ranks[1].figures.link(Medium::memory, false) = LinkFigures{5e-6, 1e-7, 1e-10};
  ranks[4].figures.link(Medium::memory, false) = LinkFigures{3e-6, 2e-7, 4e-10, 8192};
  ranks[4].figures.link(Medium::sockets, false) = LinkFigures{1e-2, 1e-2, 1e-5};     // not what they use
  ranks[4].figures.link(Medium::memory, true) = LinkFigures{1e-2, 1e-2, 1e-5};       // nor are they crowded
  const Prices prices = place_ranks(ranks, {}).prices;
  EXPECT_TRUE(prices.borders.back().measured);
  EXPECT_EQ(prices.borders.back().alpha, 5e-6);
  EXPECT_EQ(prices.borders.back().message, 2e-7);
  EXPECT_EQ(prices.borders.back().beta, 4e-10);
  EXPECT_EQ(prices.lend_from, std::nullopt);        // where one of them had better not, none does
  ranks[1].figures.link(Medium::memory, false)->lend_from = 65536;
  EXPECT_EQ(place_ranks(ranks, {}).prices.lend_from, 65536u);
  EXPECT_FALSE(prices.borders.front().measured);
  EXPECT_EQ(prices.borders.front().alpha, kHostBorder.alpha);
}

TEST(Marks, AreEqualWhereAllTrialsOfSoManyRanksAre) {
  Profile profile = some_profile(), other = some_profile();
  EXPECT_EQ(profile.mark(3), 0u);
  EXPECT_NE(profile.mark(4), 0u);
  EXPECT_NE(profile.mark(2), profile.mark(4));
  other.keep(Medium::sockets, {2, "", {}});
  EXPECT_EQ(profile.mark(4), other.mark(4));
  EXPECT_NE(profile.mark(2), other.mark(2));
  profile.keep(Medium::memory, {4, "2+2", {}});
  other.keep(Medium::network, {4, "2+2", {}});
  EXPECT_NE(profile.mark(4), other.mark(4));
  std::vector<RankInfo> ranks(3);
  EXPECT_FALSE(have_trials(ranks));
  for (RankInfo& r : ranks) r.figures.trials_mark = profile.mark(4);
  EXPECT_TRUE(have_trials(ranks));
  ranks[2].figures.trials_mark = other.mark(4);
  EXPECT_FALSE(have_trials(ranks));
}

TEST(Wanted, IsWhatNoRankOfAHostKnows) {
  std::mt19937 random(1);
  std::vector<RankInfo> ranks = random_ranks(random);
  for (RankInfo& r : ranks) r.figures = {};
  EXPECT_TRUE(wanted_figures(ranks, {}).within_hosts);
  EXPECT_TRUE(wanted_figures(ranks, {}).between_hosts);
  Figures full;
  for (auto& medium : full.links) medium[0] = LinkFigures{1e-6, 1e-6, 1e-9};
  full.reduction = ReductionFigures{1e-11, 1e-11};
  ranks[2].figures = full;
  EXPECT_TRUE(wanted_figures(ranks, {}).within_hosts) << "the other host";
  EXPECT_FALSE(wanted_figures(ranks, {}).between_hosts);
  ranks[3].figures = full;
  EXPECT_FALSE(wanted_figures(ranks, {}).links());
  for (RankInfo& r : ranks) r.cores = 2;
  EXPECT_TRUE(wanted_figures(ranks, {}).within_hosts) << "crowded now";
  for (RankInfo& r : ranks) r.host_identity = std::uint64_t(r.rank), r.figures = {};
  EXPECT_FALSE(wanted_figures(ranks, {}).within_hosts) << "one rank a host";
  ranks.resize(1);
  EXPECT_FALSE(wanted_figures(ranks, {}).links());
}

TEST(Wanted, IsNothingOfAHostWithMoreRanksThanCanAllBeConnected) {
  std::vector<RankInfo> ranks(64);
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].rank = int(r), ranks[r].host_identity = 1;
  EXPECT_TRUE(wanted_figures(ranks, {}).within_hosts);
  ranks.push_back(ranks.back());
  ranks.back().rank = 64;
  EXPECT_FALSE(wanted_figures(ranks, {}).within_hosts);
}

}  // namespace
}  // namespace tutti::comm
