// What RDMA costs, counted, and what happens when queue pairs, rails, registrations and peers fail; on a provider of verbs in memory.
#if __has_include(<infiniband/verbs.h>)
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "rdma_pair.h"
#include "transport/ranges.h"

namespace tutti::tests {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using transport::MessageKey;
using transport::conformance::End;
using transport::rdma::QueuePair;
using transport::rdma::RdmaCounters;

struct Two {
  End a{0}, b{1};
  std::unique_ptr<FakeRdmaPair> pair;
  explicit Two(const RdmaOptions& options, int rails = 1, bool registered = false) {
    if (registered)
      for (End* end : {&a, &b}) register_memory_of(*end);
    pair = std::make_unique<FakeRdmaPair>(a, b, options, rails);
    a.attach(*pair);
    b.attach(*pair);
  }
  ~Two() {
    a.drop_held();
    b.drop_held();
  }
  bool step() {
    const bool offered = a.offer() | b.offer();
    return pair->step() | offered;
  }
  bool finish(const std::function<void()>& between = [] {}) {
    for (int idle = 0; idle < 20000; idle = step() ? 0 : idle + 1) {
      if (a.all_sent() && b.all_sent() && a.all_received() && b.all_received()) return true;
      between();
    }
    return false;
  }
  void send(std::uint32_t operation, std::uint64_t bytes) {
    b.receive({1, operation, 0}, bytes);
    a.send({1, operation, 0}, bytes);
  }
  const RdmaCounters& counters(int side) { return pair->rdma(side).counters(); }
};

// Registered memory: each byte goes once from where it is to where it belongs. One write for each segment, one grant for the message, a
// completion for four writes, and no message for credits.
TEST(RdmaCounts, ALargeMessageInRegisteredMemoryCostsTheLeast) {
  Two two({}, 1, true);
  constexpr std::uint64_t kBytes = 6 << 20;
  const std::uint64_t segments = kBytes / two.pair->transport(0).segment_bytes(kBytes);
  two.send(1, kBytes);
  ASSERT_TRUE(two.finish());
  const RdmaCounters &out = two.counters(0), &in = two.counters(1);
  EXPECT_EQ(segments, 48u);                                    // as docs/rdma.md says
  EXPECT_EQ(out.writes_out, segments);
  EXPECT_EQ(out.work_requests, segments + 1);                  // and the greeting
  EXPECT_EQ(out.bytes_out, kBytes);
  EXPECT_EQ(out.completions, segments / 4 + 1);
  EXPECT_EQ(out.copied_out + in.copied_in, 0u);
  EXPECT_EQ(out.cells_out + out.control_out, 0u);
  EXPECT_EQ(in.control_out, 1u);
  EXPECT_EQ(in.grants_out, 1u);
  EXPECT_EQ(in.work_requests, 2u);
  EXPECT_EQ(in.arrivals, segments + 1);
  EXPECT_EQ(out.registrations + in.registrations, 2u);
}

// Of memory that nobody has registered, the sender makes one copy, and the window needs a grant for each half of it.
TEST(RdmaCounts, OtherMemoryIsCopiedOnce) {
  Two two({});
  constexpr std::uint64_t kBytes = 6 << 20;
  two.send(1, kBytes);
  ASSERT_TRUE(two.finish());
  EXPECT_EQ(two.counters(0).copied_out, kBytes);
  EXPECT_EQ(two.counters(0).work_requests, two.counters(0).writes_out + 1);
  EXPECT_EQ(two.counters(1).copied_in, 0u);
  EXPECT_LE(two.counters(1).grants_out, 2 + 2 * kBytes / (1 << 20));
  EXPECT_EQ(two.counters(1).registrations, 0u);
}

// A small one is one work request, inline, without a completion of its own.
TEST(RdmaCounts, ASmallMessageIsOneInlineWrite) {
  Two two({});
  for (std::uint32_t k = 1; k <= 1000; ++k) {
    two.send(k, 8);
    if (k % 10 != 0) continue;
    ASSERT_TRUE(two.finish());
  }
  const RdmaCounters &out = two.counters(0), &in = two.counters(1);
  EXPECT_EQ(out.work_requests, 1001u);
  EXPECT_EQ(out.inlined, 1000u);
  EXPECT_LE(out.completions, 1 + 1000 / 32 + 1);
  EXPECT_LE(in.work_requests, 1 + 1000 / 128 + 1);      // credits
}

TEST(RdmaCounts, CreditsAreToldOnceForManySegments) {
  Two two({.segment_bytes = 16 << 10}, 1, true);
  for (std::uint32_t k = 1; k <= 8; ++k) two.send(k, 4 << 20);
  ASSERT_TRUE(two.finish());
  const std::uint64_t segments = 8 * (4 << 20) / (16 << 10);
  EXPECT_EQ(two.counters(0).writes_out, segments);
  EXPECT_LE(two.counters(1).credits_out, segments / 128 + 1);
  EXPECT_EQ(two.counters(1).control_out, two.counters(1).credits_out + 8);
}

// What a rail does not take, the other carries: a dead one holds up no more than its queue pairs have under way.
TEST(RdmaCounts, RailsShareTheWork) {
  Two two({.queues = 2}, 2, true);
  two.pair->fabric().set_link(1, false);
  constexpr std::uint64_t kBytes = 5000001;
  const std::uint64_t segments = 4 * ((kBytes - 1) / two.pair->transport(0).segment_bytes(kBytes) + 1);
  for (std::uint32_t k = 1; k <= 4; ++k) two.send(k, kBytes);
  for (int i = 0; i < 2000; ++i) two.step();
  EXPECT_GE(two.counters(1).arrivals, segments - 2 * 8);
  EXPECT_FALSE(two.b.all_received());
  two.pair->fabric().set_link(1, true);
  ASSERT_TRUE(two.finish());
}

// Each queue pair that takes a broken one's place; a socket that does is another count.
TEST(RdmaCounts, QueuePairsInPlaceOfBrokenOnes) {
  Two two({.queues = 2, .resumable = true, .socket_after = Nanoseconds(0)}, 2);
  FakeRdmaPair& pair = *two.pair;
  const auto breaks_and_finishes = [&](std::uint32_t operation) {
    two.send(operation, 5000000);
    pair.fabric().fail_after(3, IBV_WC_RETRY_EXC_ERR);
    for (int i = 0; i < 1000 && !pair.rdma(0).broken(7); ++i) two.step();
    return pair.rdma(0).broken(7) && pair.join(true) && two.finish();
  };
  const auto expect_counts = [&](std::uint64_t breaks, std::uint64_t rebuilt, std::uint64_t over_sockets) {
    for (const int side : {0, 1}) {
      EXPECT_EQ(two.counters(side).breaks, breaks);
      EXPECT_EQ(two.counters(side).rebuilt, rebuilt);
      EXPECT_EQ(two.counters(side).over_sockets, over_sockets);
    }
  };
  expect_counts(0, 0, 0);
  ASSERT_TRUE(breaks_and_finishes(1)) << pair.why_not().text();
  expect_counts(1, 4, 0);
  pair.fabric().set_port(1, false);
  ASSERT_TRUE(breaks_and_finishes(2)) << pair.why_not().text();
  expect_counts(2, 6, 0);
  pair.fabric().set_port(0, false);
  ASSERT_TRUE(breaks_and_finishes(3)) << pair.why_not().text();
  expect_counts(3, 6, 1);
}

// Errors that devices mend by themselves, as the kernel has them at that moment: of each port that is used, under the kernel's names.
TEST(RdmaCounts, PortErrorsAreTheKernels) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / ("tutti-sysfs-" + std::to_string(::getpid()));
  const auto write = [&](const std::string& device, const char* name, const std::string& text) {
    const fs::path folder = root / "class/infiniband" / device / "ports/1/hw_counters";
    fs::create_directories(folder);
    std::ofstream(folder / name) << text;
  };
  write("fake0", "packet_seq_err", "7\n");
  write("fake0", "lifespan", "10\n");                       // is none
  write("fake0", "out_of_buffer", "");                       // cannot be read
  write("fake1", "local_ack_timeout_err", "18446744073709551615\n");
  write("fake2", "packet_seq_err", "3\n");                  // of a device that is not used
  FakeFabric::sysfs = root.string();
  Two two({}, 2);
  FakeFabric::sysfs = "/sys";
  const auto errors = [&] {
    std::vector<std::string> out;
    for (const auto& error : two.pair->rdma(0).port_errors()) out.push_back(error.device + ":" + std::to_string(error.port) + " " + error.name + " " + std::to_string(error.count));
    return out;
  };
  EXPECT_THAT(errors(), ElementsAre("fake0:1 packet_seq_err 7", "fake1:1 local_ack_timeout_err 18446744073709551615"));
  write("fake0", "packet_seq_err", "9\n");
  EXPECT_THAT(errors(), ElementsAre("fake0:1 packet_seq_err 9", "fake1:1 local_ack_timeout_err 18446744073709551615"));
  fs::remove_all(root);
  EXPECT_THAT(errors(), IsEmpty());
}

