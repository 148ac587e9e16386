// The real loop on real sockets: callbacks that destroy what calls them, deadlines, wake-ups across threads, addresses,
// descriptors, errors.
#include "core/posix_loop.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using StreamPtr = std::unique_ptr<Stream>;

// Runs the loop until `done` holds; false after 10 s.
template <class Done>
bool run_until(Loop& loop, Done done) {
  TimePoint end = loop.now() + 10s;
  while (!done()) {
    if (loop.now() > end) return false;
    loop.run(100ms);
  }
  return true;
}

struct Connected {
  StreamPtr client, server;
  std::unique_ptr<Acceptor> acceptor;
};

Connected connected_pair(Loop& loop, const std::string& address) {
  Connected out;
  auto acceptor = loop.network().listen(address, [&](StreamPtr stream) { out.server = std::move(stream); });
  EXPECT_TRUE(acceptor.ok()) << acceptor.status().to_string();
  out.acceptor = std::move(*acceptor);
  auto handle = loop.network().connect(out.acceptor->address(), [&](Result<StreamPtr> stream) {
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    out.client = std::move(*stream);
  });
  EXPECT_TRUE(run_until(loop, [&] { return out.client && out.server; }));
  return out;
}

std::string unix_name(Loop& loop) {
  return "@tutti-test-" + std::to_string(::getpid()) + "-" + std::to_string(loop.random());
}

IoResult write_text(Stream& stream, const std::string& text) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  return stream.write(std::span<const iovec>(&part, 1));
}

std::string read_text(Stream& stream) {
  char buffer[256];
  auto got = stream.read(std::as_writable_bytes(std::span(buffer)));
  return std::string(buffer, got.bytes);
}

class Sockets : public ::testing::TestWithParam<const char*> {
 protected:
  std::string address() { return std::string(GetParam()) == "unix" ? unix_name(*loop_) : GetParam(); }
  std::unique_ptr<PosixLoop> loop_ = make_posix_loop();
};
INSTANTIATE_TEST_SUITE_P(All, Sockets, ::testing::Values("127.0.0.1:0", "[::1]:0", "unix"));

TEST_P(Sockets, carry_bytes_both_ways_and_tell_the_end) {
  auto pair = connected_pair(*loop_, address());
  EXPECT_EQ(write_text(*pair.client, "ping").bytes, 4u);
  bool readable = false;
  pair.server->when_readable([&] { readable = true; });
  ASSERT_TRUE(run_until(*loop_, [&] { return readable; }));
  EXPECT_EQ(read_text(*pair.server), "ping");
  EXPECT_EQ(write_text(*pair.server, "pong").bytes, 4u);
  pair.server.reset();
  std::string got;
  bool closed = false;
  pair.client->when_readable([&] {
    char buffer[16];
    auto io = pair.client->read(std::as_writable_bytes(std::span(buffer)));
    EXPECT_TRUE(io.status.ok()) << io.status.to_string();
    got.append(buffer, io.bytes);
    if (io.closed) closed = true, pair.client->when_readable({});
  });
  ASSERT_TRUE(run_until(*loop_, [&] { return closed; }));
  EXPECT_EQ(got, "pong");
}

TEST_P(Sockets, reading_nothing_would_block_and_says_so) {
  auto pair = connected_pair(*loop_, address());
  char buffer[4];
  auto io = pair.client->read(std::as_writable_bytes(std::span(buffer)));
  EXPECT_EQ(io.bytes, 0u);
  EXPECT_FALSE(io.closed);
  EXPECT_TRUE(io.status.ok());
}

TEST_P(Sockets, a_full_stream_takes_part_and_becomes_writable_again) {
  auto pair = connected_pair(*loop_, address());
  const std::string block(1 << 20, 'x');
  std::size_t sent = 0;
  for (;;) {
    auto io = write_text(*pair.client, block);
    ASSERT_TRUE(io.status.ok());
    if (io.bytes == 0) break;
    sent += io.bytes;
    ASSERT_LT(sent, std::size_t(1) << 30);
  }
  bool writable = false;
  pair.client->when_writable([&] { writable = true; });
  loop_->run(0ns);
  EXPECT_FALSE(writable);
  std::size_t received = 0;
  std::vector<std::byte> into(1 << 20);
  pair.server->when_readable([&] { received += pair.server->read(into).bytes; });
  ASSERT_TRUE(run_until(*loop_, [&] { return writable && received == sent; }));
}

