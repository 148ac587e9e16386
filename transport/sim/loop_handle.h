#pragma once
// A process's loop for code that wants to own its loop: forwards everything. The loop itself stays the world's, which
// must outlive this.
#include <memory>
#include <utility>

#include "core/net.h"

namespace tutti::sim {

class LoopHandle final : public Loop {
 public:
  explicit LoopHandle(Loop& loop) : loop_(loop) {}
  TimePoint now() override { return loop_.now(); }
  Network& network() override { return loop_.network(); }
  bool run(Nanoseconds limit) override { return loop_.run(limit); }
  void wait(Nanoseconds limit) override { loop_.wait(limit); }
  Nanoseconds until_next_deadline() override { return loop_.until_next_deadline(); }
  void wake() override { loop_.wake(); }
  std::shared_ptr<void> at(TimePoint when, std::function<void()> callback) override {
    return loop_.at(when, std::move(callback));
  }
  void post(std::function<void()> callback) override { loop_.post(std::move(callback)); }
  int doorbell_descriptor() override { return loop_.doorbell_descriptor(); }
  std::uint64_t random() override { return loop_.random(); }

 private:
  Loop& loop_;
};

}  // namespace tutti::sim
