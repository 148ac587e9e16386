// The table of error codes: whole, without ambiguity, and every golden failure text carries a code of it.
#include "core/error_table.h"
#include "core/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

namespace tutti {
namespace {

std::optional<Code> code_from(const std::string& name) {
  for (int i = 0; i <= int(kLastCode); ++i)
    if (name == code_name(Code(i))) return Code(i);
  return {};
}

TEST(ErrorTable, EveryRowIsWholeAndEveryCodeIsGivenOnce) {
  std::set<std::string_view> codes, names;
  const std::regex form("TUTTI-(E[0-9]|[NTGM])[0-9][0-9]");
  for (const ErrorRow& row : error_rows()) {
    EXPECT_TRUE(std::regex_match(std::string(row.code), form)) << row.code;
    EXPECT_TRUE(codes.insert(row.code).second) << row.code << " twice";
    for (const std::string_view text : {row.name, row.cause, row.check, row.cure})
      EXPECT_GT(text.size(), 3u) << row.code;
    EXPECT_EQ(row.cause.back(), '.') << row.code;
  }
}

TEST(ErrorTable, EveryKindOfStatusHasARowForAllElse) {
  for (int i = 1; i <= int(kLastCode); ++i) EXPECT_EQ(error_row(Code(i), "%").kind, Code(i)) << code_name(Code(i));
  EXPECT_EQ(launcher_row("%").code, "TUTTI-E909");
  EXPECT_EQ(warning_row("%").code, "TUTTI-E099");
}

// The first row whose phrase a text holds counts: each must be reachable.
TEST(ErrorTable, EveryPhraseFindsItsOwnRow) {
  for (const ErrorRow& row : error_rows()) {
    const std::string phrase(row.phrase.substr(0, row.phrase.find('|')));
    const ErrorRow* const found = row.speaker == Speaker::library    ? &error_row(row.kind, phrase)
                                  : row.speaker == Speaker::warning  ? &warning_row(phrase)
                                  : row.speaker == Speaker::launcher ? &launcher_row(phrase)
                                                                     : find_error("... " + phrase + " ...");
    ASSERT_NE(found, nullptr) << row.code;
    EXPECT_EQ(found->code, row.code);
  }
}

TEST(ErrorTable, AStatusCarriesItsCode) {
  EXPECT_EQ(Status(Code::peer_lost, "rank 3 is gone", 3).to_string(),
            "peer_lost (rank 3): rank 3 is gone [TUTTI-E401]");
  EXPECT_EQ(Status().to_string(), "ok");
  EXPECT_EQ(Status(Code::internal, "").to_string(), "internal [TUTTI-E821]");
}

TEST(ErrorTable, ACodeIsSaidOnceAndInTheFirstLine) {
  EXPECT_EQ(with_code("a report\n  rank 1 waits", warning_row("hang report")), "a report [TUTTI-E001]\n  rank 1 waits");
  EXPECT_EQ(with_code("of a cause [TUTTI-E401]", warning_row("")), "of a cause [TUTTI-E401]");
}

// The one place where warnings pass.
TEST(ErrorTable, EveryWarningOfTheLogCarriesACode) {
  testing::internal::CaptureStderr();
  log::warning("TUTTI_SEGMNT is not a setting of tutti and has no effect; the nearest one is TUTTI_SEGMENT");
  log::error("of no known kind");
  log::warning("slot 3: peer_lost: rank 1 is gone [TUTTI-E401]; waiting");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tutti warning: TUTTI_SEGMNT is not a setting of tutti and has no effect; the nearest one is TUTTI_SEGMENT "
            "[TUTTI-E002]\n"
            "tutti error: of no known kind [TUTTI-E099]\n"
            "tutti warning: slot 3: peer_lost: rank 1 is gone [TUTTI-E401]; waiting\n");
}

// Rooms that see the public headers alone write a code where no Status is at hand.
TEST(ErrorTable, EveryCodeThatSourcesWriteIsInIt) {
  const std::regex form("TUTTI-[A-Z][0-9][0-9][0-9]?");
  int seen = 0;
  for (const char* room : {"core", "comm", "nccl", "tools", "trainer", "perf", "python"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(TUTTI_SOURCE_DIR "/") + room)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h" && entry.path().extension() != ".py")
        continue;
      std::ifstream file(entry.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      for (auto at = std::sregex_iterator(text.begin(), text.end(), form); at != std::sregex_iterator(); ++at, ++seen)
        EXPECT_NE(find_error(at->str()), nullptr) << entry.path() << ": " << at->str();
    }
  }
  EXPECT_GT(seen, 50);
}

TEST(ErrorTable, IsFoundByCodeByMessageAndByWords) {
  for (const char* text : {"TUTTI-E401", "e401", "Tutti-e401", "peer_lost (rank 3): rank 3 is gone [TUTTI-E401]"}) {
    ASSERT_NE(find_error(text), nullptr) << text;
    EXPECT_EQ(find_error(text)->code, "TUTTI-E401");
  }
  EXPECT_EQ(
      find_error("torch.distributed.DistBackendError: NCCL error ... ncclUnhandledCudaError: ... Unhandled CUDA error")
          ->code,
      "TUTTI-N02");
  EXPECT_EQ(find_error("no such words"), nullptr);
  EXPECT_EQ(find_error("E999"), nullptr);
}

// "# what was done", then what users read: "kind (rank R): text [CODE]".
TEST(ErrorTable, EveryGoldenFailureCarriesTheCodeOfItsText) {
  int seen = 0;
  const std::regex form(R"((\w+)(?: \(rank \w+\))?: (.*) \[(TUTTI-E[0-9]{3})\])");
  for (const auto& entry : std::filesystem::directory_iterator(TUTTI_SOURCE_DIR "/tests/golden/failures")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#' || line == "ok") continue;
      std::smatch parts;
      ASSERT_TRUE(std::regex_match(line, parts, form)) << entry.path() << ": " << line;
      const auto kind = code_from(parts[1]);
      ASSERT_TRUE(kind) << line;
      EXPECT_EQ(error_row(*kind, parts[2].str()).code, parts[3].str()) << entry.path() << ": " << line;
      ++seen;
    }
  }
  EXPECT_GT(seen, 30);
}

}  // namespace
}  // namespace tutti