TEST_P(Sockets, a_callback_may_destroy_its_own_stream_and_others) {
  auto first = connected_pair(*loop_, address());
  auto second = connected_pair(*loop_, address());
  int calls = 0;
  std::string token(64, 't');  // captured by value: alive while the callback runs, though the stream is not
  auto destroy_all = [&, token] {
    ++calls;
    first.server.reset();
    second.server.reset();
    EXPECT_EQ(token, std::string(64, 't'));
  };
  first.server->when_readable(destroy_all);
  second.server->when_readable(destroy_all);
  write_text(*first.client, "a");
  write_text(*second.client, "b");
  ASSERT_TRUE(run_until(*loop_, [&] { return calls > 0; }));
  loop_->run(0ns);
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(first.server || second.server);
}

TEST_P(Sockets, a_callback_may_replace_or_unset_itself) {
  auto pair = connected_pair(*loop_, address());
  int first = 0, second = 0;
  pair.server->when_readable([&] {
    ++first;
    pair.server->when_readable([&] {
      ++second;
      pair.server->when_readable({});
    });
  });
  write_text(*pair.client, "x");
  ASSERT_TRUE(run_until(*loop_, [&] { return second == 1; }));
  for (int i = 0; i < 5; ++i) loop_->run(0ns);  // still readable, but nobody asks
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
  pair.server->when_readable([&] { ++second; });
  ASSERT_TRUE(run_until(*loop_, [&] { return second == 2; }));
}

TEST_P(Sockets, level_triggered_until_read) {
  auto pair = connected_pair(*loop_, address());
  int calls = 0;
  pair.server->when_readable([&] { ++calls; });
  write_text(*pair.client, "x");
  ASSERT_TRUE(run_until(*loop_, [&] { return calls >= 3; }));
}

TEST_P(Sockets, a_stream_may_outlive_the_loop) {
  auto pair = connected_pair(*loop_, address());
  pair.client->when_readable([] { FAIL(); });
  pair.acceptor.reset();
  loop_.reset();
  EXPECT_EQ(write_text(*pair.client, "late").bytes, 4u);
  EXPECT_EQ(read_text(*pair.server), "late");
}

TEST_P(Sockets, an_acceptor_may_be_destroyed_by_its_callback) {
  std::unique_ptr<Acceptor> acceptor;
  StreamPtr server;
  auto listening = loop_->network().listen(address(), [&](StreamPtr stream) {
    server = std::move(stream);
    acceptor.reset();
  });
  acceptor = std::move(*listening);
  std::string where = acceptor->address();
  std::vector<StreamPtr> clients;
  std::vector<std::shared_ptr<void>> handles;
  int answers = 0;
  for (int i = 0; i < 3; ++i)
    handles.push_back(loop_->network().connect(where, [&](Result<StreamPtr> stream) {
      ++answers;
      if (stream) clients.push_back(std::move(*stream));
    }));
  ASSERT_TRUE(run_until(*loop_, [&] { return answers == 3 && server; }));
  EXPECT_FALSE(acceptor);
}

TEST_P(Sockets, writing_to_a_dead_peer_is_a_status_and_no_signal) {
  auto pair = connected_pair(*loop_, address());
  pair.server.reset();
  IoResult io;
  ASSERT_TRUE(run_until(*loop_, [&] { return !(io = write_text(*pair.client, "x")).status.ok(); }));
  EXPECT_EQ(io.status.code(), Code::network);
  EXPECT_THAT(io.status.text(), HasSubstr("write to"));
}

TEST(UnixSockets, pass_descriptors) {
  auto loop = make_posix_loop();
  auto pair = connected_pair(*loop, unix_name(*loop));
  EXPECT_TRUE(pair.server->receive_descriptors().value().empty());
  int memory = ::memfd_create("tutti-test", MFD_CLOEXEC);
  ASSERT_EQ(::write(memory, "shared", 6), 6);
  const int descriptors[] = {memory, loop->doorbell_descriptor()};
  ASSERT_TRUE(pair.client->send_descriptors(descriptors).ok());
  ::close(memory);
  std::vector<int> got;
  ASSERT_TRUE(run_until(*loop, [&] { return !(got = pair.server->receive_descriptors().value()).empty(); }));
  ASSERT_EQ(got.size(), 2u);
  char buffer[6];
  EXPECT_EQ(::pread(got[0], buffer, 6, 0), 6);
  EXPECT_EQ(std::string(buffer, 6), "shared");
  EXPECT_NE(::fcntl(got[0], F_GETFD) & FD_CLOEXEC, 0);
  // The other one is the loop's doorbell: ringing it ends a wait, as another process would.
  std::uint64_t one = 1;
  ASSERT_EQ(::write(got[1], &one, sizeof one), ssize_t(sizeof one));
  TimePoint start = loop->now();
  EXPECT_FALSE(loop->run(10s));
  EXPECT_LT(loop->now() - start, 5s);
  for (int descriptor : got) ::close(descriptor);
  pair.client.reset();
  EXPECT_EQ(pair.server->receive_descriptors().status().code(), Code::network);
}

