#pragma once
// Bell: one thread sleeps on it, any thread wakes it. Ringing costs a system call only when somebody sleeps. It carries
// no meaning: the woken thread looks for itself what there is to do.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tutti::comm {

class Bell {
 public:
  void ring() {
    if (rung_.exchange(true, std::memory_order_acq_rel)) return;
    std::lock_guard held(mutex_);
    heard_.notify_one();
  }
  // Whether it was rung since the last call of this or wait_for().
  bool take() { return rung_.exchange(false, std::memory_order_acq_rel); }
  bool wait_for(std::chrono::nanoseconds limit) {
    std::unique_lock held(mutex_);
    heard_.wait_for(held, limit, [this] { return rung_.load(std::memory_order_acquire); });
    return take();
  }

 private:
  std::mutex mutex_;
  std::condition_variable heard_;
  std::atomic<bool> rung_{false};
};

}  // namespace tutti::comm
