// Worlds of ranks as threads, each with its own loop, over the real network: that they come up complete, and that what
// keeps them from it is told to all, with names.
#include "comm/bootstrap.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <latch>
#include <numeric>
#include <thread>

#include "comm/unique_id.h"
#include "core/posix_loop.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using StreamPtr = std::unique_ptr<Stream>;
using Joined = Result<std::unique_ptr<World>>;

std::string fresh_name() {
  auto loop = make_posix_loop();
  return fmt::format("@tutti-test-{}-{:x}", ::getpid(), loop->random());
}

// Was free a moment ago; rank 0 takes the first free one of several from there on.
int free_port() {
  auto loop = make_posix_loop();
  auto acceptor = loop->network().listen("127.0.0.1:0", [](StreamPtr) {});
  return (*acceptor)->port();
}

JoinRequest request(int rank, int rank_count, const std::string& address) {
  JoinRequest out;
  out.rank = rank;
  out.rank_count = rank_count;
  out.addresses = {address};
  out.key = make_job_key("test");
  out.settings.init_timeout = 60s;
  return out;
}

std::vector<JoinRequest> requests(int rank_count, const std::string& address) {
  std::vector<JoinRequest> out;
  for (int rank = 0; rank < rank_count; ++rank) out.push_back(request(rank, rank_count, address));
  return out;
}

Joined join_on(Loop& loop, const JoinRequest& request) {
  auto task = join(loop, request);
  task.start();
  return run_until_done(loop, task);
}

// Each request on a thread of its own; then `then`, if the world came up, on that thread. The Statuses by request.
using Then = std::function<void(Loop&, World&)>;
std::vector<Status> run_all(const std::vector<JoinRequest>& all, Then then = {}) {
  std::vector<Status> out(all.size());
  std::vector<std::thread> threads;
  std::latch ended(std::ptrdiff_t(all.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      auto loop = make_posix_loop();
      auto world = join_on(*loop, all[i]);
      out[i] = world.status();
      if (world && then) then(*loop, **world);
      ended.arrive_and_wait();  // worlds go together
    });
  }
  for (auto& thread : threads) thread.join();
  return out;
}

std::vector<std::string> texts(const std::vector<Status>& all) {
  std::vector<std::string> out;
  for (const Status& status : all) out.push_back(status.to_string());
  return out;
}

template <class Done>
bool run_until(Loop& loop, Done done) {
  TimePoint end = loop.now() + 20s;
  while (!done()) {
    if (loop.now() > end) return false;
    loop.run(100ms);
  }
  return true;
}

class Worlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Worlds, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 13, 64));

TEST_P(Worlds, every_rank_knows_every_rank) {
  const int n = GetParam();
  std::vector<std::vector<RankInfo>> tables(static_cast<std::size_t>(n));
  auto statuses = run_all(requests(n, fresh_name()), [&](Loop&, World& world) {
    tables[std::size_t(world.rank())] = world.ranks();
    EXPECT_EQ(world.local_rank(), world.rank());
    EXPECT_EQ(world.local_rank_count(), n);
    EXPECT_EQ(world.control().neighbours(), control_neighbours(world.rank(), n));
  });
  EXPECT_THAT(texts(statuses), Each("ok"));
  for (int rank = 0; rank < n; ++rank) {
    const auto& table = tables[std::size_t(rank)];
    ASSERT_EQ(table.size(), std::size_t(n));
    EXPECT_EQ(table, tables[0]) << "rank " << rank;
    EXPECT_EQ(table[std::size_t(rank)].rank, rank);
    EXPECT_EQ(table[std::size_t(rank)].pid, ::getpid());
  }
}

TEST_P(Worlds, spread_messages_reach_every_rank_once) {
  const int n = GetParam();
  std::latch all_heard(n);
  auto statuses = run_all(requests(n, fresh_name()), [&](Loop& loop, World& world) {
    std::vector<int> heard(static_cast<std::size_t>(n));
    int count = 0;
    world.control().on_message([&](int from, std::span<const std::byte> message) {
      EXPECT_EQ(message.size(), std::size_t(from + 1));
      ++heard[std::size_t(from)];
      ++count;
    });
    std::vector<std::byte> message(std::size_t(world.rank() + 1));
    EXPECT_TRUE(world.control().spread(message).ok());
    EXPECT_TRUE(run_until(loop, [&] { return count >= n - 1; })) << "rank " << world.rank() << " heard " << count;
    heard[std::size_t(world.rank())] += 1;
    EXPECT_THAT(heard, Each(1));
    // Others may still need this rank to pass messages on.
    std::promise<void> passed;
    std::thread waiter([&] {
      all_heard.arrive_and_wait();
      passed.set_value();
      loop.wake();
    });
    auto done = passed.get_future();
    while (done.wait_for(0s) != std::future_status::ready) loop.run(1s);
    waiter.join();
  });
  EXPECT_THAT(texts(statuses), Each("ok"));
}