TEST(UnixSockets, tcp_cannot_pass_descriptors) {
  auto loop = make_posix_loop();
  auto pair = connected_pair(*loop, "127.0.0.1:0");
  const int descriptors[] = {0};
  EXPECT_EQ(pair.client->send_descriptors(descriptors).code(), Code::unsupported);
  EXPECT_EQ(pair.server->receive_descriptors().status().code(), Code::unsupported);
}

Status connect_failure(Loop& loop, const std::string& address) {
  Status out;
  bool answered = false, inside = true;
  auto handle = loop.network().connect(address, [&](Result<StreamPtr> stream) {
    EXPECT_FALSE(inside) << "the callback must come from run()";
    answered = true;
    out = stream.status();
  });
  inside = false;
  EXPECT_TRUE(run_until(loop, [&] { return answered; }));
  return out;
}

TEST(Connect, refusals_name_the_address_and_the_reason) {
  auto loop = make_posix_loop();
  auto acceptor = loop->network().listen("127.0.0.1:0", [](StreamPtr) {});
  std::string address = (*acceptor)->address();
  acceptor->reset();
  Status refused = connect_failure(*loop, address);
  EXPECT_EQ(refused.code(), Code::network);
  EXPECT_EQ(refused.text(), "connect to " + address + ": connection refused (nothing listens there)");
  EXPECT_THAT(connect_failure(*loop, unix_name(*loop)).text(), HasSubstr("nothing listens there"));
  EXPECT_EQ(connect_failure(*loop, "no-port").code(), Code::invalid_argument);
}

TEST(Connect, a_dropped_handle_never_calls_back) {
  auto loop = make_posix_loop();
  auto acceptor = loop->network().listen("127.0.0.1:0", [](StreamPtr) {});
  auto handle = loop->network().connect((*acceptor)->address(), [](Result<StreamPtr>) { FAIL(); });
  handle.reset();
  std::shared_ptr<void> second = loop->network().connect((*acceptor)->address(), [](Result<StreamPtr>) { FAIL(); });
  loop->post([&] { second.reset(); });
  for (int i = 0; i < 5; ++i) loop->run(1ms);
}

TEST(Connect, a_callback_may_drop_its_handle) {
  auto loop = make_posix_loop();
  auto acceptor = loop->network().listen("127.0.0.1:0", [](StreamPtr) {});
  std::shared_ptr<void> handle;
  bool connected = false;
  handle = loop->network().connect((*acceptor)->address(), [&](Result<StreamPtr> stream) {
    handle.reset();
    connected = stream.ok();
  });
  EXPECT_TRUE(run_until(*loop, [&] { return connected; }));
}

