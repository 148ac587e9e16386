// Texts to settings: what is accepted, what is refused, and that the refusal names variable, value and what was wanted.
#include "core/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Result<Settings> read(const std::map<std::string, std::string>& environment) {
  return read_settings(
      [&](const char* name) -> const char* {
        auto at = environment.find(name);
        return at == environment.end() ? nullptr : at->second.c_str();
      },
      {});
}

TEST(ParseBytes, accepts_numbers_with_binary_suffixes) {
  const std::map<std::string, ByteCount> cases = {{"0", 0},
                                                  {"8", 8},
                                                  {"64K", 65536},
                                                  {"64k", 65536},
                                                  {"64KB", 65536},
                                                  {"64KiB", 65536},
                                                  {"1M", 1048576},
                                                  {"2G", 2147483648},
                                                  {"1T", 1099511627776},
                                                  {"5B", 5},
                                                  {"18446744073709551615", 18446744073709551615ull},
                                                  {"16777215T", 16777215ull << 40}};
  for (const auto& [text, want] : cases) {
    auto got = parse_bytes(text);
    ASSERT_TRUE(got.ok()) << text << ": " << got.status().to_string();
    EXPECT_EQ(*got, want) << text;
  }
}

TEST(ParseBytes, refuses_everything_else_and_says_what_was_wanted) {
  for (const char* text : {"",          " ",    "K",    "-1",   "+1", "1.5M", "64 K", " 64K", "64K ",
                           "0x10",      "64KK", "64Ki", "64Kb", "1P", "1iB",  "12a",  "+K",   "18446744073709551616",
                           "16777216T", "1\n"}) {
    auto got = parse_bytes(text);
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_EQ(got.status().code(), Code::invalid_argument);
    EXPECT_THAT(got.status().text(), HasSubstr(text));
  }
}

TEST(ParseBytes, text_and_back) {
  for (ByteCount bytes : {0ull, 1ull, 1023ull, 1024ull, 1025ull, 1536ull, 1ull << 20, 3ull << 30, 1ull << 40, ~0ull}) {
    auto back = parse_bytes(to_text(bytes));
    ASSERT_TRUE(back.ok()) << to_text(bytes);
    EXPECT_EQ(*back, bytes);
  }
  EXPECT_EQ(to_text(ByteCount(65536)), "64K");
  EXPECT_EQ(to_text(ByteCount(65537)), "65537");
}

TEST(ParseDuration, accepts_units_and_refuses_the_rest) {
  EXPECT_EQ(*parse_duration("30"), 30s);
  EXPECT_EQ(*parse_duration("500ms"), 500ms);
  EXPECT_EQ(*parse_duration("20us"), 20us);
  EXPECT_EQ(*parse_duration("2m"), 120s);
  EXPECT_EQ(*parse_duration("1h"), 3600s);
  for (const char* text : {"", "s", "-1", "1.5s", "1 s", "5S", "5min", "99999999999999999999", "400000000", "5sec"})
    EXPECT_FALSE(parse_duration(text).ok()) << text;
}

TEST(ParsePortRange, is_strict) {
  EXPECT_EQ(*parse_port_range(""), (PortRange{0, 0}));
  EXPECT_EQ(*parse_port_range("40000-40100"), (PortRange{40000, 40100}));
  EXPECT_EQ(*parse_port_range("7"), (PortRange{7, 7}));
  for (const char* text : {"0", "0-5", "5-4", "1-65536", "a-b", "5-", "-5", "1-2-3", "1 - 2"})
    EXPECT_FALSE(parse_port_range(text).ok()) << text;
}

TEST(Settings, reads_each_variable_into_its_own_field) {
  auto got = read({{"TUTTI_LOG", "debug"},
                   {"TUTTI_ALGO", "ring"},
                   {"TUTTI_TREE_THRESHOLD", "256K"},
                   {"TUTTI_RING_THRESHOLD", "1M"},
                   {"TUTTI_DIRECT_THRESHOLD", "4K"},
                   {"TUTTI_TRANSPORT", "tcp"},
                   {"TUTTI_ORDER", "canonical"},
                   {"TUTTI_SEGMENT", "128K"},
                   {"TUTTI_SOCKETS", "4"},
                   {"TUTTI_CRC", "0"},
                   {"TUTTI_ENCRYPT", "1"},
                   {"TUTTI_CHECK", "1"},
                   {"TUTTI_LINK_TIMEOUT", "3s"},
                   {"TUTTI_METRICS", "9400"},
                   {"TUTTI_MEMORY_LIMIT", "32M"},
                   {"TUTTI_TIMEOUT", "5"},
                   {"TUTTI_INIT_TIMEOUT", "250ms"},
                   {"TUTTI_ABSENT_TIMEOUT", "0"},
                   {"TUTTI_SPIN", "20us"},
                   {"TUTTI_INTERFACE", "eth0"},
                   {"TUTTI_PORT_RANGE", "40000-40100"},
                   {"TUTTI_SIMD", "scalar"},
                   {"TUTTI_JOB_KEY", "secret"},
                   {"TUTTI_TOPOLOGY_FILE", "numa:2 pu:4"},
                   {"TUTTI_TOPOLOGY_DUMP", "a.nccl.xml"}});
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  Settings want;
  want.log = "debug";
  want.algo = "ring";
  want.tree_threshold = 262144;
  want.ring_threshold = 1048576;
  want.direct_threshold = 4096;
  want.transport = "tcp";
  want.order = "canonical";
  want.segment = 131072;
  want.sockets = 4;
  want.crc = false;
  want.encrypt = want.check = true;
  want.link_timeout = 3s;
  want.metrics = "9400";
  want.memory_limit = 33554432;
  want.timeout = 5s;
  want.init_timeout = 250ms;
  want.absent_timeout = 0s;
  want.spin = 20us;
  want.interface = "eth0";
  want.port_range = "40000-40100";
  want.simd = "scalar";
  want.job_key = "secret";
  want.topology_file = "numa:2 pu:4";
  want.topology_dump = "a.nccl.xml";
  EXPECT_TRUE(*got == want);
}

