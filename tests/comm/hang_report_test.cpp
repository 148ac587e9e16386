// Who is blamed for a hang, by what the ranks have said.
#include "comm/hang_report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "comm/call.h"

namespace tutti::comm {
namespace {

using State = HangReport::State;
using testing::HasSubstr;
using testing::Not;

const std::uint64_t kCall = pack({Collective::all_reduce, DataType::f32, ReduceOp::sum, 0, 1024});
const std::uint64_t kOther = pack({Collective::broadcast, DataType::i64, ReduceOp::sum, 2, 1});
constexpr std::uint32_t kSequence = 7;

Stand stand(int peer, bool sends, std::uint64_t call = kCall, std::uint32_t sequence = kSequence) {
  return {1, 6, peer, sends, 3, 64, 4096, sequence, true, call};
}
Report waiting(std::vector<Stand> stands) { return {kSequence + 1, true, {}, std::move(stands)}; }

HangReport explain(const std::vector<std::optional<Report>>& reports, std::vector<int> gone = {}) {
  HangReport about;
  about.sequence = kSequence;
  about.call = kCall;
  about.quiet = 10500;
  about.rank_count = int(reports.size());
  std::map<int, HangKnowledge> known;
  for (int r = 0; r < about.rank_count; ++r)
    known[r] = {reports[std::size_t(r)] ? &*reports[std::size_t(r)] : nullptr, 100 + r, false};
  for (const int r : gone) known[r].gone = true;
  return explain_hang(about, known);
}

std::string name(int world_rank) { return "rank " + std::to_string(world_rank) + " (h, pid 1)"; }

TEST(HangReport, TellsTheKindsApart) {
  const HangReport report =
      explain({waiting({stand(1, false)}), Report{kSequence, false, {}, {}}, std::nullopt,
               waiting({stand(0, false, kOther)}), Report{kSequence, true, {}, {stand(2, false, kCall, kSequence - 1)}},
               Report{kSequence + 3, false, {}, {}}, std::nullopt},
              {6});
  const std::vector<State> wanted{State::waits,  State::not_called, State::silent, State::other_call,
                                  State::behind, State::done,       State::gone};
  for (std::size_t r = 0; r < wanted.size(); ++r) EXPECT_EQ(report.rows[r].state, wanted[r]) << r;
  const std::string text = report.text(name);
  EXPECT_THAT(text, HasSubstr("operation 7 all_reduce f32[1024] sum"));
  EXPECT_THAT(text, HasSubstr("nothing moved for 10.5 s"));
  EXPECT_THAT(text, HasSubstr("rank 101 (h, pid 1) has not made the call"));
  EXPECT_THAT(text, HasSubstr("rank 102 (h, pid 1) does not answer"));
  EXPECT_THAT(text, HasSubstr("rank 103 (h, pid 1) called broadcast i64[1] root 2 instead"));
  EXPECT_THAT(text, HasSubstr("rank 104 (h, pid 1) is still in an earlier operation"));
  EXPECT_THAT(text, HasSubstr("rank 106 (h, pid 1) has left"));
  EXPECT_THAT(text, HasSubstr("waits at step 2 of 6: receives chunk 3 from rank 101 (h, pid 1), 64 of 4096 bytes"));
  EXPECT_LT(text.find("rank 106"), text.find("rank 100 (h, pid 1) waits")) << "causes come first";
}

TEST(HangReport, ALinkStallsWhereOneSendsAndTheOtherLacks) {
  HangReport report =
      explain({waiting({stand(1, false)}), waiting({stand(0, true), stand(2, false)}), waiting({stand(1, false)})});
  ASSERT_EQ(report.stalled.size(), 1u);
  EXPECT_EQ(report.stalled[0], (HangReport::Stalled{1, 0}));
  EXPECT_THAT(report.text(name), HasSubstr("the link rank 101 (h, pid 1) -> rank 100 (h, pid 1) stalls"));
  // The sender is through: all of its bytes were handed over.
  report = explain({waiting({stand(1, false)}), Report{kSequence + 1, false, {}, {}}});
  ASSERT_EQ(report.stalled.size(), 1u);
  // One that waits for somebody itself has nothing to send yet.
  report = explain({waiting({stand(1, false)}), waiting({stand(2, false)}), std::nullopt});
  EXPECT_TRUE(report.stalled.empty());
  EXPECT_THAT(report.text(name), Not(HasSubstr("stalls")));
}

TEST(HangReport, SurvivesTheWireAndRefusesNonsense) {
  const HangReport report =
      explain({waiting({stand(1, false), stand(2, true)}), std::nullopt, waiting({stand(0, true)})});
  const std::string bytes = report.encode();
  const auto back = HangReport::decode(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->text(name), report.text(name));
  EXPECT_EQ(back->json(name), report.json(name));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_FALSE(HangReport::decode(bytes.substr(0, cut))) << cut;
  EXPECT_FALSE(HangReport::decode(bytes + "x"));
}

TEST(HangReport, IsBoundedAndKeepsTheCauses) {
  std::vector<std::optional<Report>> reports(
      200, waiting({stand(150, false), stand(150, false), stand(150, false), stand(150, false)}));
  reports[150] = std::nullopt;
  reports[160] = Report{kSequence, false, {}, {}};
  const HangReport report = explain(reports);
  EXPECT_EQ(report.rows.size(), HangReport::kMostRows);
  EXPECT_THAT(report.text(name), HasSubstr("rank 250 (h, pid 1) does not answer"));
  EXPECT_THAT(report.text(name), HasSubstr("rank 260 (h, pid 1) has not made the call"));
  EXPECT_THAT(report.text(name), HasSubstr("and 168 ranks more"));
  EXPECT_LT(report.encode().size(), Word::kMaxHang);
}

TEST(HangReport, JsonSaysTheSame) {
  const auto json = nlohmann::json::parse(explain({waiting({stand(1, false)}), std::nullopt}).json(name));
  EXPECT_EQ(json["operation"], 7);
  EXPECT_EQ(json["ranks"][1]["state"], "silent");
  EXPECT_EQ(json["ranks"][0]["waits_at"][0]["step"], 2);
  EXPECT_EQ(json["ranks"][0]["waits_at"][0]["direction"], "receive");
}

}  // namespace
}  // namespace tutti::comm
