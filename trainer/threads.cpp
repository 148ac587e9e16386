#include "trainer/threads.h"

#include <chrono>

namespace tutti::trainer {
namespace {

// A worker that sleeps costs its caller about 30 us to wake; loops of a training step follow each other faster than that.
constexpr auto kSpin = std::chrono::microseconds(50);

template <class Unchanged>
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old, Unchanged unchanged) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  for (int turn = 0; unchanged(); ++turn) {
    if (turn % 64 == 63 && std::chrono::steady_clock::now() > end) value.wait(old);
  }
}

}  // namespace

Threads::Threads(int count, bool split_products) : split_products_(split_products) {
  for (int i = 1; i < count; ++i) workers_.emplace_back([this] { work(); });
}

Threads::~Threads() {
  ending_ = true;
  loop_.fetch_add(1);
  loop_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Threads::run(std::size_t parts, Part call, void* context) {
  if (workers_.empty() || parts <= 1) {
    for (std::size_t part = 0; part < parts; ++part) call(context, part);
    return;
  }
  parts_ = parts;
  call_ = call;
  context_ = context;
  next_ = 0;
  busy_ = std::uint32_t(workers_.size());
  loop_.fetch_add(1);
  loop_.notify_all();
  take_parts();
  for (std::uint32_t left = busy_; left != 0; left = busy_) {
    wait_while(busy_, left, [&] { return busy_.load() == left; });
  }
}

void Threads::take_parts() {
  for (std::size_t part = next_.fetch_add(1); part < parts_; part = next_.fetch_add(1)) call_(context_, part);
}

void Threads::work() {
  for (std::uint32_t seen = 0;; ++seen) {
    wait_while(loop_, seen, [&] { return loop_.load() == seen; });
    if (ending_) return;
    take_parts();
    busy_.fetch_sub(1);
    busy_.notify_one();
  }
}

}  // namespace tutti::trainer