TEST(Bootstrap, comes_up_over_tcp_on_a_port) {
  auto all = requests(5, fmt::format("127.0.0.1:{}", free_port()));
  for (auto& r : all) r.ports = 16;
  EXPECT_THAT(texts(run_all(all)), Each("ok"));
}

TEST(Bootstrap, a_host_name_will_do) {
  auto all = requests(3, fmt::format("localhost:{}", free_port()));
  for (auto& r : all) r.ports = 16;
  EXPECT_THAT(texts(run_all(all)), Each("ok"));
}

TEST(Bootstrap, two_hundred_and_fifty_six_ranks_come_up) {
  auto start = std::chrono::steady_clock::now();
  std::atomic<int> complete{0};
  auto statuses =
      run_all(requests(256, fresh_name()), [&](Loop&, World& world) { complete += world.ranks()[255].rank == 255; });
  EXPECT_THAT(texts(statuses), Each("ok"));
  EXPECT_EQ(complete, 256);
  RecordProperty("seconds",
                 std::to_string(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
}

TEST(Bootstrap, by_unique_id_with_the_maker_elsewhere) {
  auto loop = make_posix_loop();
  auto meeting = open_meeting(*loop);
  ASSERT_TRUE(meeting.ok()) << meeting.status().to_string();
  std::vector<JoinRequest> all;
  Settings settings;
  for (int rank = 0; rank < 4; ++rank) all.push_back(*request_from(meeting->id, rank, 4, settings));
  auto statuses = std::async(std::launch::async, [&] { return run_all(all); });
  EXPECT_TRUE(run_until(*loop, [&] { return meeting->point->finished(); }));
  meeting->point.reset();
  EXPECT_THAT(texts(statuses.get()), Each("ok"));
}

TEST(Bootstrap, a_single_rank_needs_no_network_but_ends_a_meeting_that_was_opened_for_it) {
  auto loop = make_posix_loop();
  EXPECT_TRUE(join_on(*loop, request(0, 1, "")).ok());
  auto meeting = open_meeting(*loop);
  EXPECT_TRUE(join_on(*loop, *request_from(meeting->id, 0, 1, {})).ok());
  EXPECT_TRUE(run_until(*loop, [&] { return meeting->point->finished(); }));
}

TEST(Bootstrap, ranks_may_come_before_the_meeting_point) {
  const std::string name = fresh_name();
  std::promise<Status> first;
  std::thread early([&] {
    auto loop = make_posix_loop();
    auto r = request(1, 2, name);
    auto task = join(*loop, r);
    task.start();
    for (int i = 0; i < 20; ++i) loop->run(1ms);  // several rounds of being refused
    auto world = run_until_done(*loop, task);
    first.set_value(world.status());
  });
  auto refused = first.get_future();
  EXPECT_EQ(refused.wait_for(20ms), std::future_status::timeout);
  auto loop = make_posix_loop();
  EXPECT_TRUE(join_on(*loop, request(0, 2, name)).ok());
  EXPECT_TRUE(refused.get().ok());
  early.join();
}

TEST(Bootstrap, two_processes_of_one_rank_are_told_of_each_other) {
  auto all = requests(4, fresh_name());
  all[3].rank = 2;
  auto statuses = run_all(all);
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
    EXPECT_EQ(status.culprit(), 2);
    EXPECT_THAT(status.text(), HasSubstr("rank 2 was started twice"));
    EXPECT_THAT(status.text(), HasSubstr(fmt::format("pid {}", ::getpid())));
  }
}

TEST(Bootstrap, missing_ranks_are_named_to_those_who_came) {
  auto all = requests(4, fresh_name());
  all.erase(all.begin() + 2);
  for (auto& r : all) r.settings.init_timeout = 300ms;
  auto statuses = run_all(all);
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
    EXPECT_EQ(status.culprit(), 2);
    EXPECT_THAT(status.text(), HasSubstr("3 of 4 ranks joined within"));
    EXPECT_THAT(status.text(), HasSubstr("missing: rank 2"));
  }
}

