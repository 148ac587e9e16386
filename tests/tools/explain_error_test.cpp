// `tutti explain-error`: by code, by a message, and the page that is written from the table.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "tests/tools/launched.h"
#include "tools/explain_error.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ExplainError, PrintsCauseCheckAndCure) {
  Launched by_code({"explain-error", "e401"});
  EXPECT_EQ(by_code.exit_status(), 0);
  EXPECT_THAT(by_code.out(), AllOf(HasSubstr("TUTTI-E401: a rank's process has ended\n"), HasSubstr("\n  cause  "),
                                   HasSubstr("\n  check  "), HasSubstr("\n  cure   ")));
  Launched by_words(
      {"explain-error",
       "RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:825, unhandled system error, NCCL version 2.14.3"});
  EXPECT_EQ(by_words.exit_status(), 0);
  EXPECT_THAT(by_words.out(), HasSubstr("TUTTI-N01"));
  Launched unknown({"explain-error", "all is well"});
  EXPECT_EQ(unknown.exit_status(), 2);
  EXPECT_THAT(unknown.err(), HasSubstr("'all is well'"));
}

TEST(ExplainError, ThePageIsThatOfTheTable) {
  std::ifstream file(TUTTI_SOURCE_DIR "/docs/errors.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(page, errors_markdown())
      << "the table has changed: build/bin/tutti explain-error --markdown > docs/errors.md";
}

}  // namespace
}  // namespace tutti::tools
