// The real bootstrap in the simulated world: ranks that come late, short reads, strangers at the doors, ranks that are
// missing or killed at any moment.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "comm/bootstrap.h"
#include "core/log.h"
#include "tests/sim/seeds.h"
#include "transport/sim/sim_world.h"

namespace tutti::sim {
namespace {

using comm::JoinRequest;
using std::chrono::minutes;

constexpr seconds kInitTimeout{30};
// What bootstrap.h calls a few seconds more: to hear the verdict, or to link up once all have met.
constexpr seconds kAtMostLater{15};
constexpr int kMeetingPort = 29500;

// One rank of the job, as a simulated process.
struct Rank {
  SimLoop* loop = nullptr;
  JoinRequest request;
  Task<Result<std::unique_ptr<comm::World>>> joining;
  TimePoint started{}, ended{};
  std::optional<Status> outcome;
  std::unique_ptr<comm::World> world;
  std::set<int> told_lost;

  void start() {
    started = loop->now();
    joining = comm::join(*loop, request);
    joining.start();
  }
  // From its tick, never from within the task.
  void look() {
    loop->run({});
    if (outcome || !joining || !joining.done()) return;
    Result<std::unique_ptr<comm::World>> result = joining.result();
    outcome = result.status();
    ended = loop->now();
    if (result.ok()) world = std::move(*result);
    joining = {};
  }
};

// So many ranks on hosts of one to four processes each; rank 0 hosts the meeting point on host0.
class Job {
 public:
  Job(std::uint64_t seed, int rank_count)
      : world(seed, rough_options(seed)), ranks(static_cast<std::size_t>(rank_count)) {
    const int per_host = 1 + static_cast<int>(world.dice().below(4));
    for (int r = 0; r < rank_count; ++r) {
      const int host = r / per_host < 1 + last_host() ? r / per_host : world.add_host();
      Rank& rank = ranks[static_cast<std::size_t>(r)];
      rank.loop = &world.add_process(host);
      rank.request.rank = r;
      rank.request.rank_count = rank_count;
      rank.request.addresses = {"host0:" + std::to_string(kMeetingPort)};
      rank.request.key = comm::make_job_key("the job");
      rank.request.settings.init_timeout = kInitTimeout;
      rank.request.host =
          HostFacts{.name = "host" + std::to_string(host), .identity = 100 + std::uint64_t(host), .pid = 1000 + r};
      rank.loop->on_tick([&rank] { rank.look(); });
    }
  }
  ~Job() {
    for (Rank& rank : ranks) {
      rank.world.reset();
      rank.joining = {};
    }
  }

  void start_all(Nanoseconds within, int except = -1) {
    for (Rank& rank : ranks) {
      if (rank.request.rank == except) continue;
      world.after(world.dice().up_to(within), [&rank] {
        if (rank.loop->alive()) rank.start();
      });
    }
  }
  bool all_ended(int except = -1) const {
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](const Rank& rank) { return rank.request.rank == except || rank.outcome; });
  }
  int count() const { return static_cast<int>(ranks.size()); }
  Rank& rank(int number) { return ranks[static_cast<std::size_t>(number)]; }

  SimWorld world;
  std::vector<Rank> ranks;

 private:
  int last_host() {
    int last = -1;
    for (int p = 0; p < world.process_count(); ++p) last = std::max(last, world.process(p).host());
    return last;
  }
};

// A process that keeps knocking at the meeting point: says nothing, or nonsense, or hangs up.
class Stranger {
 public:
  Stranger(SimWorld& world, int visits) : world_(world), loop_(world.add_process(world.add_host())) {
    for (int i = 0; i < visits; ++i) {
      world.after(world.dice().up_to(seconds{2}), [this] { visit(); });
    }
  }
  int visits() const { return visits_; }

 private:
  void visit() {
    const std::string address = "10.0.0.1:" + std::to_string(kMeetingPort);
    attempts_.push_back(loop_.network().connect(address, [this](Result<std::unique_ptr<Stream>> stream) {
      if (!stream.ok()) return;
      ++visits_;
      Dice& dice = world_.dice();
      std::vector<std::byte> nonsense(dice.below(3) == 0 ? 0 : 1 + dice.below(400));
      for (std::byte& byte : nonsense) byte = static_cast<std::byte>(dice.next());
      // Some begin as a rank would.
      const char magic[] = "TUTTI\xf6\r\n";
      if (dice.chance(0.5)) std::memcpy(nonsense.data(), magic, std::min(nonsense.size(), sizeof magic - 1));
      const iovec part{nonsense.data(), nonsense.size()};
      (void)(*stream)->write({&part, 1});
      if (dice.chance(0.5)) streams_.push_back(std::move(*stream));
    }));
  }

  SimWorld& world_;
  SimLoop& loop_;
  std::vector<std::shared_ptr<void>> attempts_;
  std::vector<std::unique_ptr<Stream>> streams_;
  int visits_ = 0;
};

