#pragma once
// Coroutines over a Loop: Task, and what can be awaited. For start-up and rare paths; nothing of the data path is a
// coroutine.
//
// A Task is lazy (runs when awaited or started), has one owner, and is cancelled by being destroyed: its frame goes,
// and with it whatever it waited for is unregistered. Tasks, their loop and their streams belong to one thread.
//
// For the compilers' sake (GCC 11, 12): in an expression with co_await, the arguments are named variables, references
// or plain values, never temporaries that have destructors.
#include <coroutine>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/net.h"

namespace tutti {

inline constexpr TimePoint kNever = TimePoint::max();

template <class T>
class Task;

namespace detail {

struct PromiseBase {
  std::coroutine_handle<> awaiting;
  bool started = false;
  struct Final {
    bool await_ready() noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) noexcept {
      auto next = ended.promise().awaiting;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  std::suspend_always initial_suspend() noexcept { return {}; }
  Final final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { std::terminate(); }  // only out of memory; everything else is a Status
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  void return_value(T result) { value.emplace(std::move(result)); }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() {}
  void take() {}
};

}  // namespace detail

template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) reset(std::exchange(other.handle_, nullptr));
    return *this;
  }
  ~Task() { reset(nullptr); }

  // For the outermost task, and for one that runs beside its owner and is awaited later: runs until it waits for
  // something. Call once.
  void start() {
    handle_.promise().started = true;
    handle_.resume();
  }
  bool done() const { return handle_ && handle_.done(); }
  explicit operator bool() const { return bool(handle_); }
  // Of a task that is done; once.
  T result() {
    TUTTI_CHECK(done());
    return handle_.promise().take();
  }

  auto operator co_await() const noexcept {
    struct Awaiter {
      Handle child;
      bool await_ready() const noexcept { return child.done(); }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) noexcept {
        child.promise().awaiting = parent;
        if (std::exchange(child.promise().started, true)) return std::noop_coroutine();
        return child;
      }
      T await_resume() { return child.promise().take(); }
    };
    return Awaiter{handle_};
  }

 private:
  void reset(Handle next) {
    Handle old = std::exchange(handle_, next);
    if (old) old.destroy();
  }
  Handle handle_;
};

namespace detail {
template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace detail

// Drives the loop until the task, which must have been started, is done.
template <class T>
T run_until_done(Loop& loop, Task<T>& task) {
  while (!task.done()) loop.run(Nanoseconds(-1));
  return task.result();
}

// Owns tasks that nobody waits for. They are cancelled with it.
class TaskSet {
 public:
  // Starts it. Tasks that have ended leave at a later spawn().
  void spawn(Task<void> task);
  std::size_t live() const;

 private:
  std::list<Task<void>> tasks_;
  std::size_t sweep_at_ = 16;
};

// Awaitable: until the stream is readable (or writable), or the deadline has passed. True: ready. The stream must
// outlive the wait, and nobody else may wait for the same side of it.
class Readiness {
 public:
  enum class Side { readable, writable };
  Readiness(Loop& loop, Stream& stream, Side side, TimePoint deadline)
      : loop_(loop), stream_(stream), side_(side), deadline_(deadline) {}
  ~Readiness() { disarm(); }
  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting);
  bool await_resume() const noexcept { return ready_; }

 private:
  void watch(std::function<void()> callback);
  void disarm();
  void finish(bool ready);
  Loop& loop_;
  Stream& stream_;
  Side side_;
  TimePoint deadline_;
  std::coroutine_handle<> waiting_;
  std::shared_ptr<void> timer_;
  bool ready_ = false;
};

// Awaitable: until the time has come.
class SleepUntil {
 public:
  SleepUntil(Loop& loop, TimePoint when) : loop_(loop), when_(when) {}
  SleepUntil(const SleepUntil&) = delete;
  SleepUntil& operator=(const SleepUntil&) = delete;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) {
    timer_ = loop_.at(when_, [waiting] { waiting.resume(); });
  }
  void await_resume() const noexcept {}

 private:
  Loop& loop_;
  TimePoint when_;
  std::shared_ptr<void> timer_;
};

// Something that tasks wait for and other code says. Waiters are resumed from Loop::run, never from within set(). Must
// outlive those who wait.
class Event {
 public:
  explicit Event(Loop& loop) : loop_(loop) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void set();
  void reset() { set_ = false; }

  class Waiter {
   public:
    Waiter(Event& event, TimePoint deadline) : event_(event), deadline_(deadline) {}
    ~Waiter() { event_.waiters_.remove(this); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    bool await_ready() const noexcept { return event_.set_; }
    void await_suspend(std::coroutine_handle<> waiting);
    bool await_resume() const noexcept { return event_.set_ || woken_; }

   private:
    friend class Event;
    void resume_at(TimePoint when);
    Event& event_;
    TimePoint deadline_;
    std::coroutine_handle<> waiting_;
    std::shared_ptr<void> timer_;
    bool woken_ = false;
  };
  // True: it was set; false: the deadline passed. Bind it to a name, then co_await that.
  Waiter wait(TimePoint deadline) { return Waiter(*this, deadline); }

 private:
  friend class Waiter;
  Loop& loop_;
  bool set_ = false;
  std::list<Waiter*> waiters_;
};

// Values from any code to one task at a time, in order.
template <class T>
class Channel {
 public:
  explicit Channel(Loop& loop) : filled_(loop) {}
  void push(T value) {
    values_.push_back(std::move(value));
    filled_.set();
  }
  // Empty: the deadline passed.
  Task<std::optional<T>> pop(TimePoint deadline) {
    while (values_.empty()) {
      filled_.reset();
      Event::Waiter filled = filled_.wait(deadline);
      bool in_time = co_await filled;
      if (!in_time) co_return std::nullopt;
    }
    co_return take();
  }
  // Empty: there is nothing now.
  std::optional<T> take() {
    if (values_.empty()) return std::nullopt;
    std::optional<T> out(std::move(values_.front()));
    values_.pop_front();
    return out;
  }

 private:
  std::deque<T> values_;
  Event filled_;
};

// All of it, or why not: network (closed, failed) or timeout. The memory must outlive the task.
Task<Status> read_exact(Loop& loop, Stream& stream, std::span<std::byte> into, TimePoint deadline);
Task<Status> write_all(Loop& loop, Stream& stream, std::span<const std::byte> from, TimePoint deadline);
// network, or timeout at the deadline. `address` must outlive the task.
Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, const std::string& address, TimePoint deadline);

}  // namespace tutti
