// The real TcpTransport between two simulated processes, in rough worlds, with a socket that is cut off in mid-frame:
// every message arrives once and whole. The ends are those of the conformance tests, which count and compare.
#include <gtest/gtest.h>

#include "tests/sim/seeds.h"
#include "tests/transport/conformance.h"
#include "transport/sim/sim_world.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti::sim {
namespace {

using std::chrono::minutes;
using transport::MessageKey;
using transport::TcpOptions;
using transport::TcpTransport;
using transport::conformance::End;

// Two hosts with as many rails as sockets, a process and a transport on each.
class SimPair final : public transport::conformance::Pair {
 public:
  SimPair(std::uint64_t seed, const SimOptions& options, int sockets, const TcpOptions& tcp)
      : world(seed, options), sockets_(static_cast<std::size_t>(sockets)), tcp_(tcp) {
    for (int side = 0; side < 2; ++side) loops[side] = &world.add_process(world.add_host({.cards = sockets}));
    for (End* end : {&a, &b}) end->in_place = world.dice().chance(0.5);
  }
  ~SimPair() override {
    a.drop_held();      // leases before transports
    b.drop_held();
  }
  bool connect() {
    acceptor_ = std::move(loops[1]->network().listen("0.0.0.0:0", [this](std::unique_ptr<Stream> stream) {
      take(1, std::move(stream));
    })).value();
    for (std::size_t i = 0; i < sockets_; ++i) {
      const std::string address = "10." + std::to_string(16 * i) + ".1.1:" + std::to_string(acceptor_->port());
      attempts_.push_back(loops[0]->network().connect(address, [this](Result<std::unique_ptr<Stream>> stream) {
        take(0, std::move(stream).value());
      }));
    }
    return world.run_until([this] { return connections_[0] && connections_[1]; }, minutes{1});
  }
  bool finish() {
    const auto sent = [this] { return a.all_sent() && b.all_sent(); };
    return world.run_until([&] { return sent() && a.all_received() && b.all_received(); }, minutes{10});
  }

  transport::Transport& transport(int side) override { return *transports_[side]; }
  transport::Connection& connection(int side) override { return *connections_[side]; }
  bool step() override { return world.step(); }
  bool woken(int side) override { return loops[side]->run({}); }
  void kill_side_1() override { world.kill(1); }
  const transport::TcpCounters& counters(int side) const { return transports_[side]->counters(); }

  End a{0}, b{1};
  SimWorld world;
  SimLoop* loops[2] = {};

 private:
  void take(int side, std::unique_ptr<Stream> stream) {
    streams_[side].push_back(std::move(stream));
    if (streams_[side].size() < sockets_) return;
    End& end = side ? b : a;
    transports_[side] = std::make_unique<TcpTransport>(*loops[side], end, tcp_);
    connections_[side] = transports_[side]->connect(kPeer, std::move(streams_[side]));
    if (connections_[0] && connections_[1]) {
      a.attach(*this);
      b.attach(*this);
      for (int each = 0; each < 2; ++each) loops[each]->on_tick([this, each] { tick(each); });
    }
  }
  // As the engine does: drive until nothing happens and the transport lets us sleep.
  void tick(int side) {
    constexpr int kPatience = 10000;
    End& end = side ? b : a;
    loops[side]->run({});
    transports_[side]->wake_done();
    for (int round = 0; round < kPatience; ++round) {
      const bool offered = !end.lost && end.offer();
      const bool moved = transports_[side]->poll();
      if (!offered && !moved && transports_[side]->prepare_sleep()) return;
    }
    ADD_FAILURE() << "side " << side << " finds no sleep; " << world.replay_line();
    world.kill(side);
  }

