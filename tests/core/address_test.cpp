// Addresses and interfaces as values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interfaces.h"
#include "core/socket_address.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Address, texts_and_back) {
  for (const char* text : {"10.0.0.1:4000", "0.0.0.0:0", "[::1]:65535", "[fe80::1%lo]:1", "[2001:db8::5]:80", "@name",
                           "@", "@with:colon"}) {
    auto address = parse_address(text);
    ASSERT_TRUE(address.ok()) << text << ": " << address.status().to_string();
    EXPECT_EQ(to_text(*address), text);
  }
}

TEST(Address, refuses_what_is_none) {
  for (const std::string& text :
       {std::string(), std::string("10.0.0.1"), std::string("10.0.0.1:"), std::string("10.0.0.1:65536"),
        std::string("10.0.0.1:-1"), std::string("host:80"), std::string("::1:80"), std::string("[::1]"),
        std::string("[]:80"), std::string("10.0.0.256:1"), std::string("10.0.0.1:8x"), "@" + std::string(108, 'x')}) {
    auto address = parse_address(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), Code::invalid_argument);
    EXPECT_THAT(address.status().text(), HasSubstr(text));
  }
}

TEST(Address, splits_and_joins_hosts) {
  EXPECT_EQ(split_address("node7.cluster:29500")->host, "node7.cluster");
  EXPECT_EQ(split_address("node7.cluster:29500")->port, 29500);
  EXPECT_EQ(split_address("[fe80::1%eth0]:5")->host, "fe80::1%eth0");
  EXPECT_EQ(join_address("10.0.0.1", 5), "10.0.0.1:5");
  EXPECT_EQ(join_address("fe80::1", 5), "[fe80::1]:5");
}

const std::vector<InterfaceAddress> kHost = {
    {"lo", "127.0.0.1", true, true}, {"lo", "::1", true, true}, {"docker0", "172.17.0.1"}, {"eth0", "fe80::1%eth0"},
    {"eth0", "2001:db8::7"},         {"eth0", "10.1.0.7"},      {"ib0", "192.168.9.7"},    {"eth1", "10.2.0.7", false},
};

TEST(Interfaces, best_first_loopback_last_and_only_if_asked) {
  EXPECT_THAT(*choose_addresses(kHost, "", false), ElementsAre("10.1.0.7", "192.168.9.7", "2001:db8::7", "172.17.0.1"));
  EXPECT_THAT(*choose_addresses(kHost, "", true),
              ElementsAre("10.1.0.7", "192.168.9.7", "2001:db8::7", "172.17.0.1", "127.0.0.1", "::1"));
}

TEST(Interfaces, rules) {
  EXPECT_THAT(*choose_addresses(kHost, "ib*", false), ElementsAre("192.168.9.7"));
  EXPECT_THAT(*choose_addresses(kHost, "ib0,docker0", false), ElementsAre("192.168.9.7", "172.17.0.1"));
  EXPECT_THAT(*choose_addresses(kHost, "^docker*,ib0", false), ElementsAre("10.1.0.7", "2001:db8::7"));
  EXPECT_THAT(*choose_addresses(kHost, "10.0.0.0/8", false), ElementsAre("10.1.0.7"));
  EXPECT_THAT(*choose_addresses(kHost, "2001:db8::/32", false), ElementsAre("2001:db8::7"));
  EXPECT_THAT(*choose_addresses(kHost, "192.168.8.0/23", false), ElementsAre("192.168.9.7"));
  EXPECT_THAT(*choose_addresses(kHost, "lo", false), ElementsAre("127.0.0.1", "::1"));
}

TEST(Interfaces, link_local_only_when_there_is_nothing_else) {
  EXPECT_THAT(*choose_addresses({{"eth0", "fe80::1%eth0"}}, "", false), ElementsAre("fe80::1%eth0"));
  EXPECT_THAT(*choose_addresses({}, "", false), IsEmpty());
}

TEST(Interfaces, a_rule_that_matches_nothing_says_what_there_is) {
  auto none = choose_addresses(kHost, "eth9", false);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().text(), HasSubstr("eth0 10.1.0.7"));
  EXPECT_FALSE(choose_addresses(kHost, "eth1", false).ok()) << "it is down";
}

TEST(Interfaces, malformed_rules_are_refused) {
  for (const char* rule : {",", "eth0,", "^", "10.0.0.0/33", "10.0.0/8", "e*h", "eth0,^ib0", "10.0.0.0/x"})
    EXPECT_EQ(choose_addresses(kHost, rule, true).status().code(), Code::invalid_argument) << rule;
}

}  // namespace
}  // namespace tutti