void expect_complete(Job& job) {
  std::map<int, int> on_host;
  for (const Rank& rank : job.ranks) {
    ASSERT_TRUE(rank.outcome->ok()) << rank.outcome->to_string();
    ASSERT_TRUE(rank.world);
    ASSERT_EQ(rank.world->rank_count(), job.count());
    EXPECT_EQ(rank.world->local_rank(), on_host[rank.loop->host()]++);
    for (int r = 0; r < job.count(); ++r) {
      const comm::RankInfo& info = rank.world->info(r);
      EXPECT_EQ(info.rank, r);
      EXPECT_EQ(info.pid, 1000 + r);
      EXPECT_EQ(info.host_identity, 100 + std::uint64_t(job.rank(r).loop->host()));
    }
  }
}

TEST(SimBootstrap, RanksThatComeAtAnyTimeAllMeet) {
  for (const std::uint64_t seed : seeds(150)) {
    Job job(seed, 2 + static_cast<int>(seed % 15));
    job.start_all(job.world.dice().chance(0.5) ? Nanoseconds(milliseconds{2}) : seconds{10});
    ASSERT_TRUE(job.world.run_until([&] { return job.all_ended(); }, minutes{2})) << job.world.replay_line();
    expect_complete(job);
    ASSERT_FALSE(testing::Test::HasFailure()) << job.world.replay_line();
  }
}

TEST(SimBootstrap, StrangersDisturbNobody) {
  log::set_level(log::Level::error);      // each one that is turned away is worth a warning
  int visits = 0;
  for (const std::uint64_t seed : seeds(100)) {
    Job job(seed, 2 + static_cast<int>(seed % 7));
    Stranger stranger(job.world, 20);
    job.start_all(seconds{2});
    ASSERT_TRUE(job.world.run_until([&] { return job.all_ended(); }, minutes{2})) << job.world.replay_line();
    expect_complete(job);
    ASSERT_FALSE(testing::Test::HasFailure()) << job.world.replay_line();
    visits += stranger.visits();
  }
  if (!whole_range()) return;
  EXPECT_GT(visits, 100) << "the test must reach what it is about";
}

void expect_in_time(const Rank& rank) {
  EXPECT_LE(rank.ended - rank.started, kInitTimeout + kAtMostLater) << "rank " << rank.request.rank;
}

TEST(SimBootstrap, ARankThatNeverComesIsNamedToAllOthers) {
  for (const std::uint64_t seed : seeds(60)) {
    Job job(seed, 2 + static_cast<int>(seed % 15));
    const int missing = static_cast<int>(job.world.dice().below(static_cast<std::uint64_t>(job.count())));
    job.start_all(seconds{1}, missing);
    ASSERT_TRUE(job.world.run_until([&] { return job.all_ended(missing); }, minutes{2})) << job.world.replay_line();
    for (const Rank& rank : job.ranks) {
      if (rank.request.rank == missing) continue;
      expect_in_time(rank);
      EXPECT_EQ(rank.outcome->code(), Code::timeout) << rank.outcome->to_string();
      EXPECT_EQ(rank.outcome->culprit(), missing) << rank.outcome->to_string();
      EXPECT_NE(rank.outcome->text().find("rank " + std::to_string(missing)), std::string::npos)
          << rank.outcome->to_string();
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << job.world.replay_line();
  }
}

// Also by those who were not linked to it and see only that others end their own start-up.
void expect_true_culprits(Job& job, int victim) {
  for (const Rank& rank : job.ranks) {
    if (rank.request.rank == victim || rank.outcome->ok()) continue;
    EXPECT_EQ(rank.outcome->culprit(), victim) << "rank " << rank.request.rank << ": " << rank.outcome->to_string();
    EXPECT_NE(rank.outcome->text().find("rank " + std::to_string(victim)), std::string::npos)
        << rank.outcome->to_string();
  }
}

TEST(SimBootstrap, ARankKilledAtAnyMomentLeavesNobodyWaiting) {
  int failed = 0, joined = 0, first_hand = 0;
  for (const std::uint64_t seed : seeds(300)) {
    Job job(seed, 2 + static_cast<int>(seed % 15));
    Dice& dice = job.world.dice();
    const int victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(job.count())));
    job.start_all(milliseconds{5});
    job.world.after(dice.up_to(milliseconds{dice.chance(0.5) ? 10 : 100}), [&] { job.world.kill(victim); });
    ASSERT_TRUE(job.world.run_until([&] { return job.all_ended(victim); }, minutes{2})) << job.world.replay_line();
    expect_true_culprits(job, victim);
    for (Rank& rank : job.ranks) {
      if (rank.request.rank == victim) continue;
      expect_in_time(rank);
      failed += !rank.outcome->ok();
      first_hand += !rank.outcome->ok() && rank.outcome->culprit() == victim;
      if (!rank.outcome->ok()) continue;
      ++joined;
      rank.world->control().on_lost([&rank](int lost, const Status&) { rank.told_lost.insert(lost); });
    }
    job.world.run_for(minutes{5});
    for (const Rank& rank : job.ranks) {
      if (rank.request.rank == victim || !rank.outcome->ok()) continue;
      EXPECT_FALSE(rank.told_lost.empty()) << "rank " << rank.request.rank << " joined and believes that all live";
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << job.world.replay_line();
  }
  RecordProperty("failed", failed);
  RecordProperty("first_hand", first_hand);
  if (!whole_range()) return;
  EXPECT_GT(failed, 300) << "the test must reach what it is about";
  EXPECT_GT(joined, 100);
  EXPECT_GT(first_hand, failed * 3 / 4);
}

}  // namespace
}  // namespace tutti::sim