// Small messages of one side, looked at past poll(), while others go both ways and queue pairs fail: each is there once, and takes nothing
// with it that poll() is to find.
void glances(bool breaks, std::uint64_t seed) {
  Two two({.resumable = true, .segment_bytes = 16 << 10, .landing_bytes = 300 << 10}, 1, true);
  FakeRdmaPair& pair = *two.pair;
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes, came;
  int glanced = 0;
  for (std::uint32_t operation = 1; operation <= 600; ++operation) {
    if (random() % 4 == 0) two.send(operation, random() % 60000), two.b.send({3, operation, 0}, 5000), two.a.receive({3, operation, 0}, 5000);
    if (breaks && operation % 50 == 0) pair.fabric().fail_after(unsigned(random() % 9), IBV_WC_RETRY_EXC_ERR);
    transport::SegmentHeader message{.key = {2, operation, 0}, .call = transport::conformance::mix(operation), .plan = 0xBEEF, .first = true};
    bytes.resize(8 * (1 + random() % 500));
    transport::conformance::Content(0, message.key).fill(bytes);
    message.bytes = std::uint32_t(message.message_bytes = bytes.size());
    bool sent = false;
    const std::byte* at = nullptr;
    for (int idle = 0; !at && idle < 20000; ++idle) {
      if (!sent) sent = pair.connection(0).send(message, bytes.data(), 0) == transport::Sent::done;
      transport::SegmentHeader other = message;
      ++other.call;
      pair.fabric().deliver();
      EXPECT_EQ(pair.connection(1).glance(other), nullptr);
      at = pair.connection(1).glance(message);
      if (at || two.b.came(message.key)) break;      // or poll() was faster
      if (random() % 3 == 0) two.step();
      if (!pair.rdma(0).broken(7) && !pair.rdma(1).broken(7)) continue;
      pair.fabric().calm();
      ASSERT_TRUE(pair.join(true)) << pair.why_not().text();
    }
    if (at) {
      ++glanced;
      came.assign(at, at + bytes.size());
      pair.connection(1).take_glanced();
      ASSERT_EQ(came, bytes) << operation;
      EXPECT_FALSE(two.b.came(message.key));
    } else {
      ASSERT_TRUE(two.b.came(message.key)) << operation;
      two.b.receive(message.key, bytes.size());
    }
  }
  pair.fabric().calm();
  ASSERT_TRUE(two.finish([&] {
    if (!pair.rdma(0).broken(7) && !pair.rdma(1).broken(7)) return;
    ASSERT_TRUE(pair.join(true)) << pair.why_not().text();
  }));
  EXPECT_GT(glanced, 100);
  EXPECT_FALSE(two.a.lost || two.b.lost);
}
TEST(RdmaGlances, FindSmallMessages) { glances(false, 1); }
TEST(RdmaGlances, FindSmallMessagesWhileQueuePairsFail) { glances(true, 2); }

