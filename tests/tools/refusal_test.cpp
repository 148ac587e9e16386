// Whatever is wrong with a command line: every program says so with a code that the table of errors explains.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include "core/error_table.h"
#include "tests/tools/ran.h"
#include "tools/refusal.h"

namespace tutti::tools {
namespace {

// The code that the text carries; null: none, or one that the table does not know.
const ErrorRow* code_in(const std::string& text) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(R"(\[(TUTTI-[A-Z]\d+)\])")) ? find_error(found[1].str()) : nullptr;
}

void expect_refused(const std::string& program, const std::string& arguments) {
  const Ran ran = run_program(program, arguments);
  SCOPED_TRACE(program + " " + arguments + "\n" + ran.out);
  EXPECT_NE(ran.status, 0);
  const ErrorRow* const row = code_in(ran.out);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->kind, Code::invalid_argument);
}

TEST(Refusal, SaysTextAndCode) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(refuse("top", {Code::out_of_resources, "page.html cannot be written"}, kFailure), kFailure);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tutti top: page.html cannot be written [TUTTI-E704]\n");
}

TEST(Refusal, EveryVerbOfTuttiGivesACode) {
  for (const char* arguments : {"",
                                "no-such-verb",
                                "--no-such-flag",
                                "run",
                                "run --no-such-flag",
                                "run -n zero true",
                                "run --nnodes 2 true",
                                "run --bind sideways true",
                                "run --kill-after soon true",
                                "run no-such-program",
                                "doctor --no-such-flag",
                                "doctor --wait -1",
                                "doctor extra",
                                "doctor --against /no/such/file",
                                "env extra",
                                "explain",
                                "explain --no-such-flag",
                                "explain all_reduce many",
                                "explain no_such_collective 4M",
                                "explain-error",
                                "explain-error 'all is well'",
                                "report --no-such-flag",
                                "report /no/such/place",
                                "top --every never",
                                "top --once /no/such/place",
                                "topo --no-such-flag",
                                "topo --file /no/such/file",
                                "version extra"})
    expect_refused("tutti", arguments);
}

// Those that are built here.
TEST(Refusal, TrainerAndBenchmarksGiveACode) {
  int seen = 0;
  for (const char* program : {"train", "all_reduce_perf", "sendrecv_perf", "strangers_perf", "regret", "compare"}) {
    if (!std::filesystem::exists(std::string(TUTTI_BINARY_DIR "/bin/") + program)) continue;
    expect_refused(program, program == std::string("strangers_perf") ? "none" : "--no-such-flag");
    ++seen;
  }
  if (seen == 0) GTEST_SKIP() << "none of them is built here";
  for (const char* arguments :
       {"--steps many", "extra", "sample", "plan --model /no/such/model",
        "tokenize --out /no/such/folder/x /no/such/text", "export --safetensors x /no/such/folder"})
    if (std::filesystem::exists(TUTTI_BINARY_DIR "/bin/train")) expect_refused("train", arguments);
  for (const char* arguments : {"-b many", "extra", "-b 8 -e 4"})
    if (std::filesystem::exists(TUTTI_BINARY_DIR "/bin/all_reduce_perf")) expect_refused("all_reduce_perf", arguments);
}

}  // namespace
}  // namespace tutti::tools