TEST(Bootstrap, a_missing_rank_0_is_named_with_the_address_and_what_came_back) {
  auto r = request(1, 2, fmt::format("127.0.0.1:{}", free_port()));
  r.settings.init_timeout = 200ms;
  auto loop = make_posix_loop();
  Status status = join_on(*loop, r).status();
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_EQ(status.culprit(), 0);
  EXPECT_THAT(status.text(), HasSubstr(r.addresses[0]));
  EXPECT_THAT(status.text(), HasSubstr("nothing listens there"));
}

TEST(Bootstrap, another_key_stays_outside_and_is_mentioned) {
  auto all = requests(3, fresh_name());
  all[1].key = make_job_key("wrong");
  for (auto& r : all) r.settings.init_timeout = 400ms;
  auto statuses = run_all(all);
  EXPECT_THAT(statuses[0].text(), HasSubstr("missing: rank 1"));
  EXPECT_THAT(statuses[0].text(), HasSubstr("turned away"));
  EXPECT_THAT(statuses[2].text(), HasSubstr("missing: rank 1"));
  EXPECT_EQ(statuses[1].code(), Code::timeout);
  EXPECT_THAT(statuses[1].text(), HasSubstr("job key"));
}

TEST(Bootstrap, other_sizes_are_told_to_all) {
  auto all = requests(4, fresh_name());
  all[3].rank_count = 8;
  for (const Status& status : run_all(all)) {
    EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
    EXPECT_THAT(status.text(), HasSubstr("rank 3"));
    EXPECT_THAT(status.text(), AnyOf(HasSubstr("with 8 ranks"), HasSubstr("with 8")));
    EXPECT_THAT(status.text(), AnyOf(HasSubstr("with 4 ranks"), HasSubstr("with 4")));
  }
}

TEST(Bootstrap, other_settings_are_told_to_all_with_the_difference) {
  auto all = requests(3, fresh_name());
  for (auto& r : all) r.settings.segment = 65536;
  all[1].settings.order = "canonical";
  all[1].settings.log = "debug";  // not shared
  for (const Status& status : run_all(all)) {
    EXPECT_EQ(status.code(), Code::mismatch) << status.to_string();
    EXPECT_THAT(status.text(), HasSubstr("TUTTI_ORDER"));
    EXPECT_THAT(status.text(), HasSubstr("canonical on rank 1"));
    EXPECT_THAT(status.text(), HasSubstr("at its default"));
    EXPECT_THAT(status.text(), Not(HasSubstr("TUTTI_SEGMENT")));
    EXPECT_THAT(status.text(), Not(HasSubstr("TUTTI_LOG")));
  }
}

TEST(Bootstrap, a_taken_port_is_an_error_of_rank_0_that_names_the_holder_unless_others_may_be_tried) {
  auto loop = make_posix_loop();
  // Holds the port on every address, as a store of torchrun does, and swallows what it is sent.
  std::vector<StreamPtr> swallowed;
  auto holder = loop->network().listen("0.0.0.0:0", [&](StreamPtr s) { swallowed.push_back(std::move(s)); });
  ASSERT_TRUE(holder.ok());
  const std::string address = fmt::format("127.0.0.1:{}", (*holder)->port());
  Status status = join_on(*loop, request(0, 2, address)).status();
  EXPECT_EQ(status.code(), Code::network);
  EXPECT_THAT(status.text(), HasSubstr(address));
  EXPECT_THAT(status.text(), HasSubstr(fmt::format("held by pid {}", ::getpid())));

  auto all = requests(4, address);
  for (auto& r : all) r.ports = 16;
  auto statuses = std::async(std::launch::async, [&] { return run_all(all); });
  while (statuses.wait_for(0s) != std::future_status::ready) loop->run(10ms);
  EXPECT_THAT(texts(statuses.get()), Each("ok"));
  EXPECT_FALSE(swallowed.empty());
}