TEST(RdmaRegistrations, AreDroppedWithTheirMemory) {
  Two two({}, 1, true);
  const std::size_t before = two.pair->fabric().registered_bytes();
  for (std::uint32_t k = 1; k <= 300; ++k) {
    two.send(k, 20000 + k);
    ASSERT_TRUE(two.finish());
  }
  two.step();
  EXPECT_GE(two.counters(1).registrations, 300u);
  // What was received is gone; what was sent stays in its vectors, as far as the cache is wide.
  EXPECT_LT(two.pair->fabric().registered_bytes() - before, 130u * 20400);
}

// The device takes no more in mid-job: bytes are copied from there on, in messages under way as in later ones.
TEST(RdmaRegistrations, WhatIsRefusedIsCopied) {
  Two two({}, 1, true);
  two.send(1, 1000000);
  ASSERT_TRUE(two.finish());
  EXPECT_EQ(two.counters(0).copied_out, 0u);
  two.pair->fabric().memory_limit = two.pair->fabric().registered_bytes();
  testing::internal::CaptureStderr();
  for (std::uint32_t k = 2; k <= 40; ++k) two.send(k, 100000 + k);
  ASSERT_TRUE(two.finish());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;      // once on either side
  EXPECT_EQ(two.counters(0).copied_out, 39u * 100000 + 39 * 42 / 2);
  EXPECT_EQ(two.counters(0).registrations + two.counters(1).registrations, 2u);
  two.pair->fabric().memory_limit = ~std::size_t(0);
  two.send(41, 100000);
  ASSERT_TRUE(two.finish());
  EXPECT_EQ(two.counters(0).registrations + two.counters(1).registrations, 4u);
}

