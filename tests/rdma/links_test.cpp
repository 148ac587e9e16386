// Links of the emulated machine that fail while messages are on their way, over the kernel's own verbs.
#include <gmock/gmock.h>

#include <cstdlib>
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
  Soft(const RdmaOptions& options, bool both_rails) : pair(a, b, options, both_rails) {
    a.attach(pair);
    b.attach(pair);
  }
  ~Soft() {
    a.drop_held();
    b.drop_held();
  }
  void exchange(int messages, std::uint64_t bytes) {
    for (int k = 0; k < messages; ++k) {
      const MessageKey key{1, ++operation, 0};
      const std::uint64_t size = k % 3 == 0 ? bytes : bytes % 7001;
      for (End* end : {&a, &b}) end->send(key, size), end->receive(key, size);
    }
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

}  // namespace
}  // namespace tutti::tests
