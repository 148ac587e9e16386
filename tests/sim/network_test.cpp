// Addresses, listening, connecting, and which hosts reach which.
#include <gtest/gtest.h>

#include "tests/sim/seeds.h"
#include "tests/sim/talker.h"

namespace tutti::sim {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

// What connecting comes to, after however long it takes.
struct Outcome {
  Status status;
  std::string local, remote;
  Nanoseconds took{};
};

Outcome try_connect(SimWorld& world, SimLoop& from, const std::string& address) {
  Outcome outcome;
  bool over = false;
  const TimePoint start = world.now();
  const auto handle = from.network().connect(address, [&](Result<std::unique_ptr<Stream>> stream) {
    over = true;
    outcome.status = stream.status();
    outcome.took = world.now() - start;
    if (!stream.ok()) return;
    outcome.local = (*stream)->local_address();
    outcome.remote = (*stream)->remote_address();
  });
  EXPECT_FALSE(over) << "never from inside of connect()";
  EXPECT_TRUE(world.run_until([&] { return over; }, hours{1}));
  return outcome;
}

struct TwoHosts : testing::Test {
  SimWorld world{1};
  SimLoop& here = world.add_process(world.add_host());
  SimLoop& neighbour = world.add_process(0);
  SimLoop& there = world.add_process(world.add_host());
  std::vector<std::string> accepted_from;
  std::unique_ptr<Acceptor> listen(SimLoop& loop, const std::string& address) {
    return std::move(loop.network().listen(address, [this](std::unique_ptr<Stream> stream) {
      accepted_from.push_back(stream->remote_address());
    })).value();
  }
};

TEST_F(TwoHosts, TcpReachesOtherHostsByBothFamilies) {
  const auto acceptor = listen(here, "[::]:0");
  const std::string port = std::to_string(acceptor->port());
  EXPECT_GT(acceptor->port(), 0);
  EXPECT_EQ(acceptor->address(), "[::]:" + port);
  const Outcome four = try_connect(world, there, "10.0.0.1:" + port);
  EXPECT_TRUE(four.status.ok()) << four.status.to_string();
  EXPECT_EQ(four.remote, "10.0.0.1:" + port);
  EXPECT_EQ(four.local.rfind("10.0.1.1:", 0), 0U) << four.local;
  const Outcome six = try_connect(world, there, "[fd00:0::1]:" + port);
  EXPECT_TRUE(six.status.ok()) << six.status.to_string();
  EXPECT_EQ(six.local.rfind("[fd00:0::2]:", 0), 0U) << six.local;
  EXPECT_EQ(accepted_from, (std::vector<std::string>{four.local, six.local}));
}

TEST_F(TwoHosts, LoopbackAndUnixSocketsStayInsideTheirHost) {
  const auto loopback = listen(here, "127.0.0.1:0");
  const auto unix_socket = listen(here, "@tutti");
  EXPECT_EQ(unix_socket->port(), 0);
  EXPECT_EQ(unix_socket->address(), "@tutti");
  EXPECT_TRUE(try_connect(world, neighbour, loopback->address()).status.ok());
  EXPECT_TRUE(try_connect(world, neighbour, "@tutti").status.ok());
  for (const std::string& address : {loopback->address(), std::string("@tutti")}) {
    const Outcome refused = try_connect(world, there, address);
    EXPECT_EQ(refused.status.code(), Code::network);
    EXPECT_NE(refused.status.text().find(address), std::string::npos) << refused.status.to_string();
  }
  EXPECT_EQ(try_connect(world, there, "10.0.0.1:" + std::to_string(loopback->port())).status.code(), Code::network);
}

TEST_F(TwoHosts, TheSameUnixNameMayBeTakenOnEachHost) {
  const auto one = listen(here, "@tutti");
  const auto other = listen(there, "@tutti");
  const auto taken = neighbour.network().listen("@tutti", nullptr);
  EXPECT_EQ(taken.status().code(), Code::network);
}

TEST_F(TwoHosts, ATakenPortNamesTheHolder) {
  const auto acceptor = listen(here, "0.0.0.0:4000");
  for (const char* address : {"10.0.0.1:4000", "127.0.0.1:4000", "0.0.0.0:4000"}) {
    const auto taken = neighbour.network().listen(address, nullptr);
    ASSERT_FALSE(taken.ok()) << address;
    EXPECT_NE(taken.status().text().find(address), std::string::npos) << taken.status().to_string();
    EXPECT_NE(taken.status().text().find("process 0"), std::string::npos) << taken.status().to_string();
  }
  EXPECT_TRUE(there.network().listen("10.0.1.1:4000", nullptr).ok());
  EXPECT_FALSE(there.network().listen("10.0.0.1:4001", nullptr).ok()) << "another host's address";
}

TEST_F(TwoHosts, ADroppedAcceptorRefusesAndFreesItsPort) {
  auto acceptor = listen(here, "10.0.0.1:4000");
  acceptor.reset();
  EXPECT_EQ(try_connect(world, there, "10.0.0.1:4000").status.code(), Code::network);
  EXPECT_TRUE(here.network().listen("10.0.0.1:4000", nullptr).ok());
}

TEST_F(TwoHosts, BadAddressesAreInvalidArguments) {
  for (const char* address : {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:70000", "10.0.0.1:4x", "host0:4000", ":"}) {
    EXPECT_EQ(here.network().listen(address, nullptr).status().code(), Code::invalid_argument) << address;
    EXPECT_EQ(try_connect(world, here, address).status.code(), Code::invalid_argument) << address;
  }
  EXPECT_EQ(try_connect(world, here, "10.99.0.1:4000").status.code(), Code::network) << "nobody has it";
}

TEST_F(TwoHosts, NamesResolve) {
  EXPECT_EQ(here.network().resolve("host1:80").value(), (std::vector<std::string>{"10.0.1.1:80", "[fd00:0::2]:80"}));
  EXPECT_EQ(here.network().resolve("10.0.1.1:80").value(), std::vector<std::string>{"10.0.1.1:80"});
  EXPECT_EQ(here.network().resolve("localhost:80").value(), std::vector<std::string>{"127.0.0.1:80"});
  EXPECT_EQ(here.network().resolve("host7:80").status().code(), Code::network);
}

TEST_F(TwoHosts, DroppedConnectHandlesNeverCallAndCloseTheOtherEnd) {
  std::unique_ptr<Stream> accepted;
  const auto acceptor = std::move(here.network().listen("10.0.0.1:0", [&](std::unique_ptr<Stream> stream) {
    accepted = std::move(stream);
  })).value();
  int calls = 0;
  auto handle = there.network().connect(acceptor->address(), [&](auto) { ++calls; });
  ASSERT_TRUE(world.run_until([&] { return accepted != nullptr; }, seconds{1}));
  handle.reset();
  world.run_for(seconds{1});
  EXPECT_EQ(calls, 0);
  std::byte byte;
  const IoResult end = accepted->read({&byte, 1});
  EXPECT_TRUE(end.closed || !end.status.ok());
}

TEST(SimHosts, CardsListTheirAddressesBestFirst) {
  SimWorld world(1);
  SimLoop& loop = world.add_process(world.add_host({.cards = 2}));
  EXPECT_EQ(loop.network().local_addresses(false),
            (std::vector<std::string>{"10.0.0.1", "10.16.0.1", "fd00:0::1", "fd00:1::1"}));
  EXPECT_EQ(loop.network().local_addresses(true).back(), "127.0.0.1");
  SimLoop& six = world.add_process(world.add_host({.ipv4 = false}));
  EXPECT_EQ(six.network().local_addresses(false), std::vector<std::string>{"fd00:0::2"});
}

TEST(SimHosts, ARailMayBeDeadWhileTheOtherWorks) {
  SimWorld world(1);
  SimLoop& server = world.add_process(world.add_host({.cards = 2}));
  SimLoop& client = world.add_process(world.add_host({.cards = 2}));
  const auto acceptor = std::move(server.network().listen("0.0.0.0:4000", [](auto) {})).value();
  world.blackhole_rail(0, 1, 1);
  EXPECT_TRUE(try_connect(world, client, "10.0.0.1:4000").status.ok());
  const Outcome dead = try_connect(world, client, "10.16.0.1:4000");
  EXPECT_EQ(dead.status.code(), Code::network);
  EXPECT_GE(dead.took, seconds{127});
  EXPECT_LE(dead.took, seconds{128});
  EXPECT_NE(dead.status.text().find("timed out"), std::string::npos) << dead.status.to_string();
}

TEST(SimHosts, ConnectsBehindABlackHoleGoThroughWhenItHealsInTime) {
  for (const bool answers_lost : {false, true}) {
    SimWorld world(1);
    SimLoop& server = world.add_process(world.add_host());
    SimLoop& client = world.add_process(world.add_host());
    int accepted = 0;
    const auto acceptor = std::move(server.network().listen("0.0.0.0:4000", [&](auto) { ++accepted; })).value();
    world.blackhole_one_way(answers_lost ? 0 : 1, answers_lost ? 1 : 0);
    world.after(seconds{20}, [&] { world.heal(0, 1); });
    const Outcome late = try_connect(world, client, "10.0.0.1:4000");
    EXPECT_TRUE(late.status.ok()) << late.status.to_string();
    EXPECT_GE(late.took, seconds{20});
    EXPECT_LE(late.took, seconds{40});
    EXPECT_EQ(accepted, 1) << "however many SYNs";
  }
}

TEST(SimHosts, PartitionsSeparateTheirSidesAndHealWithoutLoss) {
  for (const std::uint64_t seed : seeds(30)) {
    Pair pair(seed, {}, 300'000, 300'000);
    pair.poll();
    const int third = pair.world.add_host();
    SimLoop& bystander = pair.world.add_process(third);
    ASSERT_TRUE(pair.connect());
    pair.world.partition({{0}, {1}});
    pair.world.run_for(microseconds{200});      // what was under way
    const std::uint64_t before = pair.at_client->received() + pair.at_server->received();
    pair.world.run_for(minutes{1});
    EXPECT_EQ(pair.at_client->received() + pair.at_server->received(), before) << pair.world.replay_line();
    EXPECT_FALSE(pair.all_arrived());
    EXPECT_TRUE(try_connect(pair.world, bystander, pair.acceptor->address()).status.ok()) << "on no side: reaches all";
    pair.world.heal();
    pair.at_server.reset();
    EXPECT_TRUE(pair.world.run_until([&] { return pair.at_client->over(); }, minutes{1})) << "the server has hung up";
  }
  for (const std::uint64_t seed : seeds(30)) {
    Pair pair(seed, rough_options(seed), 20'000, 20'000);
    pair.poll();
    for (int i = 1; i < 20; i += 2) {
      pair.world.after(milliseconds{i}, [&] { pair.world.partition({{0}, {1}}); });
      pair.world.after(milliseconds{i + 1}, [&] { pair.world.heal(); });
    }
    ASSERT_TRUE(pair.world.run_until([&] { return pair.all_arrived(); }, hours{1})) << pair.world.replay_line();
    EXPECT_EQ(pair.at_client->wrong() + pair.at_server->wrong(), 0U) << pair.world.replay_line();
  }
}

TEST(SimHosts, PowerOffIsSilence) {
  Pair pair(1);
  pair.poll();
  ASSERT_TRUE(pair.connect());
  pair.world.power_off(0);
  pair.world.run_for(minutes{5});
  EXPECT_FALSE(pair.at_client->over()) << "no end of file, no reset";
  EXPECT_FALSE(pair.server.alive());
  const Outcome silent = try_connect(pair.world, pair.client, "10.0.0.1:4000");
  EXPECT_GE(silent.took, seconds{127});
}

TEST(SimHosts, ManyHostsHaveDistinctAddresses) {
  SimWorld world(1);
  std::vector<std::string> all;
  for (int i = 0; i < 600; ++i) {
    SimLoop& loop = world.add_process(world.add_host({.cards = 2}));
    for (auto& address : loop.network().local_addresses(false)) all.push_back(address);
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

}  // namespace
}  // namespace tutti::sim