TEST(RdmaFailures, EachBadCompletionIsToldWithWhoAndWhat) {
  const std::pair<ibv_wc_status, const char*> rows[] = {{IBV_WC_RETRY_EXC_ERR, "no answer after 7 retries"}, {IBV_WC_REM_ACCESS_ERR, "refused the write"}, {IBV_WC_LOC_PROT_ERR, "may not read the memory"},
                                                        {IBV_WC_RNR_RETRY_EXC_ERR, "no receive posted"},      {IBV_WC_FATAL_ERR, "device has failed"},    {IBV_WC_REM_OP_ERR, "failed to carry the write out"}};
  for (const auto& [status, text] : rows) {
    Two two({});
    two.a.send({1, 1, 0}, 100);
    two.a.offer();
    ASSERT_TRUE(two.pair->fabric().fail_one(0, status));
    for (int i = 0; i < 1000 && !two.a.lost; ++i) two.step();
    ASSERT_TRUE(two.a.lost) << text;
    EXPECT_THAT(two.a.why.text(), AllOf(HasSubstr(text), HasSubstr("fake0:1"), HasSubstr("10.0.0.1 -> 10.0.0.2"))) << two.a.why.text();
    EXPECT_EQ(two.a.why.code(), Code::peer_lost);
  }
}

