// Coroutines on the real loop: values, deadlines, and that a destroyed task leaves nothing behind.
#include "core/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/posix_loop.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using StreamPtr = std::unique_ptr<Stream>;

class Tasks : public ::testing::Test {
 protected:
  void join() {
    auto listening = loop().network().listen("127.0.0.1:0", [this](StreamPtr s) { server_ = std::move(s); });
    acceptor_ = std::move(*listening);
    std::string address = acceptor_->address();
    auto connecting = connect(loop(), address, loop().now() + 10s);
    connecting.start();
    auto stream = run_until_done(loop(), connecting);
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    client_ = std::move(*stream);
    TimePoint end = loop().now() + 10s;
    while (!server_ && loop().now() < end) loop().run(10ms);
    ASSERT_TRUE(server_);
  }
  Loop& loop() { return *loop_; }
  std::unique_ptr<Loop> loop_ = make_posix_loop();
  std::unique_ptr<Acceptor> acceptor_;
  StreamPtr client_, server_;
};

Task<int> number(int n) { co_return n; }
Task<int> sum_to(int n) {
  int sum = 0;
  for (int i = 1; i <= n; ++i) {
    auto task = number(i);
    sum += co_await task;
  }
  co_return sum;
}

TEST_F(Tasks, are_lazy_and_give_values) {
  auto task = sum_to(100);
  EXPECT_FALSE(task.done());
  task.start();
  ASSERT_TRUE(task.done());
  EXPECT_EQ(task.result(), 5050);
}

TEST_F(Tasks, a_task_that_was_never_started_dies_quietly) {
  bool touched = false;
  {
    auto body = [&]() -> Task<void> {
      touched = true;
      co_return;
    };
    auto task = body();
  }
  EXPECT_FALSE(touched);
}

