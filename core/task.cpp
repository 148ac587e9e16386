#include "core/task.h"

#include <fmt/format.h>

namespace tutti {

void TaskSet::spawn(Task<void> task) {
  if (tasks_.size() >= sweep_at_) {
    tasks_.remove_if([](const Task<void>& t) { return t.done(); });
    sweep_at_ = tasks_.size() * 2 + 16;
  }
  tasks_.push_back(std::move(task));
  tasks_.back().start();
}

std::size_t TaskSet::live() const {
  std::size_t count = 0;
  for (const auto& task : tasks_) count += !task.done();
  return count;
}

void Readiness::await_suspend(std::coroutine_handle<> waiting) {
  waiting_ = waiting;
  watch([this] { finish(true); });
  if (deadline_ != kNever) timer_ = loop_.at(deadline_, [this] { finish(false); });
}

void Readiness::watch(std::function<void()> callback) {
  side_ == Side::readable ? stream_.when_readable(std::move(callback)) : stream_.when_writable(std::move(callback));
}

void Readiness::disarm() {
  timer_ = nullptr;
  if (std::exchange(waiting_, nullptr)) watch({});
}

void Readiness::finish(bool ready) {
  ready_ = ready;
  auto waiting = waiting_;
  disarm();
  waiting.resume();  // `this` may be gone afterwards
}

void Event::set() {
  if (std::exchange(set_, true)) return;
  for (Waiter* waiter : waiters_) {
    waiter->woken_ = true;
    waiter->resume_at(loop_.now());
  }
}

void Event::Waiter::await_suspend(std::coroutine_handle<> waiting) {
  waiting_ = waiting;
  event_.waiters_.push_back(this);
  if (deadline_ != kNever) resume_at(deadline_);
}

void Event::Waiter::resume_at(TimePoint when) {
  timer_ = event_.loop_.at(when, [this] {
    auto waiting = waiting_;
    event_.waiters_.remove(this);
    waiting.resume();
  });
}

namespace {

Status timed_out(const char* what, const Stream& stream) {
  return {Code::timeout, fmt::format("{} {}: no progress in time", what, stream.remote_address())};
}

}  // namespace

Task<Status> read_exact(Loop& loop, Stream& stream, std::span<std::byte> into, TimePoint deadline) {
  while (!into.empty()) {
    IoResult io = stream.read(into);
    if (!io.status) co_return io.status;
    if (io.closed)
      co_return Status(Code::network, fmt::format("read from {}: closed by the other side", stream.remote_address()));
    into = into.subspan(io.bytes);
    if (io.bytes > 0) continue;
    Readiness readable(loop, stream, Readiness::Side::readable, deadline);
    bool in_time = co_await readable;
    if (!in_time) co_return timed_out("read from", stream);
  }
  co_return Status();
}

Task<Status> write_all(Loop& loop, Stream& stream, std::span<const std::byte> from, TimePoint deadline) {
  while (!from.empty()) {
    iovec part{const_cast<std::byte*>(from.data()), from.size()};
    IoResult io = stream.write(std::span<const iovec>(&part, 1));
    if (!io.status) co_return io.status;
    from = from.subspan(io.bytes);
    if (io.bytes > 0) continue;
    Readiness writable(loop, stream, Readiness::Side::writable, deadline);
    bool in_time = co_await writable;
    if (!in_time) co_return timed_out("write to", stream);
  }
  co_return Status();
}

Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, const std::string& address, TimePoint deadline) {
  using Answer = Result<std::unique_ptr<Stream>>;
  Event answered(loop);
  std::optional<Answer> answer;
  std::shared_ptr<void> attempt = loop.network().connect(address, [&](Answer result) {
    answer.emplace(std::move(result));
    answered.set();
  });
  Event::Waiter answering = answered.wait(deadline);
  co_await answering;
  if (answer) co_return std::move(*answer);
  co_return Answer(Status(Code::timeout, fmt::format("connect to {}: no answer in time", address)));
}

}  // namespace tutti
