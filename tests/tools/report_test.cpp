// `tutti report` and `tutti top`: what they print of a job whose recorders are made by hand.
#include "tests/tools/ran.h"
#include "tools/report.h"

#include <gmock/gmock.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/call.h"
#include "tests/record/recordings.h"
#include "tools/report_html.h"
#include "tools/report_text.h"
#include "tools/top.h"

namespace tutti::tools {
namespace {

using record::Folder;
using record::Taped;
using testing::HasSubstr;
using testing::Not;

Ran run(const std::string& arguments) { return run_tutti(arguments); }

// Rank 1 of three is 2 ms late each time, and does not make the last call.
struct Job {
  Job() {
    const std::uint64_t call = comm::pack({Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 1024});
    for (int r = 0; r < 3; ++r)
      tapes.push_back(std::make_unique<Taped>(folder.path, record::Identity{.job = 0x1234, .rank = r, .rank_count = 3, .host_identity = 5, .host = "h<1>"}));
    for (std::uint32_t i = 0; i <= 20; ++i) {
      for (int r = 0; r < 3; ++r) {
        Taped& tape = *tapes[std::size_t(r)];
        if (i == 20 && r == 1) continue;
        const std::int64_t at = i * 10'000'000 + (r == 1 ? 2'000'000 : 0);
        const std::uint32_t number = tape.recorder->started(0, i, call, 4096, record::kNobody, tape.ticks(at));
        if (i < 20) tape.recorder->ended(number, 0, 8192, tape.ticks(i * 10'000'000 + 3'000'000));
      }
    }
    for (auto& tape : tapes) tape->beat(260'000'000);
  }
  record::Story story() const {
    std::vector<std::string> complaints;
    auto stories = read_stories({folder.path}, complaints);
    EXPECT_THAT(complaints, testing::IsEmpty());
    return stories.at(0);
  }
  Folder folder;
  std::vector<std::unique_ptr<Taped>> tapes;
};

TEST(Report, SaysWhoNeverCalledAndWhoIsLate) {
  const Job job;
  const Ran ran = run("report " + job.folder.path);
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("job 0000000000001234, 3 ranks, 3 recorders"));
  EXPECT_THAT(ran.out, HasSubstr("operation 20 all_reduce f32[1024] sum: 2 of 2 ranks wait; rank 1 (h<1>, pid "));
  EXPECT_THAT(ran.out, HasSubstr("has not made the call"));
  EXPECT_THAT(ran.out, HasSubstr("arrives 2 ms late (median) in 95 % of 20 operations"));
  EXPECT_THAT(ran.out, HasSubstr("complete: 20 operations"));
}

TEST(Report, JsonHasEveryOperation) {
  const Job job;
  const Ran ran = run("report --json " + job.folder.path);
  ASSERT_EQ(ran.status, 0) << ran.out;
  const auto json = nlohmann::json::parse(ran.out);
  ASSERT_EQ(json["operations"].size(), 21u);
  EXPECT_EQ(json["operations"][3]["end"], "complete");
  EXPECT_EQ(json["operations"][3]["last"], 1);
  EXPECT_EQ(json["operations"][3]["skew_ns"], 2'000'000);
  EXPECT_EQ(json["operations"][20]["end"], "waits_for_call");
  EXPECT_EQ(json["operations"][20]["culprits"], nlohmann::json::array({1}));
  EXPECT_EQ(json["late"][0]["rank"], 1);
}

TEST(Report, ThePageNeedsNothingBesideItAndTrustsNoText) {
  const Job job;
  const std::string page = report_html(job.story());
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("</html>"));
  std::string fetched = page;                   // the namespace is a name: nobody fetches it
  const std::string name = "http://www.w3.org/2000/svg";
  for (std::size_t at; (at = fetched.find(name)) != std::string::npos;) fetched.erase(at, name.size());
  for (const char* outside : {"http:", "https:", "src=", "@import", "url("}) EXPECT_THAT(fetched, Not(HasSubstr(outside)));
  EXPECT_THAT(page, Not(HasSubstr("h<1>"))) << "a host's name is no markup";
  EXPECT_THAT(page, HasSubstr("h&lt;1&gt;"));
  EXPECT_THAT(page, HasSubstr("h\\u003c1"));
  const std::string file = job.folder.path + "/page.html";
  EXPECT_EQ(run("report --html " + file + " " + job.folder.path).status, 0);
  std::ifstream written(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(written), {}), page);
  EXPECT_EQ(run("report --html /no/such/folder/x.html " + job.folder.path).status, 1);
}

TEST(Report, WhatCannotBeReadIsToldAndTheRestIsReported) {
  const Job job;
  const std::string path = job.folder.path + "/" + record::file_name(0x1234, 2, 99999, 0);
  std::ofstream(path) << "tuttirec but nothing behind it";
  const Ran ran = run("report " + job.folder.path);
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.out, HasSubstr("no recorder's file: it has 30 bytes"));
  EXPECT_THAT(ran.out, HasSubstr("3 recorders"));
  EXPECT_EQ(run("report /no/such/place").status, 1);
  EXPECT_EQ(run("report 99999999").status, 1);
}

