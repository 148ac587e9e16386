// A late rank and a slow link make the same operations slow; their recorders tell which it was.
#include <gmock/gmock.h>

#include <filesystem>

#include "record/folder.h"
#include "record/story.h"
#include "tests/sim/crew.h"
#include "tests/sim/seeds.h"

namespace tutti::sim {
namespace {

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-sim-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

constexpr double kRate = 1e9;

// Rings over four hosts with a rank each, half a megabyte at a time.
CrewOptions ring_crew(const Folder& folder) {
  CrewOptions options;
  options.ranks = options.hosts = 4;
  options.world.network.bytes_per_second = kRate;
  options.world.network.segment =
      4 << 10;  // as a network cuts it: what comes in the middle of the library's segments is timed
  options.settings.transport = "tcp";
  options.settings.algo = "all_reduce:ring";
  options.settings.recorder = folder.path;
  options.agenda = [](int, int index) {
    return Exchange{.count = 128 << 10, .salt = std::uint64_t(index), .ranks = 4};
  };
  options.exchanges = 12;
  return options;
}

record::Story story_of(const Folder& folder) {
  std::vector<record::Recording> recordings;
  for (const std::string& path : record::recorders_in(folder.path)) {
    auto recording = record::read_recording(path);
    EXPECT_TRUE(recording.ok()) << recording.status().to_string();
    if (recording) recordings.push_back(std::move(*recording));
  }
  auto stories = record::tell(std::move(recordings));
  EXPECT_EQ(stories.size(), 1U);
  return stories.at(0);
}

TEST(SimStraggler, ALateRankIsNamedAndNoLink) {
  for (const std::uint64_t seed : seeds(3)) {
    const Folder folder;
    CrewOptions options = ring_crew(folder);
    options.late_rank = 2;
    options.late_by = milliseconds{200};
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    ASSERT_TRUE(crew.run_until_over(seconds{60})) << crew.report();
    const record::Story story = story_of(folder);
    ASSERT_FALSE(story.late.empty()) << crew.world.replay_line();
    EXPECT_EQ(story.late[0].rank, 2);
    EXPECT_TRUE(story.late[0].notable()) << story.late[0].times << " of " << story.late[0].of;
    EXPECT_NEAR(double(story.late[0].median), 195e6, 10e6);
    EXPECT_EQ(story.links.size(), 4U) << "each rank of a ring sends to its neighbour";
    for (const record::Link& link : story.links)
      EXPECT_FALSE(link.slow()) << link.from << " -> " << link.to << ": " << link.rate << ", others " << link.others;
  }
}

TEST(SimStraggler, ASlowLinkIsNamedAndNoRank) {
  for (const std::uint64_t seed : seeds(3)) {
    const Folder folder;
    Crew crew(seed, ring_crew(folder));
    ASSERT_TRUE(crew.assemble()) << crew.report();
    const auto host_of = [&](int rank) { return rank; };         // a rank each, in order
    LinkOptions throttled = crew.options.world.network;
    throttled.bytes_per_second = kRate / 10;
    crew.world.set_link(host_of(0), host_of(1), throttled);
    ASSERT_TRUE(crew.run_until_over(seconds{60})) << crew.report();
    const record::Story story = story_of(folder);
    ASSERT_EQ(story.links.size(), 4U);
    EXPECT_EQ(story.links[0].from, 0) << crew.world.replay_line();
    EXPECT_EQ(story.links[0].to, 1);
    EXPECT_TRUE(story.links[0].slow()) << story.links[0].rate << " against " << story.links[0].others;
    EXPECT_NEAR(story.links[0].rate, kRate / 10, kRate / 30);
    for (std::size_t i = 1; i < story.links.size(); ++i)
      EXPECT_FALSE(story.links[i].slow())
          << story.links[i].from << " -> " << story.links[i].to << ": " << story.links[i].rate;
    for (const record::Late& late : story.late)
      EXPECT_FALSE(late.notable()) << "rank " << late.rank << ", " << late.times << " of " << late.of;
  }
}

}  // namespace
}  // namespace tutti::sim