// Else a dead rank's queue pairs would answer for as long as a child of its lives.
TEST(RdmaFailures, ChildrenHaveNothingOfADevice) {
  FakeFabric fabric;
  fabric.add_rail(0, 0);
  const auto devices = transport::rdma::Device::open_all(fabric.verbs(0));
  ASSERT_EQ(devices.size(), 1u);
  ASSERT_TRUE(devices[0]->prepare(false).ok());
  const ibv_context* const context = devices[0]->domain()->context;
  int nothing = 0;      // of them are /dev/null
  const pid_t child = ::fork();
  for (const int descriptor : {devices[0]->descriptor(), context->cmd_fd, context->async_fd}) {
    struct stat info {};
    nothing += ::fstat(descriptor, &info) == 0 && S_ISCHR(info.st_mode);
  }
  if (child == 0) ::_exit(nothing);
  EXPECT_EQ(nothing, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

// To the kernel's soft-RoCE seven retries are endless ones, and a dead link would never be seen.
TEST(RdmaFailures, SoftRoceIsNotToldToRetryForEver) {
  EXPECT_EQ(Two({}).pair->fabric().retries(), 7);
  FakeFabric::default_vendor = 0xffffff;
  Two soft({});
  FakeFabric::default_vendor = 0x2c9;
  EXPECT_EQ(soft.pair->fabric().retries(), 6);
}

TEST(RdmaFailures, WithoutMemoryToLockBothSidesSayWhyAndKeepTheirSockets) {
  End a{0}, b{1};
  FakeFabric::default_memory_limit = 100000;
  FakeRdmaPair pair(a, b, {});
  FakeFabric::default_memory_limit = ~std::size_t(0);
  EXPECT_FALSE(pair.rdma(0).connected(FakeRdmaPair::kPeer));
  EXPECT_TRUE(pair.has_sockets(0) && pair.has_sockets(1));
  EXPECT_EQ(pair.why_not().code(), Code::unsupported);
  EXPECT_THAT(pair.why_not().text(), AllOf(HasSubstr("ibv_reg_mr"), HasSubstr("ulimit -l")));
}

// Queue pairs fail in the middle of everything, again and again; nothing is lost, doubled or damaged.
void breaks_and_resumes(int rails, bool registered, std::uint64_t seed) {
  Two two({.queues = 2, .resumable = true, .segment_bytes = 16 << 10, .landing_bytes = 300 << 10}, rails, registered);
  std::mt19937_64 random(seed);
  for (std::uint32_t round = 0; round < 6; ++round) {
    for (std::uint32_t k = 0; k < 12; ++k) {
      const MessageKey key{1 + k % 3, round, k};
      const std::uint64_t bytes = k % 3 == 0 ? random() % 900000 : random() % 9000;
      two.a.send(key, bytes);
      two.b.send(key, bytes);
      two.a.receive(key, bytes);
      two.b.receive(key, bytes);
    }
    int left = 3;
    ASSERT_TRUE(two.finish([&] {
      if (left > 0 && !two.pair->fabric().about_to_fail()) two.pair->fabric().fail_after(random() % 25, IBV_WC_RETRY_EXC_ERR), --left;
      if (!two.pair->rdma(0).broken(7) && !two.pair->rdma(1).broken(7)) return;
      two.pair->fabric().calm();          // the new queue pairs shall have a chance
      ASSERT_TRUE(two.pair->join(true)) << two.pair->why_not().text();
    })) << "round " << round;
  }
  EXPECT_GE(two.pair->fabric().failures(), 6u);
  for (int i = 0; i < 1000; ++i) two.step();
  EXPECT_EQ(two.pair->rdma(0).debts() + two.pair->rdma(1).debts(), "");
  EXPECT_FALSE(two.a.lost || two.b.lost);
}
TEST(RdmaFailures, OneRailBreaksAndResumes) { breaks_and_resumes(1, false, 3); }
TEST(RdmaFailures, OneRailBreaksAndResumesInRegisteredMemory) { breaks_and_resumes(1, true, 4); }
TEST(RdmaFailures, TwoRailsBreakAndResume) { breaks_and_resumes(2, true, 5); }

// Rejoining itself is disturbed: either side begins first, queue pairs fail and links go in the middle of it, and it is tried again.
void rejoins_under_fire(int rails, int queues, std::uint64_t seed) {
  Two two({.queues = queues, .resumable = true, .segment_bytes = 16 << 10, .landing_bytes = 300 << 10}, rails, seed % 2 != 0);
  std::mt19937_64 random(seed);
  FakeRdmaPair& pair = *two.pair;
  int tries = 0;
  const auto rejoin = [&] {
    const int first = int(random() % 2);
    if (random() % 2) pair.fabric().fail_after(unsigned(random() % 6), IBV_WC_RETRY_EXC_ERR);
    const bool link = random() % 4 == 0;
    if (link) pair.fabric().set_link(0, false);
    pair.make_sockets();
    pair.begin_side(first, true);
    for (auto steps = random() % 20; steps > 0; --steps) pair.step_side(first);
    pair.begin_side(1 - first, true);
    for (auto until = random() % 40; !pair.joined(); pair.step_side(int(random() % 2)))
      if (link && until-- == 0) pair.fabric().set_link(0, true);
    pair.fabric().set_link(0, true);
    return pair.outcome();
  };
  for (std::uint32_t round = 0; round < 8; ++round) {
    for (std::uint32_t k = 0; k < 12; ++k) {
      const MessageKey key{1 + k % 3, round, k};
      const std::uint64_t bytes = k % 3 == 0 ? random() % 900000 : random() % 9000;
      two.a.send(key, bytes);
      two.b.send(key, bytes);
      two.a.receive(key, bytes);
      two.b.receive(key, bytes);
    }
    int left = 2;
    ASSERT_TRUE(two.finish([&] {
      if (left > 0 && !pair.fabric().about_to_fail()) pair.fabric().fail_after(unsigned(random() % 25), IBV_WC_RETRY_EXC_ERR), --left;
      if (!pair.rdma(0).broken(7) && !pair.rdma(1).broken(7)) return;
      rejoin() ? tries = 0 : ++tries;
      ASSERT_LT(tries, 12) << pair.why_not().text();
    })) << "round " << round << ": " << pair.why_not().text();
  }
  EXPECT_FALSE(two.a.lost || two.b.lost);
}
TEST(RdmaFailures, RejoiningIsDisturbed) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    rejoins_under_fire(1 + int(seed % 2), 1 + int(seed / 2 % 2), seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(RdmaFailures, ARailThatStaysDeadIsLeftOut) {
  Two two({.resumable = true}, 2, true);
  two.send(1, 5000000);
  two.pair->fabric().fail_after(10, IBV_WC_RETRY_EXC_ERR);
  for (int i = 0; i < 1000 && two.pair->fabric().failures() == 0; ++i) two.step();
  two.pair->fabric().set_port(1, false);
  for (int i = 0; i < 1000 && !two.pair->rdma(0).broken(7); ++i) two.step();
  ASSERT_TRUE(two.pair->join(true)) << two.pair->why_not().text();
  EXPECT_THAT(two.pair->connection(0).describe(), AllOf(HasSubstr("fake0:1"), testing::Not(HasSubstr("fake1:1"))));
  ASSERT_TRUE(two.finish());
}

// No rail is left: the pair goes on over a socket in the middle of its messages, breaks there, too, and comes back once a rail works.
void goes_over_a_socket(bool registered, std::uint64_t seed) {
  Two two({.resumable = true, .socket_after = Nanoseconds(0), .segment_bytes = 16 << 10, .landing_bytes = 300 << 10}, 2, registered);
  std::mt19937_64 random(seed);
  FakeRdmaPair& pair = *two.pair;
  for (std::uint32_t round = 0; round < 9; ++round) {
    for (std::uint32_t k = 0; k < 12; ++k) {
      const MessageKey key{1 + k % 3, round, k};
      const std::uint64_t bytes = k % 3 == 0 ? random() % 900000 : random() % 9000;
      two.a.send(key, bytes);
      two.b.send(key, bytes);
      two.a.receive(key, bytes);
      two.b.receive(key, bytes);
    }
    const bool dead = round % 3 < 2;          // twice a socket, then the devices again
    for (const int rail : {0, 1}) pair.fabric().set_port(rail, !dead);
    for (auto steps = random() % 30; steps > 0; --steps) two.step();
    ASSERT_TRUE(pair.join(true)) << pair.why_not().text();
    for (auto steps = random() % 30; steps > 0; --steps) two.step();
    ASSERT_TRUE(two.finish([&] {
      if (!pair.rdma(0).broken(7) && !pair.rdma(1).broken(7)) return;
      ASSERT_TRUE(pair.join(true)) << pair.why_not().text();
    })) << "round " << round;
    EXPECT_EQ(pair.connection(0).describe().find("over a socket") != std::string::npos, dead) << pair.connection(0).describe();
  }
  EXPECT_GT(two.counters(0).socket_bytes_out, 1000000u);
  EXPECT_GT(two.counters(0).bytes_out, two.counters(0).socket_bytes_out + 1000000u);
  EXPECT_FALSE(two.a.lost || two.b.lost);
}
TEST(RdmaFailures, WithNoRailLeftASocketTakesOver) { goes_over_a_socket(false, 1); }
TEST(RdmaFailures, WithNoRailLeftASocketTakesOverInRegisteredMemory) { goes_over_a_socket(true, 2); }

TEST(RdmaFailures, ASocketTakesOverOnlyWhereBothAllowIt) {
  Two two({.resumable = true}, 1);
  two.send(1, 5000000);
  two.step();
  two.pair->fabric().set_port(0, false);
  EXPECT_FALSE(two.pair->join(true));
  EXPECT_TRUE(two.pair->rdma(0).broken(7) && two.pair->rdma(1).broken(7));
  two.pair->fabric().set_port(0, true);
  ASSERT_TRUE(two.pair->join(true)) << two.pair->why_not().text();
  ASSERT_TRUE(two.finish());
}

// The verdict of an operation gives the user's memory back, whatever the peer still writes; others go on.
TEST(RdmaFailures, NothingIsWrittenIntoMemoryThatWasGivenBack) {
  Two two({.resumable = true}, 1, true);
  two.send(1, 5000000);
  for (int i = 0; i < 6; ++i) two.step();
  two.pair->rdma(1).abandon(1);
  EXPECT_GT(two.pair->fabric().delivered_into(1), 1u);
  EXPECT_FALSE(two.b.received({1, 1, 0}));
  two.pair->fabric().deliver();
  EXPECT_EQ(two.pair->fabric().delivered_into(1), 0u);
  for (int i = 0; i < 1000 && !two.pair->rdma(1).broken(7); ++i) two.pair->step();
  two.pair->rdma(0).abandon(1);
  ASSERT_TRUE(two.pair->join(true)) << two.pair->why_not().text();
  two.b.receive({2, 1, 0}, 300000);
  two.a.send({2, 1, 0}, 300000);
  for (int i = 0; i < 20000 && !two.b.received({2, 1, 0}); ++i) two.step();
  EXPECT_TRUE(two.b.received({2, 1, 0}));
}

}  // namespace
}  // namespace tutti::tests
#endif
