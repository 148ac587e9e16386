// The agreement among survivors: with messages in any order, losses at any moment, and a network cut in two.
#include "comm/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

namespace tutti::comm {
namespace {

using State = Agreement::State;

#if defined(__SANITIZE_ADDRESS__)      // what is wrong with memory shows early
constexpr unsigned kSeeds = 300;
#else
constexpr unsigned kSeeds = 3000;
#endif

// All ranks of one communicator; what they say is carried in order from each to each, at times of our choosing.
class Ranks {
 public:
  Ranks(int count, unsigned seed) : random(seed) {
    for (int r = 0; r < count; ++r) ranks.emplace_back(r, count);
    dead.resize(std::size_t(count));
    reach.assign(std::size_t(count), std::vector<bool>(std::size_t(count), true));
    mail.assign(std::size_t(count), std::vector<std::deque<Belief>>(std::size_t(count)));
  }
  int count() const { return int(ranks.size()); }
  Agreement& operator[](int r) { return ranks[std::size_t(r)]; }
  int below(int n) { return int(random() % unsigned(n)); }

  void say(int from) {
    for (int to = 0; to < count(); ++to)
      if (to != from && reach[std::size_t(from)][std::size_t(to)])
        mail[std::size_t(from)][std::size_t(to)].push_back((*this)[from].own());
  }
  void start(int r) {
    (*this)[r].start(std::uint32_t(1000 + r));
    say(r);
  }
  void lose(int at, int lost, bool ended) {
    if ((*this)[at].lose(lost, ended) && (*this)[at].started()) say(at);
  }
  // One message, or false.
  bool deliver() {
    std::vector<std::pair<int, int>> ways;
    for (int from = 0; from < count(); ++from)
      for (int to = 0; to < count(); ++to)
        if (!mail[std::size_t(from)][std::size_t(to)].empty() && !dead[std::size_t(to)]) ways.push_back({from, to});
    if (ways.empty()) return false;
    const auto [from, to] = ways[std::size_t(below(int(ways.size())))];
    const Belief belief = mail[std::size_t(from)][std::size_t(to)].front();
    mail[std::size_t(from)][std::size_t(to)].pop_front();
    const bool was_open = (*this)[to].state() == State::open;
    const bool changed = (*this)[to].hear(from, belief);
    if ((*this)[to].started() && (changed || (!was_open && !belief.agreed && (*this)[to].state() == State::agreed)))
      say(to);
    return true;
  }
  void settle() {
    while (deliver()) {}
  }
  // As the clock does.
  void repeat() {
    for (int r = 0; r < count(); ++r)
      if (!dead[std::size_t(r)] && (*this)[r].started()) say(r);
    settle();
  }
  void give_up() {
    for (int r = 0; r < count(); ++r)
      if (!dead[std::size_t(r)] && (*this)[r].started()) (*this)[r].exclude(silent_for(r));
    repeat();
  }

  std::vector<int> silent_for(int rank) {
    std::vector<int> out;
    for (const int r : (*this)[rank].missing())
      if (dead[std::size_t(r)] || !(*this)[r].started() || !reach[std::size_t(r)][std::size_t(rank)] ||
          (*this)[r].state() == State::minority)
        out.push_back(r);
    return out;
  }