TEST(Bootstrap, strangers_at_the_door_change_nothing) {
  const int port = free_port();
  std::atomic<bool> stop{false};
  std::thread scanner([&] {
    auto loop = make_posix_loop();
    const std::string garbage = "GET / HTTP/1.0\r\n\r\n";
    std::vector<StreamPtr> idle;
    for (int i = 0; !stop; ++i) {
      const std::string address = fmt::format("127.0.0.1:{}", port + i % 4);
      auto task = connect(*loop, address, loop->now() + 1s);
      task.start();
      auto stream = run_until_done(*loop, task);
      if (!stream) continue;
      iovec part{const_cast<char*>(garbage.data()), garbage.size()};
      if (i % 3 == 0) (*stream)->write(std::span<const iovec>(&part, 1));
      if (i % 3 == 1 && idle.size() < 64) idle.push_back(std::move(*stream));  // says nothing and stays
    }
  });
  auto all = requests(16, fmt::format("127.0.0.1:{}", port));
  for (auto& r : all) r.ports = 16;
  auto statuses = run_all(all);
  stop = true;
  scanner.join();
  EXPECT_THAT(texts(statuses), Each("ok"));
}

TEST(Bootstrap, a_cancelled_join_leaves_nothing_behind) {
  auto loop = make_posix_loop();
  auto r = request(0, 2, fresh_name());
  {
    auto task = join(*loop, r);
    task.start();
    loop->run(1ms);
  }
  EXPECT_EQ(loop->until_next_deadline(), Nanoseconds(-1));
  EXPECT_FALSE(join_on(*loop,
                       [&] {
                         r.settings.init_timeout = 10ms;
                         return r;
                       }())
                   .ok())
      << "but the name is free again, and nobody came";
}

TEST(Bootstrap, ranks_out_of_range_are_refused) {
  auto loop = make_posix_loop();
  for (auto [rank, count] : {std::pair(-1, 2), std::pair(2, 2), std::pair(0, 0)})
    EXPECT_EQ(join_on(*loop, request(rank, count, "@x")).status().code(), Code::invalid_argument);
  EXPECT_EQ(join_on(*loop, request(0, 2, "nonsense")).status().code(), Code::invalid_argument);
  EXPECT_EQ(join_on(*loop, request(1, 2, "nonsense")).status().code(), Code::invalid_argument);
}

// Both ranks of a world of two on one thread, so that the test can look at both.
struct Two {
  std::unique_ptr<Loop> loop = make_posix_loop();
  std::unique_ptr<World> worlds[2];
  Two() {
    auto all = requests(2, fresh_name());
    auto a = join(*loop, all[0]), b = join(*loop, all[1]);
    a.start();
    b.start();
    auto first = run_until_done(*loop, a), second = run_until_done(*loop, b);
    EXPECT_TRUE(first.ok() && second.ok());
    worlds[0] = std::move(*first);
    worlds[1] = std::move(*second);
  }
};

TEST(World, opens_authenticated_streams_for_each_purpose) {
  Two two;
  std::vector<std::pair<PeerHello, StreamPtr>> incoming;
  for (Purpose purpose : {Purpose::shm, Purpose::tcp}) {
    auto task = two.worlds[1]->connect_to(0, purpose, 2, 3, 99, two.loop->now() + 10s);
    task.start();
    auto stream = run_until_done(*two.loop, task);
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    EXPECT_EQ((*stream)->remote_address()[0] == '@', purpose == Purpose::shm);
    const int descriptors[] = {0};
    EXPECT_EQ((*stream)->send_descriptors(descriptors).ok(), purpose == Purpose::shm);
    two.loop->run(10ms);
    if (purpose == Purpose::shm)  // the second one waits until somebody asks
      two.worlds[0]->set_on_connection(
          [&](const PeerHello& hello, StreamPtr s) { incoming.emplace_back(hello, std::move(s)); });
  }
  ASSERT_TRUE(run_until(*two.loop, [&] { return incoming.size() == 2; }));
  EXPECT_EQ(incoming[0].first.purpose, Purpose::shm);
  EXPECT_EQ(incoming[1].first.purpose, Purpose::tcp);
  for (auto& [hello, stream] : incoming) {
    EXPECT_EQ(hello.rank, 1);
    EXPECT_EQ(hello.index, 2);
    EXPECT_EQ(hello.count, 3);
    EXPECT_EQ(hello.call, 99u);
  }
}

TEST(World, a_rank_that_is_gone_refuses_and_is_named) {
  Two two;
  two.worlds[0].reset();
  auto task = two.worlds[1]->connect_to(0, Purpose::tcp, 0, 1, 1, two.loop->now() + 10s);
  task.start();
  auto stream = run_until_done(*two.loop, task);
  ASSERT_FALSE(stream.ok());
  EXPECT_EQ(stream.status().code(), Code::peer_lost);
  EXPECT_EQ(stream.status().culprit(), 0);
  EXPECT_THAT(stream.status().text(), HasSubstr("rank 0"));
}

