// Several recorders told as one story. The times are made by hand.
#include "record/story.h"

#include <cstring>
#include <gmock/gmock.h>

#include "tests/record/recordings.h"

namespace tutti::record {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using End = Chapter::End;

// A job of `count` ranks of this host whose recorders live as long as this.
struct Job {
  explicit Job(int count, std::vector<std::uint64_t> hosts = {}, std::vector<std::int64_t> clock_errors = {}) {
    for (int r = 0; r < count; ++r)
      tapes.push_back(std::make_unique<Taped>(folder.path,
                                              Identity{.job = 1,
                                                       .rank = r,
                                                       .rank_count = count,
                                                       .host_identity = hosts.empty() ? 5 : hosts[std::size_t(r)],
                                                       .host = "h"},
                                              clock_errors.empty() ? 0 : clock_errors[std::size_t(r)]));
  }
  // One operation of all: when each starts, and when all are done; -1: it does not call.
  void run(std::uint32_t sequence, const std::vector<std::int64_t>& starts, std::int64_t done, std::uint64_t call = 0) {
    for (std::size_t r = 0; r < tapes.size(); ++r) {
      if (starts[r] < 0) continue;
      const std::uint32_t number = tapes[r]->start(sequence, starts[r], call);
      if (done >= 0) tapes[r]->recorder->ended(number, 0, 10, tapes[r]->ticks(done));
    }
  }
  Story tell_it() {
    std::vector<Recording> recordings;
    for (auto& tape : tapes) {
      tape->beat(1'000'000'000);
      recordings.push_back(tape->read());
    }
    auto stories = tell(std::move(recordings));
    EXPECT_EQ(stories.size(), 1u);
    return stories.at(0);
  }
  Folder folder;
  std::vector<std::unique_ptr<Taped>> tapes;
};

TEST(Story, SaysWhoCameLast) {
  Job job(3);
  job.run(7, {1000, 5000, 2000}, 9000);
  const Story story = job.tell_it();
  ASSERT_EQ(story.chapters.size(), 1u);
  const Chapter& c = story.chapters[0];
  EXPECT_EQ(c.end, End::complete);
  EXPECT_EQ(c.sequence, 7u);
  EXPECT_EQ(c.last, 1);
  EXPECT_EQ(c.skew, 4000);
  EXPECT_EQ(c.lag, 3000) << "behind the median of the others";
  EXPECT_EQ(c.parts[2].started, kBegin + 2000);
}

TEST(Story, ALateRankIsNamedAndAnEvenOneIsNot) {
  Job job(4);
  for (std::uint32_t i = 0; i < 50; ++i) {
    const std::int64_t at = i * 10'000'000;
    job.run(i, {at, at + 1000, i % 10 == 0 ? at : at + 2'000'000, at + 500}, at + 2'500'000);
  }
  const Story story = job.tell_it();
  ASSERT_FALSE(story.late.empty());
  EXPECT_EQ(story.late[0].rank, 2);
  EXPECT_EQ(story.late[0].times, 45u);
  EXPECT_EQ(story.late[0].of, 50u);
  EXPECT_EQ(story.late[0].median, 2'000'000 - 500);
  EXPECT_TRUE(story.late[0].notable());
  EXPECT_EQ(story.late.size(), 1u) << "a microsecond is no lag";
  EXPECT_THAT(story.links, IsEmpty());
}

// It is done later with each operation, and calls the next one at once.
TEST(Story, ARankThatIsKeptLongerByTheOperationBeforeIsNotLate) {
  Job job(3);
  for (std::uint32_t i = 0; i < 20; ++i) {
    const std::int64_t at = i * 10'000'000;
    for (int r = 0; r < 3; ++r) {
      Taped& tape = *job.tapes[std::size_t(r)];
      const std::int64_t behind = r == 1 ? 2'000'000 : 0;
      tape.recorder->ended(tape.start(i, at + behind), 0, 0, tape.ticks(at + behind + 9'999'000));
    }
  }
  EXPECT_THAT(job.tell_it().late, IsEmpty());
}

// Rank 1's operations are over within their calls, since rank 0's data is there already: its recorder knows no times,
// but rank 0's does.
TEST(Story, ALateRankWhoseOperationsAreOverAtOnceIsNamedByThePeerThatWaited) {
  Job job(2);
  constexpr std::int64_t kStep = 10'000'000, kLate = 2'000'000;
  job.tapes[1]->recorder->begin_run(0, 0, 0, 100, 0, job.tapes[1]->ticks(kLate));
  for (std::uint32_t i = 0; i < 20; ++i) {
    const std::int64_t at = i * kStep;
    ASSERT_TRUE(i == 0 || job.tapes[1]->recorder->another(0, i, 0));
    job.tapes[1]->recorder->over();
    const std::uint32_t number = job.tapes[0]->start(i, at);
    job.tapes[0]->recorder->arrived(number, 1, job.tapes[0]->ticks(at + kLate));
    job.tapes[0]->recorder->ended(number, 0, 0, job.tapes[0]->ticks(at + kLate + 1000));
  }
  const Story story = job.tell_it();
  ASSERT_EQ(story.chapters.size(), 20u);
  for (const Chapter& c : story.chapters) {
    EXPECT_EQ(c.last, 1);
    EXPECT_NEAR(double(c.skew), double(kLate), 128);
  }
  ASSERT_EQ(story.late.size(), 1u);
  EXPECT_EQ(story.late[0].rank, 1);
  EXPECT_TRUE(story.late[0].notable());
}

// How often somebody is late is told of all operations, also of those in which nobody waited.
TEST(Story, ARankThatIsLateInAFewOfManySmallOperationsIsNotNotable) {
  Job job(2);
  std::uint32_t next = 0;
  for (const auto& tape : job.tapes) tape->recorder->begin_run(0, 0, 0, 100, 0, tape->ticks(0));
  for (next = 1; next <= 100; ++next)
    for (const auto& tape : job.tapes) {
      tape->recorder->over();
      ASSERT_TRUE(next == 100 || tape->recorder->another(0, next, 0));
    }
  for (next = 100; next < 104; ++next) {
    const std::int64_t at = next * 10'000'000;
    job.run(next, {at, at + 2'000'000}, at + 2'500'000);
  }
  const Story story = job.tell_it();
  ASSERT_EQ(story.chapters.size(), 104u);
  ASSERT_EQ(story.late.size(), 1u);
  EXPECT_EQ(story.late[0].times, 4u);
  EXPECT_EQ(story.late[0].of, 104u);
  EXPECT_FALSE(story.late[0].notable());
}

// It was stopped within its call: what a peer knows of its start does not end it.
TEST(Story, APendingOperationOfARunStaysPending) {
  Job job(2);
  job.tapes[1]->recorder->begin_run(0, 0, 0, 100, 0, job.tapes[1]->ticks(1000));
  const std::uint32_t number = job.tapes[0]->start(0, 0);
  job.tapes[0]->recorder->arrived(number, 1, job.tapes[0]->ticks(1000));
  job.tapes[0]->recorder->ended(number, 0, 0, job.tapes[0]->ticks(2000));
  const Story story = job.tell_it();
  ASSERT_EQ(story.chapters.size(), 1u);
  EXPECT_THAT(story.chapters[0].pending, ElementsAre(1));
  EXPECT_EQ(story.chapters[0].parts[1].ended, 0);
  EXPECT_TRUE(story.chapters[0].parts[1].timed);
}

// Then nobody waited long enough for it to matter, and guessed times are no reason to name anybody.
TEST(Story, WhereAllOperationsAreOverAtOnceNobodyIsLate) {
  Job job(2);
  for (int rank : {0, 1}) {
    job.tapes[std::size_t(rank)]->recorder->begin_run(0, 0, 0, 100, 0,
                                                      job.tapes[std::size_t(rank)]->ticks(rank * 5'000'000));
    for (std::uint32_t i = 0; i < 20; ++i) {
      ASSERT_TRUE(i == 0 || job.tapes[std::size_t(rank)]->recorder->another(0, i, 0));
      job.tapes[std::size_t(rank)]->recorder->over();
    }
  }
  const Story story = job.tell_it();
  ASSERT_EQ(story.chapters.size(), 20u);
  EXPECT_THAT(story.late, IsEmpty());
  for (const Chapter& c : story.chapters) {
    EXPECT_EQ(c.end, Chapter::End::complete);
    EXPECT_EQ(c.last, -1);
  }
}

TEST(Story, ASlowLinkIsNamedAndItsRankIsNotLate) {
  Job job(3);
  for (std::uint32_t i = 0; i < 10; ++i) job.run(i, {i * 1000, i * 1000, i * 1000}, i * 1000 + 900);
  const auto serve = [&](int from, int to, double rate) {
    PeerEntry* peer = job.tapes[std::size_t(to)]->recorder->peer(from);
    peer->state = 1;
    std::memcpy(peer->wire, "tcp", 4);
    peer->service_bytes = 64 << 20;
    peer->service_nanoseconds = std::uint64_t(double(peer->service_bytes) / rate * 1e9);
  };
  serve(0, 1, 1e8);
  serve(1, 2, 1.1e9);
  serve(2, 0, 1e9);
  const Story story = job.tell_it();
  EXPECT_THAT(story.late, IsEmpty());
  ASSERT_EQ(story.links.size(), 3u);
  EXPECT_EQ(story.links[0].from, 0);
  EXPECT_EQ(story.links[0].to, 1);
  EXPECT_TRUE(story.links[0].slow());
  EXPECT_NEAR(story.links[0].rate, 1e8, 1e5);
  EXPECT_FALSE(story.links[1].slow());
  EXPECT_FALSE(story.links[2].slow());
}

TEST(Story, ABrokenLinkIsToldWithWhenItWasMade) {
  Job job(3);
  job.run(0, {0, 0, 0}, 100);
  const auto event = [&](int rank, EventKind kind, int peer, std::int64_t at, std::uint64_t a, std::uint64_t b = 0,
                         std::uint64_t c = 0) {
    Taped& tape = *job.tapes[std::size_t(rank)];
    tape.recorder->event({0, std::uint16_t(kind), std::uint16_t(peer), tape.ticks(at), 0, 0, a, b, c, 0, 0});
  };
  event(1, EventKind::broken, 0, 1000, std::uint64_t(Code::peer_lost));
  event(1, EventKind::broken, 2, 2000, std::uint64_t(Code::network));
  event(1, EventKind::mended, 0, 5000, 4000, 7);
  event(2, EventKind::mended, 1, 9000, 6000, 3, 1);
  const Story story = job.tell_it();
  ASSERT_EQ(story.breaks.size(), 3u);
  const auto is = [&](std::size_t i, int rank, int peer, std::int64_t at, std::int64_t mended, std::uint64_t resent,
                      bool silent) {
    const Break& b = story.breaks[i];
    EXPECT_EQ(b.rank, rank) << i;
    EXPECT_EQ(b.peer, peer) << i;
    EXPECT_EQ(b.at, kBegin + at) << i;
    EXPECT_EQ(b.mended_at, mended ? kBegin + mended : 0) << i;
    EXPECT_EQ(b.resent, resent) << i;
    EXPECT_EQ(b.silent, silent) << i;
  };
  is(0, 1, 0, 1000, 5000, 7, false);
  is(1, 1, 2, 2000, 0, 0, false);
  is(2, 2, 1, 3000, 9000, 3, true);
  EXPECT_EQ(Code(story.breaks[0].code), Code::peer_lost);
}

TEST(Story, SaysWhoNeverCalled) {
  Job job(3);
  job.run(0, {0, 0, 0}, 100);
  job.run(1, {200, -1, 300}, -1);
  const Story story = job.tell_it();
  ASSERT_EQ(story.chapters.size(), 2u);
  const Chapter& c = story.chapters[1];
  EXPECT_EQ(c.end, End::waits_for_call);
  EXPECT_THAT(c.not_called, ElementsAre(1));
  EXPECT_THAT(c.pending, ElementsAre(0, 2));
}

TEST(Story, SaysWhoCalledSomethingElse) {
  Job job(3);
  job.run(0, {0, 0, -1}, -1, 0x77);
  job.tapes[2]->start(0, 50, 0x99);
  const Chapter c = job.tell_it().chapters.at(0);
  EXPECT_EQ(c.end, End::mismatch);
  EXPECT_EQ(c.call, 0x77u);
  EXPECT_THAT(c.culprits, ElementsAre(2));
}

// A rank whose ring has gone round has called what is not in it any more.
TEST(Story, WhatWasOverwrittenWasCalled) {
  Job job(2);
  for (std::uint32_t i = 0; i < kOperations + 100; ++i) job.tapes[0]->start(i, i * 10);
  for (std::uint32_t i = 0; i < 50; ++i)
    job.tapes[1]->recorder->ended(job.tapes[1]->start(i, i * 10), 0, 0, job.tapes[1]->ticks(i * 10 + 5));
  for (const Chapter& c : job.tell_it().chapters) {
    if (c.sequence < 50) EXPECT_THAT(c.not_called, IsEmpty()) << c.sequence;
    else EXPECT_THAT(c.not_called, ElementsAre(1)) << c.sequence;
  }
}

// Another host's clock is 3 s ahead: nobody may be done before all have begun.
TEST(Story, ClocksOfHostsAreBroughtTogether) {
  Job job(2, {5, 6}, {0, 3'000'000'000});
  for (std::uint32_t i = 0; i < 20; ++i) {
    const std::int64_t at = i * 1'000'000;
    job.run(i, {at, at + 10'000}, at + 50'000);
  }
  for (const Chapter& c : job.tell_it().chapters) EXPECT_LT(c.skew, 100'000) << c.sequence;
}

TEST(Story, ClocksThatAgreeAreLeftAlone) {
  Job job(2, {5, 6});
  for (std::uint32_t i = 0; i < 20; ++i) job.run(i, {i * 1'000'000, i * 1'000'000 + 400'000}, i * 1'000'000 + 450'000);
  for (const Chapter& c : job.tell_it().chapters) EXPECT_EQ(c.skew, 400'000);
}

TEST(Story, MissingRanksAreCounted) {
  Job job(3);
  job.run(0, {0, 0, 0}, 10);
  job.tapes[1]->beat(1000);
  const auto stories = tell({job.tapes[1]->read()});
  EXPECT_THAT(stories.at(0).missing, ElementsAre(0, 2));
}

}  // namespace
}  // namespace tutti::record