TEST_F(Tasks, read_exact_gathers_pieces_and_write_all_overcomes_full_buffers) {
  join();
  std::vector<std::byte> sent(8 << 20), got(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = std::byte(i * 2654435761u >> 13);
  TimePoint deadline = loop().now() + 20s;
  auto writing = write_all(loop(), *client_, sent, deadline);
  auto reading = read_exact(loop(), *server_, got, deadline);
  writing.start();
  reading.start();
  EXPECT_FALSE(writing.done()) << "8 MiB should not fit into a socket's buffers";
  EXPECT_TRUE(run_until_done(loop(), writing).ok());
  EXPECT_TRUE(run_until_done(loop(), reading).ok());
  EXPECT_EQ(sent, got);
}

TEST_F(Tasks, read_exact_ends_at_its_deadline_and_at_the_end_of_the_stream) {
  join();
  std::byte into[4];
  TimePoint start = loop().now();
  auto late = read_exact(loop(), *server_, into, start + 5ms);
  late.start();
  Status status = run_until_done(loop(), late);
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_GE(loop().now() - start, 5ms);
  client_.reset();
  auto closed = read_exact(loop(), *server_, into, loop().now() + 10s);
  closed.start();
  status = run_until_done(loop(), closed);
  EXPECT_EQ(status.code(), Code::network);
  EXPECT_THAT(status.text(), HasSubstr("closed by the other side"));
}

TEST_F(Tasks, a_destroyed_task_unregisters_its_callbacks) {
  join();
  std::byte into[4];
  bool after = false;
  {
    auto body = [&]() -> Task<void> {
      auto reading = read_exact(loop(), *server_, into, loop().now() + 1ms);
      Status status = co_await reading;
      after = true;
    };
    auto task = body();
    task.start();
  }
  iovec part{into, 1};
  ASSERT_EQ(client_->write(std::span<const iovec>(&part, 1)).bytes, 1u);
  EXPECT_EQ(loop().until_next_deadline(), Nanoseconds(-1)) << "its deadline should be gone";
  for (int i = 0; i < 3; ++i) loop().run(1ms);
  EXPECT_FALSE(after);
}

TEST_F(Tasks, a_task_may_be_destroyed_by_the_callback_that_another_one_runs_in) {
  join();
  std::byte into[1];
  Task<void> victim, killer;
  bool survived = false;
  auto wait_for = [&](Stream& stream) -> Task<void> {
    auto reading = read_exact(loop(), stream, into, kNever);
    Status status = co_await reading;
    survived = true;
  };
  victim = wait_for(*client_);
  victim.start();
  auto kill = [&]() -> Task<void> {
    SleepUntil soon(loop(), loop().now());
    co_await soon;
    victim = Task<void>();
  };
  killer = kill();
  killer.start();
  run_until_done(loop(), killer);
  server_.reset();
  for (int i = 0; i < 3; ++i) loop().run(1ms);
  EXPECT_FALSE(survived);
}

TEST_F(Tasks, events_resume_their_waiters_from_run_and_keep_their_deadlines) {
  Event event(loop());
  std::vector<int> order;
  auto wait = [&](int n, TimePoint deadline) -> Task<void> {
    Event::Waiter set = event.wait(deadline);
    bool in_time = co_await set;
    order.push_back(in_time ? n : -n);
  };
  TimePoint far = loop().now() + 20s, near = loop().now() + 1ms;
  auto a = wait(1, far), b = wait(2, near), c = wait(3, kNever), dropped = wait(4, kNever);
  a.start(), b.start(), c.start(), dropped.start();
  run_until_done(loop(), b);
  EXPECT_THAT(order, ElementsAre(-2));
  dropped = Task<void>();
  event.set();
  EXPECT_THAT(order, ElementsAre(-2)) << "not from within set()";
  run_until_done(loop(), a);
  run_until_done(loop(), c);
  EXPECT_THAT(order, ElementsAre(-2, 1, 3));
  auto late = wait(5, near);
  late.start();
  EXPECT_TRUE(late.done()) << "already set";
}

TEST_F(Tasks, channels_keep_the_order) {
  Channel<std::unique_ptr<int>> channel(loop());
  std::vector<int> got;
  auto consume = [&]() -> Task<bool> {
    for (int i = 0; i < 3; ++i) {
      auto popping = channel.pop(loop().now() + 10s);
      auto value = co_await popping;
      if (!value) co_return false;
      got.push_back(**value);
    }
    auto popping = channel.pop(loop().now() + 1ms);
    auto nothing = co_await popping;
    co_return !nothing;
  };
  auto task = consume();
  channel.push(std::make_unique<int>(1));
  task.start();
  channel.push(std::make_unique<int>(2));
  channel.push(std::make_unique<int>(3));
  EXPECT_TRUE(run_until_done(loop(), task));
  EXPECT_THAT(got, ElementsAre(1, 2, 3));
}

TEST_F(Tasks, started_ones_run_beside_their_owner_and_can_be_awaited_before_or_after_their_end) {
  Event go(loop());
  auto wait = [&]() -> Task<int> {
    Event::Waiter set = go.wait(kNever);
    co_await set;
    co_return 1;
  };
  auto body = [&]() -> Task<int> {
    auto waiting = wait(), ended = number(41);
    waiting.start();
    ended.start();
    go.set();
    int first = co_await ended;
    int second = co_await waiting;
    co_return first + second;
  };
  auto task = body();
  task.start();
  EXPECT_EQ(run_until_done(loop(), task), 42);
}

TEST_F(Tasks, connect_reports_refusals) {
  auto listening = loop().network().listen("127.0.0.1:0", [](StreamPtr) {});
  std::string address = (*listening)->address();
  listening->reset();
  auto task = connect(loop(), address, loop().now() + 10s);
  task.start();
  EXPECT_EQ(run_until_done(loop(), task).status().code(), Code::network);
}

TEST_F(Tasks, a_set_owns_and_sweeps) {
  Event go(loop());
  int ended = 0;
  auto body = [&](bool waits) -> Task<void> {
    if (waits) {
      Event::Waiter set = go.wait(kNever);
      co_await set;
    }
    ++ended;
  };
  {
    TaskSet set;
    for (int i = 0; i < 1000; ++i) set.spawn(body(i % 100 == 0));
    EXPECT_EQ(ended, 990);
    EXPECT_EQ(set.live(), 10u);
    go.set();
  }
  loop().run(1ms);
  EXPECT_EQ(ended, 990) << "the waiting ones were cancelled";
}

}  // namespace
}  // namespace tutti