  std::vector<Agreement> ranks;
  std::vector<bool> dead;
  std::vector<std::vector<bool>> reach;
  std::vector<std::vector<std::deque<Belief>>> mail;      // from, to
  std::mt19937 random;
};

// Those communicators that all their living members have agreed on: there is
// one at most, and with `all` there is no other.
void expect_one(Ranks& ranks, bool all = true) {
  std::set<std::vector<int>> whole;
  std::set<std::uint32_t> ids;
  for (int r = 0; r < ranks.count(); ++r) {
    if (ranks.dead[std::size_t(r)] || ranks[r].state() != State::agreed) continue;
    const auto members = ranks[r].members();
    EXPECT_TRUE(std::count(members.begin(), members.end(), r)) << "rank " << r;
    const bool agreed_by_all = std::all_of(members.begin(), members.end(), [&](int m) {
      return ranks.dead[std::size_t(m)] ||
             (ranks[m].state() == State::agreed && ranks[m].members() == members && ranks[m].id() == ranks[r].id());
    });
    EXPECT_TRUE(agreed_by_all || !all) << "rank " << r;
    if (!agreed_by_all) continue;
    whole.insert(members);
    ids.insert(ranks[r].id());
  }
  EXPECT_LE(whole.size(), 1u);
  EXPECT_LE(ids.size(), 1u);
}

TEST(Agreement, WithoutLossAllGoOn) {
  Ranks ranks(5, 1);
  for (int r = 0; r < 5; ++r) ranks.start(r);
  ranks.settle();
  for (int r = 0; r < 5; ++r) {
    EXPECT_EQ(ranks[r].state(), State::agreed);
    EXPECT_EQ(ranks[r].members(), (std::vector<int>{0, 1, 2, 3, 4}));
    EXPECT_EQ(ranks[r].id(), 1000u);
  }
}

TEST(Agreement, NobodyAgreesBeforeAllHaveBegun) {
  Ranks ranks(3, 2);
  ranks.start(0);
  ranks.start(2);
  ranks.settle();
  EXPECT_EQ(ranks[0].state(), State::open);
  EXPECT_EQ(ranks[0].missing(), (std::vector<int>{1}));
  ranks.start(1);
  ranks.settle();
  EXPECT_EQ(ranks[2].state(), State::agreed);
}

TEST(Agreement, WhatOneHasSeenAllTakeOver) {
  Ranks ranks(4, 3);
  ranks.dead[2] = true;
  ranks.lose(3, 2, true);
  for (int r : {0, 1, 3}) ranks.start(r);
  ranks.settle();
  for (int r : {0, 1, 3}) EXPECT_EQ(ranks[r].members(), (std::vector<int>{0, 1, 3}));
  expect_one(ranks);
}

TEST(Agreement, ProcessesThatEndedDoNotCountForTheMajority) {
  Ranks ranks(4, 4);
  for (int r : {0, 1, 2}) ranks.dead[std::size_t(r)] = true, ranks.lose(3, r, true);
  ranks.start(3);
  ranks.settle();
  EXPECT_EQ(ranks[3].state(), State::agreed);
  EXPECT_EQ(ranks[3].members(), (std::vector<int>{3}));
  EXPECT_EQ(ranks[3].id(), 1003u);
}

TEST(Agreement, OfTwoHalvesTheOneWithTheLowestRankGoesOn) {
  Ranks ranks(4, 5);
  for (int a : {0, 2})
    for (int b : {1, 3})
      ranks.reach[std::size_t(a)][std::size_t(b)] = ranks.reach[std::size_t(b)][std::size_t(a)] = false;
  for (int r = 0; r < 4; ++r) ranks.start(r);
  ranks.settle();
  for (int round = 0; round < 4; ++round) ranks.give_up();
  for (int r : {0, 2}) EXPECT_EQ(ranks[r].members(), (std::vector<int>{0, 2}));
  for (int r : {0, 2}) EXPECT_EQ(ranks[r].state(), State::agreed);
  for (int r : {1, 3}) EXPECT_EQ(ranks[r].state(), State::minority);
}

TEST(Agreement, WhoWasLeftOutHearsOfIt) {
  Ranks ranks(3, 6);
  for (int r : {0, 1}) ranks.lose(r, 2, false);
  for (int r = 0; r < 3; ++r) ranks.start(r);
  ranks.settle();
  ranks.repeat();
  EXPECT_EQ(ranks[0].members(), (std::vector<int>{0, 1}));
  EXPECT_EQ(ranks[2].state(), State::excluded);
}

TEST(Agreement, HostileBeliefsChangeNothing) {
  Agreement one(0, 3);
  one.start(7);
  Belief absurd;
  absurd.lost = {1, 4000};
  EXPECT_FALSE(one.hear(1, absurd));
  EXPECT_FALSE(one.hear(-1, {}));
  EXPECT_FALSE(one.hear(3, {}));
  EXPECT_EQ(one.members().size(), 3u);
}

// Ranks die at any moment, and others learn it at any later one.
TEST(Agreement, DeathsAtAnyMomentLeaveOneAgreement) {
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    Ranks ranks(2 + int(seed % 7), seed);
    std::vector<int> unstarted;
    for (int r = 0; r < ranks.count(); ++r) unstarted.push_back(r);
    int deaths = ranks.below(ranks.count());
    std::vector<std::pair<int, int>> news;      // at whom, of whom
    for (int step = 0; step < 400; ++step) {
      const int what = ranks.below(10);
      if (what == 0 && !unstarted.empty()) {
        const std::size_t i = std::size_t(ranks.below(int(unstarted.size())));
        if (!ranks.dead[std::size_t(unstarted[i])]) ranks.start(unstarted[i]);
        unstarted.erase(unstarted.begin() + std::ptrdiff_t(i));
      } else if (what == 1 && deaths > 0) {
        const int victim = ranks.below(ranks.count());
        if (ranks.dead[std::size_t(victim)]) continue;
        ranks.dead[std::size_t(victim)] = true;
        --deaths;
        for (int r = 0; r < ranks.count(); ++r)
          if (r != victim) news.push_back({r, victim});
      } else if (what == 2 && !news.empty()) {
        const std::size_t i = std::size_t(ranks.below(int(news.size())));
        ranks.lose(news[i].first, news[i].second, true);
        news.erase(news.begin() + std::ptrdiff_t(i));
      } else {
        ranks.deliver();
      }
    }
    for (int r : unstarted)
      if (!ranks.dead[std::size_t(r)]) ranks.start(r);
    for (const auto& [at, of] : news) ranks.lose(at, of, true);
    for (int round = 0; round < 3; ++round) ranks.repeat();
    expect_one(ranks);
    for (int r = 0; r < ranks.count(); ++r)
      EXPECT_TRUE(ranks.dead[std::size_t(r)] || ranks[r].state() == State::agreed) << "rank " << r;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

// The network is cut and perhaps mended while they agree: never two agreements.
TEST(Agreement, CutsNeverLeaveTwoAgreements) {
  int agreed = 0;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    Ranks ranks(2 + int(seed % 7), seed);
    const auto cut = [&](bool open) {
      std::vector<bool> side(std::size_t(ranks.count()));
      for (auto&& s : side) s = ranks.below(2);
      for (std::size_t a = 0; a < side.size(); ++a)
        for (std::size_t b = 0; b < side.size(); ++b) ranks.reach[a][b] = open || side[a] == side[b];
    };
    const int when = ranks.below(60);
    for (int step = 0; step < 120; ++step) {
      if (step == when) cut(false);
      if (step == when + 40 && seed % 3 == 0) cut(true);
      if (ranks.below(4) == 0) ranks.start(ranks.below(ranks.count()));
      else if (ranks.below(30) == 0) ranks.give_up();
      else ranks.deliver();
    }
    for (int r = 0; r < ranks.count(); ++r) ranks.start(r);
    for (int round = 0; round < 12; ++round) ranks.give_up();
    expect_one(ranks, false);
    for (int r = 0; r < ranks.count(); ++r) {
      EXPECT_NE(ranks[r].state(), State::open) << "rank " << r;
      agreed += ranks[r].state() == State::agreed;
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(agreed, int(kSeeds)) << "the test must reach what it is about";
}

}  // namespace
}  // namespace tutti::comm