TEST(Settings, unset_and_empty_mean_default) {
  EXPECT_TRUE(*read({}) == Settings());
  EXPECT_TRUE(*read({{"TUTTI_TIMEOUT", ""}, {"TUTTI_LOG", ""}}) == Settings());
}

TEST(Settings, the_table_states_the_true_defaults) {
  // Setting each variable to the default that the table states changes nothing.
  for (const Variable& variable : variables()) {
    auto got = read({{std::string(variable.name), std::string(variable.default_text)}});
    ASSERT_TRUE(got.ok()) << variable.name << ": " << got.status().to_string();
    EXPECT_TRUE(*got == Settings()) << variable.name;
    EXPECT_FALSE(variable.meaning.empty());
  }
}

TEST(Settings, errors_name_variable_and_value) {
  const std::map<std::string, std::string> bad = {
      {"TUTTI_TREE_THRESHOLD", "12q"}, {"TUTTI_TRANSPORT", "udp"},  {"TUTTI_SOCKETS", "65"},
      {"TUTTI_METRICS", "94OO"}, {"TUTTI_METRICS", "@"}, {"TUTTI_METRICS", "65536"},
      {"TUTTI_INTERFACE", "eth0,^lo"}, {"TUTTI_CHANNELS", "17"},
      {"TUTTI_CRC", "maybe"},          {"TUTTI_TIMEOUT", "20us"},    {"TUTTI_PORT_RANGE", "9-1"},
      {"TUTTI_LOG", "loud"},           {"TUTTI_ORDER", "Canonical"}, {"TUTTI_SPIN", "x"}};
  for (const auto& [name, value] : bad) {
    auto got = read({{name, value}});
    ASSERT_FALSE(got.ok()) << name;
    EXPECT_EQ(got.status().code(), Code::invalid_argument);
    EXPECT_THAT(got.status().text(), HasSubstr(name + "=" + value));
  }
  EXPECT_THAT(read({{"TUTTI_TRANSPORT", "udp"}}).status().text(), HasSubstr("auto|shm|tcp|rdma"));
}

TEST(Settings, unknown_names_are_answered_with_the_nearest) {
  EXPECT_THAT(complaint_about_name("TUTTI_TREE_TRESHOLD"), HasSubstr("TUTTI_TREE_THRESHOLD"));
  EXPECT_THAT(complaint_about_name("TUTTI_TIMEOTU"), HasSubstr("nearest one is TUTTI_TIMEOUT"));
  EXPECT_THAT(complaint_about_name("TUTTI_ODRER"), HasSubstr("nearest one is TUTTI_ORDER"));
  EXPECT_THAT(complaint_about_name("TUTTI_"), HasSubstr("TUTTI_"));
  EXPECT_EQ(complaint_about_name("TUTTI_TIMEOUT"), "");
  EXPECT_EQ(complaint_about_name("TUTTI_RANK"), "");
  EXPECT_EQ(complaint_about_name("PATH"), "");
}

TEST(Settings, hash_and_text_follow_the_shared_ones_only) {
  const Settings plain;
  EXPECT_EQ(plain.shared_text(), "");
  const std::set<std::string> local = {"TUTTI_LOG",     "TUTTI_TIMEOUT", "TUTTI_INTERFACE",
                                       "TUTTI_JOB_KEY", "TUTTI_SPIN",    "TUTTI_PORT_RANGE"};
  const std::map<std::string, std::string> other = {
      {"switch", "on"},       {"size", "12K"}, {"number", "3"}, {"rules", "ring"}, {"any|canonical", "canonical"},
      {"auto|shm|tcp|rdma", "tcp"}, {"auto|0|1", "1"}};
  int shared = 0;
  for (const Variable& variable : variables()) {
    if (!variable.shared) continue;
    EXPECT_EQ(local.count(std::string(variable.name)), 0u);
    const bool on = variable.kind == "switch" && variable.default_text == "1";
    const std::string value = on ? "0" : other.at(std::string(variable.kind));
    Settings changed = *read({{std::string(variable.name), value}});
    EXPECT_NE(changed.shared_hash(), plain.shared_hash()) << variable.name;
    EXPECT_THAT(changed.shared_text(), HasSubstr(std::string(variable.name) + "="));
    ++shared;
  }
  EXPECT_GE(shared, 8);
  Settings mine;
  mine.log = "debug";
  mine.timeout = 1s;
  mine.job_key = "x";
  EXPECT_EQ(mine.shared_hash(), plain.shared_hash());
  EXPECT_EQ(read({{"TUTTI_ORDER", "canonical"}, {"TUTTI_ALGO", "ring"}})->shared_text(),
            "TUTTI_ALGO=ring TUTTI_ORDER=canonical");
}

}  // namespace
}  // namespace tutti
