// Flight recorders of real ranks: what a killed one leaves, what a hang makes
// all ranks say, and that nothing stays behind.
#include <gmock/gmock.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "record/folder.h"
#include "record/story.h"
#include "tests/process/faulty_sockets.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-process-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

Status reduce(Communicator& comm, std::size_t count) {
  std::vector<float> x(count, 1), y(count);
  return comm.all_reduce({x.data(), y.data(), count}).wait();
}

record::Story story_of(const std::string& folder) {
  std::vector<record::Recording> recordings;
  for (const std::string& path : record::recorders_in(folder)) {
    auto recording = record::read_recording(path);
    EXPECT_TRUE(recording.ok()) << recording.status().to_string();
    if (recording) recordings.push_back(std::move(*recording));
  }
  auto stories = record::tell(std::move(recordings));
  EXPECT_EQ(stories.size(), 1u);
  return stories.at(0);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Polls for what another thread or process does; false after a minute.
bool comes_true(const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  while (!what())
    if (std::chrono::steady_clock::now() > end) return false;
    else std::this_thread::yield();
  return true;
}

TEST(Recorder, OfAKilledRankTellsWhatItDid) {
  const Folder folder;
  const Settings settings{{"TUTTI_RECORDER", folder.path}};
  const std::string address = fresh_address();
  Child victim([&] {
    const Environment environment(settings);
    Communicator comm = joined(0, 3, address);
    while (reduce(comm, 1000).ok()) continue;
    return 0;
  });
  World world(3, 1, address, settings);
  std::atomic<int> rounds{0};
  std::thread killer([&] {
    while (rounds < 50) std::this_thread::yield();
    victim.signal(SIGKILL);
  });
  world.run([&](Communicator& comm) {
    while (reduce(comm, 1000).ok()) ++rounds;
  });
  killer.join();
  EXPECT_EQ(victim.exit_code(), 128 + SIGKILL);
  const record::Story story = story_of(folder.path);
  const record::Recording* dead = story.recording(0);
  ASSERT_TRUE(dead);
  EXPECT_EQ(dead->life, record::Recording::Life::dead);
  EXPECT_EQ(dead->end, record::End::running);
  EXPECT_GE(dead->operations.size(), 20u);
  EXPECT_LE(dead->torn, 1u);
  for (int rank : {1, 2}) {
    const record::Recording* alive = story.recording(rank);
    ASSERT_TRUE(alive && alive->verdict.size() == 1) << rank;
    EXPECT_EQ(alive->verdict[0].status.code(), Code::peer_lost);
    EXPECT_EQ(alive->verdict[0].status.culprit(), 0);
  }
  bool told = false;
  for (const record::Chapter& c : story.chapters) {
    if (c.end == record::Chapter::End::complete) continue;
    EXPECT_EQ(c.end, record::Chapter::End::waits_for_dead) << c.sequence;
    EXPECT_THAT(c.culprits, ElementsAre(0));
    told = true;
  }
  EXPECT_TRUE(told);
}

TEST(Recorder, OfALinkThatWasResetTellsThatItWasMended) {
  const Folder folder;
  forget_traffic();
  World world(2, {{"TUTTI_RECORDER", folder.path}, {"TUTTI_TRANSPORT", "tcp"}});
  world.run([](Communicator& comm) {
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(reduce(comm, 100'000).ok());
    if (comm.rank() == 0) {
      ASSERT_TRUE(inject(Fault::reset, 100'000));
    }
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(reduce(comm, 100'000).ok());
  });
  ASSERT_EQ(strikes(), 1);
  forget_traffic();
  const record::Story story = story_of(folder.path);
  ASSERT_FALSE(story.breaks.empty());
  for (const record::Break& b : story.breaks) {
    EXPECT_EQ(b.peer, 1 - b.rank);
    EXPECT_FALSE(b.silent);
    EXPECT_GT(b.mended_at, b.at);
  }
}

// Small ones end within their call (comm/brief) and must be told of like others.
TEST(Recorder, KnowsWhatSmallOperationsCarried) {
  const Folder folder;
  World world(2, {{"TUTTI_RECORDER", folder.path}, {"TUTTI_TRANSPORT", "shm"}});
  world.run([](Communicator& comm) {
    std::vector<float> x(100, 1), y(200);
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(comm.all_gather({x.data(), y.data(), x.size()}).wait().ok());
  });
  const record::Story story = story_of(folder.path);
  for (int rank : {0, 1}) {
    const record::Recording* recording = story.recording(rank);
    ASSERT_TRUE(recording);
    std::uint32_t seen = 0;
    std::uint64_t before = 0, after = 0;
    for (const record::Operation& operation : recording->operations) {
      if (Collective(operation.call & 31) != Collective::all_gather) {
        if (seen == 0) before = operation.total;
        continue;
      }
      EXPECT_EQ(operation.sequence,
                recording->operations[0].sequence + std::uint32_t(&operation - recording->operations.data()))
          << "rank " << rank;
      ++seen;
      after = operation.total;
      EXPECT_GT(operation.ended, 0);
      EXPECT_GE(operation.moved, 400u);
      EXPECT_EQ(operation.last_peer, operation.in_run ? -1 : 1 - rank);
    }
    EXPECT_EQ(seen, 50u) << rank;
    EXPECT_EQ(after - before, 50 * 400u) << rank;
  }
}

// Without the prefix that names the rank: the reports of all, one each.
std::vector<std::string> hang_reports(const std::string& log) {
  std::vector<std::string> found;
  const std::string mark = "warning: hang report: ";
  for (auto at = log.find(mark); at != std::string::npos; at = log.find(mark, at + 1))
    found.push_back(log.substr(at, log.find("\ntutti ", at) - at));
  for (std::string& report : found)
    while (!report.empty() && report.back() == '\n') report.pop_back();
  return found;
}

TEST(HangReport, AllRanksNameTheStoppedOneInTheSameWordsAndGoOnAfterwards) {
  const Folder folder;
  const Settings settings{{"TUTTI_RECORDER", folder.path}, {"TUTTI_REPORT_AFTER", "1s"}, {"TUTTI_TIMEOUT", "60s"}};
  constexpr int kRanks = 4;
  const std::string address = fresh_address();
  Child victim([&] {
    const Environment environment(settings);
    Communicator comm = joined(1, kRanks, address);
    for (int i = 0; i < 100; ++i)
      if (!reduce(comm, 50000).ok()) return 1;
    return 0;
  });
  const auto report_files = [&] {
    std::vector<std::string> files;
    for (const std::string& path : record::recorders_in(folder.path))
      if (std::filesystem::exists(record::hang_report_path(path))) files.push_back(record::hang_report_path(path));
    return files;
  };
  testing::internal::CaptureStderr();
  std::atomic<int> rounds{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  std::thread stopper([&] {
    while (rounds < 60) std::this_thread::yield();
    victim.signal(SIGSTOP);
    EXPECT_TRUE(comes_true([&] { return report_files().size() == kRanks - 1; }));
    victim.signal(SIGCONT);
  });
  for (const int rank : {0, 2, 3})
    threads.emplace_back([&, rank] {
      Communicator comm = [&] {
        static std::mutex mutex;                     // the environment is the process's
        std::unique_lock lock(mutex);
        static const Environment environment(settings);
        lock.unlock();
        return joined(rank, kRanks, address);
      }();
      for (int i = 0; i < 100; ++i, ++rounds) failed = failed || !reduce(comm, 50000).ok();
    });
  for (auto& thread : threads) thread.join();
  stopper.join();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(failed) << log;
  EXPECT_EQ(victim.exit_code(), 0);
  std::vector<std::string> reports = hang_reports(log);
  ASSERT_GE(reports.size(), 3u) << log;
  EXPECT_EQ(std::set(reports.begin(), reports.begin() + 3).size(), 1u) << log;
  EXPECT_THAT(reports[0], HasSubstr("all_reduce f32[50000] sum"));
  EXPECT_THAT(reports[0], testing::ContainsRegex("rank 1 \\(.*\\) does not answer"));
  EXPECT_THAT(reports[0], testing::ContainsRegex("waits at step [0-9]+ of [0-9]+: receives chunk [0-9]+ from rank 1"));
  std::set<std::string> files;
  for (const std::string& path : report_files()) files.insert(text_of(path));
  ASSERT_EQ(files.size(), 1u) << "one report, the same beside every recorder";
  const auto json = nlohmann::json::parse(*files.begin());
  EXPECT_EQ(json["call"], "all_reduce f32[50000] sum");
  ASSERT_EQ(json["ranks"].size(), 4u);
  EXPECT_EQ(json["ranks"][1]["state"], "silent");
  for (const std::size_t rank : {0, 2, 3}) EXPECT_EQ(json["ranks"][rank]["state"], "waits");
}

TEST(HangReport, TheRankThatHasNotCalledPrintsItToo) {
  const Folder folder;
  World world(3, {{"TUTTI_RECORDER", folder.path}, {"TUTTI_REPORT_AFTER", "1s"}});
  testing::internal::CaptureStderr();
  std::atomic<bool> told{false};
  std::vector<std::string> files;
  world.run([&](Communicator& comm) {
    EXPECT_TRUE(comm.barrier().wait().ok());
    if (comm.rank() == 0) {
      EXPECT_TRUE(comes_true([&] {
        files.clear();
        for (const std::string& path : record::recorders_in(folder.path))
          if (const std::string text = text_of(record::hang_report_path(path)); text.ends_with("}\n"))
            files.push_back(text);
        return files.size() == 3;
      }));
      told = true;
    }
    EXPECT_EQ(reduce(comm, 10), Status());
  });
  const std::vector<std::string> reports = hang_reports(testing::internal::GetCapturedStderr());
  EXPECT_TRUE(told);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(std::set(reports.begin(), reports.end()).size(), 1u);
  EXPECT_THAT(reports[0],
              testing::ContainsRegex(
                  "rank 0 \\(.*\\) has not made the call: it is alive, outside the library, and has made 1 calls"));
  EXPECT_EQ(std::set(files.begin(), files.end()).size(), 1u);
}

TEST(Recorder, GoesWithACleanEndAndStaysWhereAFolderIsNamed) {
  const Folder runtime, named;
  const Environment environment({{"XDG_RUNTIME_DIR", runtime.path}});
  const auto run = [](const Settings& settings, const std::function<void()>& during) {
    World world(2, settings);
    world.run([](Communicator& comm) { EXPECT_TRUE(reduce(comm, 10).ok()); });
    during();
  };
  const std::string own = runtime.path + "/tutti";
  run({{"TUTTI_RECORDER", ""}}, [&] { EXPECT_EQ(record::recorders_in(own).size(), 2u); });
  EXPECT_EQ(record::recorders_in(own).size(), 0u);
  run({{"TUTTI_RECORDER", "0"}}, [&] { EXPECT_EQ(record::recorders_in(own).size(), 0u); });
  run({{"TUTTI_RECORDER", named.path}}, [&] { EXPECT_EQ(record::recorders_in(own).size(), 0u); });
  const record::Story story = story_of(named.path);
  ASSERT_EQ(story.ranks.size(), 2u);
  EXPECT_EQ(story.ranks[0].end, record::End::clean);
  ASSERT_EQ(story.chapters.size(), 1u);
  EXPECT_EQ(story.chapters[0].end, record::Chapter::End::complete);
}

}  // namespace
}  // namespace tutti::test