TEST(Report, TellsOfLinksThatBrokeAndOfWhatWasSentAgain) {
  Job job;
  Taped& tape = *job.tapes[2];
  tape.recorder->event({0, std::uint16_t(record::EventKind::broken), 1, tape.ticks(50'000'000), 0, 0, std::uint64_t(Code::peer_lost), 0, 0, 0, 0});
  tape.recorder->event({0, std::uint16_t(record::EventKind::mended), 1, tape.ticks(60'000'000), 0, 0, 10'000'000, 4, 0, 0, 0});
  record::PeerEntry& peer = *tape.recorder->peer(1);
  peer.state = 1, peer.resent = 4, peer.retransmitted = 17, peer.mended = 1;
  std::memcpy(peer.wire, "tcp", 4);
  const std::string text = report_text(job.story());
  EXPECT_THAT(text, HasSubstr("links that broke: 1 times\n  rank 2 (h<1>, pid "));
  EXPECT_THAT(text, HasSubstr(": its link with rank 1 (h<1>, pid "));
  EXPECT_THAT(text, HasSubstr(" broke (peer_lost), was made again after 10 ms, 4 frames sent again so far; 210 ms before"));
  EXPECT_THAT(text, HasSubstr("sent again:\n  rank 2 -> rank 1 (tcp): 4 frames by tutti, 17 segments by the kernel\n"));
  const auto json = nlohmann::json::parse(report_json(job.story()));
  EXPECT_EQ(json["breaks"][0]["peer"], 1);
  EXPECT_EQ(json["sent_again"][0]["segments"], 17);
}

TEST(Report, TellsWhatLinksGoBy) {
  Job job;
  const auto goes_by = [&](int from, int to, const char* wire, const char* way, unsigned mended) {
    record::PeerEntry& peer = *job.tapes[std::size_t(from)]->recorder->peer(to);
    peer.state = 1, peer.mended = mended;
    std::strcpy(peer.wire, wire);
    std::strcpy(peer.way, way);
  };
  goes_by(0, 1, "shm", "", 0);
  goes_by(0, 2, "rdma", "mlx5_0:1 10.0.0.1 -> 10.0.0.3 (1 queue pair)", 0);
  goes_by(2, 0, "rdma", "over a socket, 10.0.0.3:4000 -> 10.0.0.1:5000", 2);
  EXPECT_THAT(report_text(job.story()), HasSubstr("links over networks:\n  rank 2 -> rank 0: rdma over a socket, 10.0.0.3:4000 -> 10.0.0.1:5000; made again 2 times\n"
                                                  "  rank 0 -> rank 2: rdma mlx5_0:1 10.0.0.1 -> 10.0.0.3 (1 queue pair)\n"));
  const auto json = nlohmann::json::parse(report_json(job.story()));
  EXPECT_EQ(json["ways"].size(), 3u);
  EXPECT_EQ(json["ways"][0]["wire"], "shm");
  EXPECT_EQ(json["ways"][2]["made_again"], 2);
}

// RDMA has a column in `tutti top`, too, and a link that was made again says what it goes by now.
TEST(Top, TellsWhatALinkThatBrokeGoesByNow) {
  Job job;
  Taped& tape = *job.tapes[2];
  record::PeerEntry& peer = *tape.recorder->peer(1);
  peer.state = 1;
  std::strcpy(peer.wire, "rdma");
  const record::Story before = job.story();
  EXPECT_THAT(top_text(before, job.story(), 1), testing::ContainsRegex("\n +2 +[0-9]+ [^\n]* 0  "));
  std::strcpy(peer.way, "over a socket, 10.0.0.3:4000 -> 10.0.0.2:5000");
  tape.recorder->event({0, std::uint16_t(record::EventKind::broken), 1, tape.ticks(50'000'000), 0, 0, std::uint64_t(Code::peer_lost), 0, 0, 0, 0});
  tape.recorder->event({0, std::uint16_t(record::EventKind::mended), 1, tape.ticks(60'000'000), 0, 0, 10'000'000, 4, 0, 0, 0});
  EXPECT_THAT(top_text(before, job.story(), 1), HasSubstr("link rank 2 -> rank 1 broke, was made again after 10 ms, now rdma over a socket, 10.0.0.3:4000 -> 10.0.0.2:5000\n"));
}

TEST(Top, ShowsWhatWasSentAgainSinceTheLastLook) {
  Job job;
  record::PeerEntry& peer = *job.tapes[2]->recorder->peer(1);
  peer.state = 1, peer.resent = 4, peer.retransmitted = 17;
  std::memcpy(peer.wire, "tcp", 4);
  const record::Story before = job.story();
  EXPECT_THAT(top_text(before, job.story(), 1), Not(HasSubstr("sent again")));
  peer.resent = 5, peer.retransmitted = 27;
  const std::string text = top_text(before, job.story(), 1);
  EXPECT_THAT(text, HasSubstr("link rank 2 -> rank 1 (tcp): sent again 1 frames by tutti, 10 segments by the kernel\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n +2 +[0-9]+ [^\n]* 11  "));
}

TEST(Top, ShowsRatesBetweenTwoLooks) {
  Job job;
  const record::Story before = job.story();
  Taped& tape = *job.tapes[0];
  for (std::uint32_t i = 21; i < 31; ++i) tape.recorder->started(0, i, comm::pack({Collective::barrier}), 1'000'000, record::kNobody, tape.ticks(230'000'000));
  const std::string text = top_text(before, job.story(), 2.0);
  EXPECT_THAT(text, testing::ContainsRegex("0 +[0-9]+ [a-z ]+ +5 MB/s +5 "));
  EXPECT_THAT(text, HasSubstr("in 30 barrier for 30 ms"));
  EXPECT_THAT(text, HasSubstr("after 19 all_reduce f32[1024] sum"));
  const Ran once = run("top --once " + job.folder.path);
  EXPECT_EQ(once.status, 0);
  EXPECT_THAT(once.out, HasSubstr("3 of 3 ranks here"));
  EXPECT_EQ(run("top --once /no/such/place").status, 1);
}

}  // namespace
}  // namespace tutti::tools