TEST(World, messages_have_a_limit) {
  Two two;
  std::string got;
  two.worlds[0]->control().on_message(
      [&](int from, std::span<const std::byte> m) { got = fmt::format("{}:{}", from, m.size()); });
  std::vector<std::byte> most(Control::kMaxMessageBytes), more(Control::kMaxMessageBytes + 1);
  EXPECT_TRUE(two.worlds[1]->control().spread(most).ok());
  EXPECT_TRUE(run_until(*two.loop, [&] { return !got.empty(); }));
  EXPECT_EQ(got, "1:65536");
  EXPECT_EQ(two.worlds[1]->control().spread(more).code(), Code::invalid_argument);
}

TEST(World, a_goodbye_is_no_loss) {
  Two two;
  bool lost = false;
  two.worlds[1]->control().on_lost([&](int, const Status&) { lost = true; });
  two.worlds[0].reset();
  EXPECT_TRUE(run_until(*two.loop, [&] { return two.worlds[1]->control().gone(0); }));
  EXPECT_FALSE(lost);
}

// Control planes over plain sockets, without a bootstrap: links can be cut as a kill would.
class Planes : public ::testing::Test {
 protected:
  void make(int n) {
    for (int r = 0; r < n; ++r) {
      RankInfo info;
      info.rank = r;
      info.host = "here";
      info.pid = 100 + r;
      ranks_.push_back(info);
    }
    std::vector<std::map<int, StreamPtr>> links(static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r)
      for (int peer : control_neighbours(r, n))
        if (peer > r) link(links[std::size_t(r)][peer], links[std::size_t(peer)][r]);
    raw_ = std::move(links[0]);  // rank 0 is the test itself
    for (int r = 1; r < n; ++r) planes_[r] = std::make_unique<Control>(r, ranks_, std::move(links[std::size_t(r)]));
  }
  void link(StreamPtr& a, StreamPtr& b) {
    auto listening = loop_->network().listen("127.0.0.1:0", [&](StreamPtr s) { b = std::move(s); });
    std::string address = (*listening)->address();
    auto task = connect(*loop_, address, loop_->now() + 10s);
    task.start();
    a = run_until_done(*loop_, task).value();
    ASSERT_TRUE(run_until(*loop_, [&] { return bool(b); }));
  }
  std::unique_ptr<Loop> loop_ = make_posix_loop();
  std::vector<RankInfo> ranks_;
  std::map<int, StreamPtr> raw_;
  std::map<int, std::unique_ptr<Control>> planes_;
};

TEST_F(Planes, a_death_is_told_once_to_every_rank_with_the_culprit) {
  make(12);
  std::map<int, std::vector<Status>> told;
  for (auto& [rank, plane] : planes_) plane->on_lost([&, r = rank](int, const Status& why) { told[r].push_back(why); });
  raw_.clear();
  ASSERT_TRUE(run_until(*loop_, [&] { return told.size() == 11; }));
  for (int i = 0; i < 10; ++i) loop_->run(1ms);
  for (auto& [rank, all] : told) {
    ASSERT_EQ(all.size(), 1u) << "rank " << rank;
    EXPECT_EQ(all[0].code(), Code::peer_lost);
    EXPECT_EQ(all[0].culprit(), 0);
    EXPECT_THAT(all[0].text(), HasSubstr("rank 0 (here, pid 100)"));
  }
}

TEST_F(Planes, nonsense_on_a_link_ends_the_link_and_not_the_plane) {
  for (const std::string& nonsense :
       {std::string(8, '\xff'), std::string("\x09\0\0\0\x77\0\0\0\0\0\0\0\0", 13),
        std::string("\x09\0\0\0\x02\xff\xff\xff\x7f\0\0\0\0", 13), std::string("\x01\0\0\0\x02", 5)}) {
    planes_.clear();
    ranks_.clear();
    make(2);
    Status why;
    planes_[1]->on_lost([&](int, const Status& w) { why = w; });
    iovec part{const_cast<char*>(nonsense.data()), nonsense.size()};
    raw_[1]->write(std::span<const iovec>(&part, 1));
    EXPECT_TRUE(run_until(*loop_, [&] { return !why.ok(); }));
    EXPECT_EQ(why.code(), Code::peer_lost);
  }
}