TEST(Listen, a_taken_port_names_its_holder) {
  auto loop = make_posix_loop();
  auto first = loop->network().listen("127.0.0.1:0", [](StreamPtr) {});
  auto second = loop->network().listen((*first)->address(), [](StreamPtr) {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::network);
  EXPECT_THAT(second.status().text(), HasSubstr((*first)->address()));
  EXPECT_THAT(second.status().text(), HasSubstr("held by pid " + std::to_string(::getpid())));
}

TEST(Listen, a_port_range_is_obeyed_and_its_exhaustion_told) {
  auto plain = make_posix_loop();
  auto probe = plain->network().listen("127.0.0.1:0", [](StreamPtr) {});
  int port = (*probe)->port();
  Settings settings;
  settings.port_range = std::to_string(port);
  auto loop = make_posix_loop(settings);
  auto refused = loop->network().listen("127.0.0.1:0", [](StreamPtr) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().text(), HasSubstr("TUTTI_PORT_RANGE=" + std::to_string(port)));
  probe->reset();
  auto granted = loop->network().listen("127.0.0.1:0", [](StreamPtr) {});
  ASSERT_TRUE(granted.ok()) << granted.status().to_string();
  EXPECT_EQ((*granted)->port(), port);
}

TEST(Deadlines, run_in_order_once_and_can_be_dropped) {
  auto loop = make_posix_loop();
  std::vector<int> order;
  TimePoint start = loop->now();
  auto c = loop->at(start + 3ms, [&] { order.push_back(3); });
  auto a = loop->at(start + 1ms, [&] { order.push_back(1); });
  auto b = loop->at(start + 2ms, [&] { order.push_back(2); });
  auto dropped = loop->at(start + 2ms, [&] { FAIL(); });
  dropped.reset();
  ASSERT_TRUE(run_until(*loop, [&] { return order.size() == 3; }));
  EXPECT_GE(loop->now() - start, 3ms);
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
  EXPECT_EQ(loop->until_next_deadline(), Nanoseconds(-1));
}

TEST(Deadlines, may_drop_themselves_each_other_and_add_due_ones_without_starving_the_loop) {
  auto loop = make_posix_loop();
  std::shared_ptr<void> self, other, again;
  int calls = 0;
  self = loop->at(loop->now(), [&] {
    self.reset();
    other.reset();
    ++calls;
  });
  other = loop->at(loop->now(), [&] { FAIL(); });
  std::function<void()> renew = [&] {
    ++calls;
    again = loop->at(TimePoint(), renew);
  };
  again = loop->at(loop->now(), renew);
  loop->run(0ns);
  EXPECT_EQ(calls, 2);
  loop->run(0ns);
  EXPECT_EQ(calls, 3);
}

TEST(Run, posted_callbacks_run_soon_and_in_order) {
  auto loop = make_posix_loop();
  std::vector<int> order;
  loop->post([&] {
    order.push_back(1);
    loop->post([&] { order.push_back(3); });
  });
  loop->post([&] { order.push_back(2); });
  EXPECT_EQ(loop->until_next_deadline(), Nanoseconds(0));
  EXPECT_TRUE(loop->run(-1ns));
  EXPECT_THAT(order, ElementsAre(1, 2));
  EXPECT_TRUE(loop->run(-1ns));
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

TEST(Run, waits_no_longer_than_asked) {
  auto loop = make_posix_loop();
  TimePoint start = loop->now();
  EXPECT_FALSE(loop->run(2ms));
  EXPECT_GE(loop->now() - start, 2ms);
  EXPECT_LT(loop->now() - start, 2s);
}

TEST(Wake, ends_a_wait_from_another_thread_and_is_not_lost_beforehand) {
  auto loop = make_posix_loop();
  loop->wake();
  loop->wake();
  EXPECT_FALSE(loop->run(-1ns));  // would hang if lost
  for (int i = 0; i < 200; ++i) {
    std::thread other([&] { loop->wake(); });
    EXPECT_FALSE(loop->run(-1ns));
    other.join();
  }
}

TEST(Wait, sees_what_run_would_dispatch_and_leaves_it_there) {
  auto loop = make_posix_loop();
  auto pair = connected_pair(*loop, "127.0.0.1:0");
  int calls = 0;
  pair.server->when_readable([&] {
    ++calls;
    read_text(*pair.server);
  });
  write_text(*pair.client, "x");
  loop->wait(-1ns);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(loop->run(0ns));
  EXPECT_EQ(calls, 1);
  std::thread other([&] { loop->wake(); });
  loop->wait(-1ns);
  other.join();
  pollfd nested{loop->descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&nested, 1, 0), 1);
  loop->run(0ns);
  EXPECT_EQ(::poll(&nested, 1, 0), 0);
}

TEST(Resolve, numeric_addresses_stay_and_names_are_looked_up) {
  auto loop = make_posix_loop();
  EXPECT_THAT(loop->network().resolve("10.0.0.1:4000").value(), ElementsAre("10.0.0.1:4000"));
  EXPECT_THAT(loop->network().resolve("[::1]:4000").value(), ElementsAre("[::1]:4000"));
  EXPECT_THAT(loop->network().resolve("@name").value(), ElementsAre("@name"));
  auto local = loop->network().resolve("localhost:4000");
  ASSERT_TRUE(local.ok()) << local.status().to_string();
  EXPECT_THAT(*local, ::testing::Contains(::testing::AnyOf("127.0.0.1:4000", "[::1]:4000")));
  EXPECT_EQ(loop->network().resolve("localhost").status().code(), Code::invalid_argument);
  auto nobody = loop->network().resolve("no-such-host.invalid:1");
  ASSERT_FALSE(nobody.ok());
  EXPECT_THAT(nobody.status().text(), HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace tutti
