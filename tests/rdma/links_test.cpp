// Links of the emulated machine that fail while messages are on their way, and memory that comes and goes, over the kernel's own verbs.
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/rdma/soft_pair.h"

namespace tutti::tests {
namespace {

using testing::HasSubstr;
using transport::MessageKey;
using transport::conformance::End;

// What leaves host 0 on a rail is treated so, while this lives.
class Netem {
 public:
  Netem(int rail, const std::string& what) : device_("h0r" + std::to_string(rail)) { TUTTI_CHECK(std::system(("tc qdisc add dev " + device_ + " root netem " + what).c_str()) == 0); }
  ~Netem() { TUTTI_CHECK(std::system(("tc qdisc del dev " + device_ + " root").c_str()) == 0); }
  Netem(const Netem&) = delete;
  Netem& operator=(const Netem&) = delete;

 private:
  std::string device_;
};

constexpr int kGivesUp = 13;        // TUTTI_IB_TIMEOUT: after 8 times 34 ms, and what the kernel adds

struct Soft {
  End a{0}, b{1};
  SoftPair pair;
  std::uint32_t operation = 0;
  Soft(const RdmaOptions& options, bool both_rails, bool registered = false) : pair(a, b, options, both_rails) {
    if (registered) register_memory_of(a), register_memory_of(b);
    a.attach(pair);
    b.attach(pair);
  }
  ~Soft() {
    a.drop_held();
    b.drop_held();
  }
  void exchange_one(std::uint64_t bytes) {
    const MessageKey key{1, ++operation, 0};
    for (End* end : {&a, &b}) end->send(key, bytes), end->receive(key, bytes);
  }
  void exchange(int messages, std::uint64_t bytes) {
    for (int k = 0; k < messages; ++k) exchange_one(k % 3 == 0 ? bytes : bytes % 7001);
  }
  bool finished() const { return a.all_sent() && b.all_sent() && a.all_received() && b.all_received(); }
  bool broken() { return pair.rdma(0).broken(7) || pair.rdma(1).broken(7); }
  // Until `done`, for a minute.
  bool run_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!done() && std::chrono::steady_clock::now() < end) {
      a.offer();
      b.offer();
      pair.step();
    }
    return done();
  }
  bool run_some() {
    const std::size_t begun = a.complete();
    return run_until([&] { return a.complete() > begun; });
  }
};

TEST(SoftRdmaLinks, DownAndBack) {
  Soft soft({.timeout = kGivesUp, .resumable = true}, false);
  soft.exchange(30, 150000);
  ASSERT_TRUE(soft.run_some());
  {
    const Netem nothing(0, "loss 100%");
    ASSERT_TRUE(soft.run_until([&] { return soft.broken(); }));
    EXPECT_FALSE(soft.pair.join(true));
    EXPECT_THAT(soft.pair.why_not().text(), HasSubstr("nothing that one side writes arrives"));
    EXPECT_FALSE(soft.finished());
  }
  ASSERT_TRUE(soft.pair.join(true)) << soft.pair.why_not().text();
  EXPECT_TRUE(soft.run_until([&] { return soft.finished(); }));
  EXPECT_FALSE(soft.a.lost || soft.b.lost);
}

TEST(SoftRdmaLinks, ARailDies) {
  Soft soft({.timeout = kGivesUp, .resumable = true}, true);
  soft.exchange(30, 150000);
  ASSERT_TRUE(soft.run_some());
  const Netem nothing(1, "loss 100%");
  ASSERT_TRUE(soft.run_until([&] { return soft.broken() || soft.finished(); }));
  ASSERT_TRUE(soft.pair.join(true)) << soft.pair.why_not().text();
  EXPECT_THAT(soft.pair.connection(0).describe(), testing::AllOf(HasSubstr("rxe0"), testing::Not(HasSubstr("rxe2"))));
  EXPECT_TRUE(soft.run_until([&] { return soft.finished(); }));
}

TEST(SoftRdmaLinks, ASocketTakesOver) {
  Soft soft({.timeout = kGivesUp, .resumable = true, .socket_after = Nanoseconds(0)}, false);
  soft.exchange(30, 150000);
  ASSERT_TRUE(soft.run_some());
  {
    const Netem nothing(0, "loss 100%");
    ASSERT_TRUE(soft.run_until([&] { return soft.broken(); }));
    ASSERT_TRUE(soft.pair.join(true)) << soft.pair.why_not().text();
    EXPECT_THAT(soft.pair.connection(0).describe(), HasSubstr("over a socket"));
    EXPECT_TRUE(soft.run_until([&] { return soft.finished(); }));
  }
  soft.exchange(5, 150000);
  ASSERT_TRUE(soft.pair.join(true)) << soft.pair.why_not().text();
  EXPECT_THAT(soft.pair.connection(0).describe(), HasSubstr("rxe0"));
  EXPECT_TRUE(soft.run_until([&] { return soft.finished(); }));
}

TEST(SoftRdmaLinks, LossAndDelay) {
  const Netem poor(0, "delay 2ms loss 1%");
  Soft soft({.timeout = 16, .resumable = true}, false);
  soft.exchange(12, 60000);
  EXPECT_TRUE(soft.run_until([&] { return soft.finished() || soft.broken(); }));
  EXPECT_TRUE(soft.finished());
}

// By the kernel's own account.
std::uint64_t pinned_bytes() {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("VmPin:")) return 1024 * std::stoull(line.substr(6));
  return 0;
}

// Each message has memory of its own, which is registered when it is first met and let go when it is gone.
TEST(SoftRdmaMemory, RegistrationsComeAndGo) {
  constexpr std::uint64_t kMostBytes = 52000;
  constexpr int kRounds = 40, kMessages = 8;
  Soft soft({}, false, true);
  const std::uint64_t before = pinned_bytes();
  ASSERT_GT(before, 0u);
  std::uint64_t most = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int k = 0; k < kMessages; ++k) soft.exchange_one(kMostBytes - std::uint64_t(k * 4000 + round * 100));
    ASSERT_TRUE(soft.run_until([&] { return soft.finished(); })) << "round " << round;
    most = std::max(most, pinned_bytes() - before);
  }
  for (const int side : {0, 1}) {
    EXPECT_GE(soft.pair.rdma(side).counters().registrations, 2u * kRounds * kMessages);
    EXPECT_EQ(soft.pair.rdma(side).counters().copied_out + soft.pair.rdma(side).counters().copied_in, 0u);
  }
  EXPECT_GT(most, kMostBytes);
  EXPECT_LT(most, 2u * 130 * (kMostBytes + 2 * 4096));       // Registrations::kMost on each side
  EXPECT_FALSE(soft.a.lost || soft.b.lost);
}

}  // namespace
}  // namespace tutti::tests