TEST_F(Planes, may_be_destroyed_in_their_callbacks) {
  make(5);
  int called = 0;
  for (int r = 1; r < 5; ++r) {
    planes_[r]->on_lost([&, r](int, const Status&) { ++called, planes_[r].reset(); });
    planes_[r]->on_message([&, r](int, std::span<const std::byte>) { ++called, planes_[r].reset(); });
  }
  EXPECT_TRUE(planes_[1]->spread({}).ok());
  raw_.clear();
  EXPECT_TRUE(run_until(*loop_, [&] { return called == 4; }));
}

TEST(ControlNeighbours, are_powers_of_two_away_both_ways_and_mutual) {
  EXPECT_THAT(control_neighbours(0, 1), ElementsAre());
  EXPECT_THAT(control_neighbours(0, 2), ElementsAre(1));
  EXPECT_THAT(control_neighbours(1, 3), ElementsAre(0, 2));
  EXPECT_THAT(control_neighbours(0, 16), ElementsAre(1, 2, 4, 8, 12, 14, 15));
  for (int n : {5, 12, 33})
    for (int a = 0; a < n; ++a)
      for (int b : control_neighbours(a, n)) {
        auto back = control_neighbours(b, n);
        EXPECT_NE(std::find(back.begin(), back.end(), a), back.end());
      }
}

TEST(UniqueIdBytes, hold_what_was_put_in) {
  const std::string secret = "0123456789abcdef";
  auto id = make_id({"10.0.0.1", "2001:db8::7", "fe80::1%eth0", "127.0.0.1"}, 4711, secret);
  auto invitation = read_id(id);
  ASSERT_TRUE(invitation.ok()) << invitation.status().to_string();
  EXPECT_THAT(invitation->addresses, ElementsAre("10.0.0.1:4711", "[2001:db8::7]:4711", "127.0.0.1:4711"));
  EXPECT_EQ(invitation->secret, secret);
  auto crowded = read_id(make_id(std::vector<std::string>(50, "10.0.0.1"), 1, secret));
  EXPECT_GE(crowded->addresses.size(), 15u) << "as many as there is room for";
}

TEST(UniqueIdBytes, damage_is_noticed) {
  auto id = make_id({"10.0.0.1"}, 4711, "0123456789abcdef");
  for (std::size_t i = 0; i < UniqueId::kBytes; ++i) {
    UniqueId damaged = id;
    damaged.bytes[i] ^= std::byte(1);
    EXPECT_EQ(read_id(damaged).status().code(), Code::invalid_argument) << "byte " << i;
  }
  EXPECT_FALSE(read_id(UniqueId{}).ok());
}

TEST(RankInfoBytes, hold_what_was_put_in_and_survive_nonsense) {
  RankInfo info;
  info.rank = 3;
  info.rank_count = 9;
  info.addresses = {"10.0.0.1:1", "[::1]:2"};
  info.unix_name = "@x";
  info.host_identity = ~0ull;
  info.host = "host2";
  info.pid = 4711;
  info.cores = 64;
  info.cpus = "0-31,64-95";
  info.instance = 12345678901234567890ull;
  info.version = "0.1.0";
  info.shared_hash = 7;
  info.shared_text = "TUTTI_ORDER=canonical";
  info.little_endian = false;
  for (auto& medium : info.figures.links) medium = {LinkFigures{1e-6, 2e-7, 1e-10}, LinkFigures{1e-5, 2e-6, 1e-9}};
  info.figures.reduction = ReductionFigures{1e-11, 4e-11};
  ByteWriter out;
  encode(info, out);
  ByteReader in(out.bytes());
  auto back = decode_rank_info(in);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, info);
  EXPECT_TRUE(in.at_end());
  for (std::size_t size = 0; size < out.bytes().size(); ++size) {
    ByteReader part(std::span(out.bytes()).first(size));
    EXPECT_FALSE(decode_rank_info(part)) << size;
  }
  info.addresses.assign(100, std::string(500, 'x'));
  info.shared_text.assign(5000, 'x');
  info.cpus.assign(500, 'x');
  info.host = info.version = info.unix_name = std::string(5000, 'x');
  ByteWriter most;
  encode(info, most);
  EXPECT_LE(most.bytes().size(), kMaxRankInfoBytes);
}

}  // namespace
}  // namespace tutti::comm
