// GOAL: what is written is read again by a parser of its own and judged as a whole: messages, order, sizes.
#include "comm/goal.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>
#include <tuple>

#include "comm/simulation.h"

namespace tutti::comm {
namespace {

struct Message {
  int from, to, tag;
  auto operator<=>(const Message&) const = default;
};

struct Goal {
  int ranks = 0;
  std::string error;
  std::map<std::string, std::vector<std::string>> requires_of;  // operations are named "rank.label"
  std::map<Message, std::pair<std::string, std::uint64_t>> sends, receives;
};

// As the grammar of txt2bin has it, without what we never write (cpu, nic, irequires, comments).
Goal parse(const std::string& text) {
  static const std::regex first("num_ranks ([0-9]+)"), open("rank ([0-9]+) \\{"), close("\\}"),
      calc("([a-zA-Z][a-zA-Z0-9_]*): calc ([0-9]+)"),
      message("([a-zA-Z][a-zA-Z0-9_]*): (send|recv) ([0-9]+)b (to|from) ([0-9]+) tag ([0-9]+)"),
      order("([a-zA-Z][a-zA-Z0-9_]*) requires ([a-zA-Z][a-zA-Z0-9_]*)");
  Goal goal;
  int rank = -1;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::smatch m;
    const auto name = [&](const std::string& label) { return std::to_string(rank) + "." + label; };
    if (line.empty()) continue;
    if (std::regex_match(line, m, first))
      goal.ranks = std::stoi(m[1]);
    else if (rank < 0 && std::regex_match(line, m, open))
      rank = std::stoi(m[1]);
    else if (rank >= 0 && std::regex_match(line, close))
      rank = -1;
    else if (rank >= 0 && std::regex_match(line, m, calc))
      goal.requires_of[name(m[1])];
    else if (rank >= 0 && std::regex_match(line, m, message) && (m[2] == "send") == (m[4] == "to")) {
      const int peer = std::stoi(m[5]), tag = std::stoi(m[6]);
      const bool sends = m[2] == "send";
      const Message key = sends ? Message{rank, peer, tag} : Message{peer, rank, tag};
      const bool fresh =
          (sends ? goal.sends : goal.receives).emplace(key, std::pair(name(m[1]), std::stoull(m[3]))).second;
      if (!fresh || !goal.requires_of.emplace(name(m[1]), std::vector<std::string>{}).second)
        goal.error = "twice: " + line;
    } else if (rank >= 0 && std::regex_match(line, m, order)) {
      if (!goal.requires_of.contains(name(m[1])) || !goal.requires_of.contains(name(m[2])))
        goal.error = "unknown label: " + line;
      goal.requires_of[name(m[1])].push_back(name(m[2]));
    } else
      goal.error = "cannot read: " + line;
  }
  return goal;
}

// With a receive requiring its send.
bool acyclic(const Goal& goal) {
  std::map<std::string, std::vector<std::string>> before = goal.requires_of, after;
  for (const auto& [key, receive] : goal.receives) before[receive.first].push_back(goal.sends.at(key).first);
  std::map<std::string, std::size_t> open;
  std::vector<std::string> ready;
  for (const auto& [name, list] : before) {
    open[name] = list.size();
    if (list.empty()) ready.push_back(name);
    for (const std::string& earlier : list) after[earlier].push_back(name);
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const std::string name = ready.back();
    ready.pop_back();
    ++done;
    for (const std::string& later : after[name])
      if (--open[later] == 0) ready.push_back(later);
  }
  return done == before.size();
}

std::string goal_of(const char* algorithm, const algorithms::Request& request, const Load& load, double gamma = 1e-10) {
  std::ostringstream out;
  const Status status = write_goal(out, *algorithms::find_generator(algorithm), request, load, gamma);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out.str();
}

TEST(Goal, EverySendHasItsReceiveAndNothingWaitsInACircle) {
  const Collective all[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                            Collective::broadcast,  Collective::reduce,         Collective::gather,
                            Collective::scatter,    Collective::all_to_all};
  int written = 0;
  for (const algorithms::Generator* g : algorithms::generators())
    for (const Collective what : all)
      for (const int p : {2, 3, 6, 8})
        for (const bool in_place : {false, true}) {
          algorithms::Request request{.collective = what, .rank_count = p, .in_place = in_place};
          if (p >= 6) request.levels = {std::vector<int>(std::size_t(p), 0)};
          for (int r = p / 2; p >= 6 && r < p; ++r) request.levels[0][std::size_t(r)] = 1;
          if (!g->refusal(request).empty()) continue;
          // 100 bytes: the last chunks of a vector are empty.
          for (const std::uint64_t bytes : {std::uint64_t(100), std::uint64_t(4096 * p)}) {
            const Goal goal = parse(goal_of(std::string(g->name()).c_str(), request, {.bytes = bytes}));
            const std::string where =
                std::string(g->name()) + " " + std::string(name_of(what)) + " " + std::to_string(p);
            ASSERT_EQ(goal.error, "") << where;
            ASSERT_EQ(goal.ranks, p) << where;
            ASSERT_EQ(goal.sends.size(), goal.receives.size()) << where;
            std::uint64_t sent = 0;
            for (const auto& [key, send] : goal.sends) {
              ASSERT_TRUE(goal.receives.contains(key)) << where;
              ASSERT_EQ(goal.receives.at(key).second, send.second) << where;
              sent += send.second;
            }
            ASSERT_TRUE(acyclic(goal)) << where;
            // The simulator moves the same bytes.
            const auto simulated = simulate(*g, request, Placement{}, {.bytes = bytes});
            ASSERT_TRUE(simulated.ok()) << simulated.status().to_string();
            ASSERT_EQ(simulated->borders[0].messages, goal.sends.size()) << where;
            ASSERT_EQ(simulated->borders[0].bytes, double(sent)) << where;
            ++written;
          }
        }
  EXPECT_GT(written, 200);
}

TEST(Goal, ACircleWouldBeSeen) {
  Goal goal = parse(
      "num_ranks 2\nrank 0 {\na: send 8b to 1 tag 0\nb: recv 8b from 1 tag 0\na requires b\n}\nrank 1 {\na: send 8b to "
      "0 tag 0\nb: recv 8b from 0 tag 0\n}\n");
  EXPECT_EQ(goal.error, "");
  EXPECT_TRUE(acyclic(goal));
  goal.requires_of["1.a"].push_back("1.b");
  EXPECT_FALSE(acyclic(goal));
}

// 1 KiB in 4 blocks of 256 bytes; a sum reads 512 bytes at 0.1 ns: 51 ns.
std::string ring_rank(int rank) {
  const std::string next = std::to_string((rank + 1) % 4), prev = std::to_string((rank + 3) % 4);
  const auto send = [&](int step, int tag) {
    return "l" + std::to_string(step) + "s0: send 256b to " + next + " tag " + std::to_string(tag) + "\n";
  };
  const auto recv = [&](int step, int tag) {
    return "l" + std::to_string(step) + "r0: recv 256b from " + prev + " tag " + std::to_string(tag) + "\n";
  };
  const auto sum = [&](int step, int tag) {
    const std::string l = "l" + std::to_string(step);
    return recv(step, tag) + l + ": calc 51\n" + l + " requires " + l + "r0\n";
  };
  return "\nrank " + std::to_string(rank) + " {\n" + send(0, 0) + sum(1, 0) + send(2, 1) + sum(3, 1) + send(4, 2) +
         sum(5, 2) + send(6, 3) + recv(7, 3) + send(8, 4) + recv(9, 4) + send(10, 5) + recv(11, 5) +
         "l2s0 requires l1\nl4s0 requires l3\nl6s0 requires l5\nl8s0 requires l7r0\n"
         "l9r0 requires l1\nl9r0 requires l2s0\nl10s0 requires l1\nl10s0 requires l9r0\nl11r0 requires l3\nl11r0 "
         "requires l4s0\n}\n";
}

TEST(Goal, RingOfFour) {
  const algorithms::Request request{.collective = Collective::all_reduce, .rank_count = 4};
  EXPECT_EQ(goal_of("ring", request, {.bytes = 1024}),
            "num_ranks 4\n" + ring_rank(0) + ring_rank(1) + ring_rank(2) + ring_rank(3));
}

TEST(Goal, RefusesWhatTheGeneratorRefuses) {
  std::ostringstream out;
  const algorithms::Request request{.collective = Collective::gather, .rank_count = 4};
  const Status status = write_goal(out, *algorithms::find_generator("ring"), request, {.bytes = 64}, 0);
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.text().find("ring cannot serve gather among 4 ranks"), std::string::npos) << status.text();
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace tutti::comm