  const std::size_t sockets_;
  const TcpOptions tcp_;
  std::unique_ptr<Acceptor> acceptor_;
  std::vector<std::shared_ptr<void>> attempts_;
  std::vector<std::unique_ptr<Stream>> streams_[2];
  std::unique_ptr<TcpTransport> transports_[2];
  transport::Connection* connections_[2] = {};
};

// Messages of many sizes both ways, sent and expected at any time within some milliseconds, in any order of the two.
void talk(SimPair& pair) {
  Dice& dice = pair.world.dice();
  const std::uint32_t messages = 4 + static_cast<std::uint32_t>(dice.below(16));
  const Nanoseconds spread = microseconds{dice.chance(0.5) ? 100 : 5000};
  for (std::uint32_t i = 0; i < messages; ++i) {
    const std::uint64_t bytes = dice.below(std::uint64_t{1} << dice.below(18));
    const MessageKey key{1, i, static_cast<std::uint32_t>(dice.below(3))};
    End* sender = dice.chance(0.5) ? &pair.a : &pair.b;
    End* receiver = sender == &pair.a ? &pair.b : &pair.a;
    SimLoop* loops[2] = {pair.loops[sender == &pair.b], pair.loops[receiver == &pair.b]};
    pair.world.after(dice.up_to(spread), [=] {
      sender->send(key, bytes);
      loops[0]->wake();
    });
    pair.world.after(dice.up_to(spread), [=] {
      receiver->receive(key, bytes);
      loops[1]->wake();
    });
  }
  pair.world.run_for(spread);
}

TEST(SimTcp, RoughWorldsLoseNothing) {
  for (const std::uint64_t seed : seeds(200)) {
    const int sockets = 1 + static_cast<int>(seed % 4);
    SimPair pair(seed, rough_options(seed), sockets, {});
    ASSERT_TRUE(pair.connect()) << pair.world.replay_line();
    talk(pair);
    ASSERT_TRUE(pair.finish()) << pair.world.replay_line();
    ASSERT_FALSE(pair.a.lost || pair.b.lost) << pair.world.replay_line();
    ASSERT_FALSE(testing::Test::HasFailure()) << pair.world.replay_line();
  }
}

TEST(SimTcp, ASocketThatIsResetInMidFrameCostsNoMessage) {
  std::uint64_t lost_sockets = 0, resends = 0;
  for (const std::uint64_t seed : seeds(300)) {
    const int sockets = 2 + static_cast<int>(seed % 3);
    SimPair pair(seed, rough_options(seed), sockets, {});
    ASSERT_TRUE(pair.connect()) << pair.world.replay_line();
    Dice& dice = pair.world.dice();
    const auto wires = pair.world.wires();
    ASSERT_EQ(wires.size(), static_cast<std::size_t>(sockets));
    const std::uint64_t victim = wires[dice.below(wires.size())].number;
    pair.world.reset_after(victim, static_cast<int>(dice.below(2)), 1 + dice.below(20'000));
    talk(pair);
    ASSERT_TRUE(pair.finish()) << pair.world.replay_line();
    ASSERT_FALSE(pair.a.lost || pair.b.lost) << pair.world.replay_line();
    ASSERT_FALSE(testing::Test::HasFailure()) << pair.world.replay_line();
    for (int side = 0; side < 2; ++side) {
      lost_sockets += pair.counters(side).sockets_lost;
      resends += pair.counters(side).resends;
    }
  }
  if (!whole_range()) return;
  EXPECT_GT(lost_sockets, 150U) << "the test must reach what it is about";
  EXPECT_GT(resends, 50U);
}

TEST(SimTcp, ARailThatIsSilentForAWhileDelaysButLosesNothing) {
  for (const std::uint64_t seed : seeds(100)) {
    SimPair pair(seed, rough_options(seed), 2, {});
    ASSERT_TRUE(pair.connect()) << pair.world.replay_line();
    pair.world.after(microseconds{50}, [&] { pair.world.blackhole_rail(0, 1, static_cast<int>(seed % 2)); });
    pair.world.after(seconds{5}, [&] { pair.world.heal(); });
    talk(pair);
    ASSERT_TRUE(pair.finish()) << pair.world.replay_line();
    ASSERT_FALSE(testing::Test::HasFailure()) << pair.world.replay_line();
  }
}

TEST(SimTcp, AKilledPeerIsReportedOnce) {
  for (const std::uint64_t seed : seeds(100)) {
    const int sockets = 1 + static_cast<int>(seed % 3);
    SimPair pair(seed, rough_options(seed), sockets, {});
    ASSERT_TRUE(pair.connect()) << pair.world.replay_line();
    pair.world.after(pair.world.dice().up_to(milliseconds{3}), [&] { pair.world.kill(1); });
    talk(pair);
    ASSERT_TRUE(pair.world.run_until([&] { return pair.a.lost; }, minutes{10})) << pair.world.replay_line();
    EXPECT_EQ(pair.a.why.code(), Code::peer_lost);
    EXPECT_EQ(pair.a.why.culprit(), transport::conformance::Pair::kPeer);
    pair.world.run_for(minutes{1});
    ASSERT_FALSE(testing::Test::HasFailure()) << pair.world.replay_line();
  }
}

}  // namespace
}  // namespace tutti::sim
