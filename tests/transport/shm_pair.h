#pragma once
// Two ranks of this process over shared memory, joined by a Unix socket as two processes would be.
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>

#include "conformance.h"
#include "core/check.h"
#include "core/posix_loop.h"
#include "transport/shm/shm_transport.h"

namespace tutti::tests {

using transport::Connection;
using transport::Listener;
using transport::Transport;
using transport::conformance::Pair;
using transport::shm::ShmOptions;
using transport::shm::ShmTransport;

// Each side has a loop and an outbox of its own; side 0 opens.
class ShmPair final : public Pair {
 public:
  ShmPair(Listener& a, Listener& b, ShmOptions options, bool lends = false) : lends_(lends) {
    for (auto& loop : loops_) loop = make_posix_loop();
    std::unique_ptr<Stream> ends[2];
    const std::string name = "@tutti-test-" + std::to_string(loops_[0]->random());
    auto acceptor =
        loops_[1]->network().listen(name, [&](std::unique_ptr<Stream> stream) { ends[1] = std::move(stream); });
    TUTTI_CHECK(acceptor.ok());
    const auto attempt = loops_[0]->network().connect(name, [&](Result<std::unique_ptr<Stream>> stream) {
      TUTTI_CHECK(stream.ok());
      ends[0] = std::move(*stream);
    });
    run_until([&] { return ends[0] && ends[1]; });
    Listener* listeners[2] = {&a, &b};
    for (std::size_t side = 0; side < 2; ++side) {
      sides_[side] = std::make_unique<ShmTransport>(*loops_[side], *listeners[side], options);
      sides_[side]->connect(kPeer, std::move(ends[side]), side == 0, [this, side](Result<Connection*> made) {
        TUTTI_CHECK(made.ok());
        connections_[side] = *made;
      });
    }
    run_until([&] { return connections_[0] && connections_[1]; });
  }
  Transport& transport(int side) override { return *sides_[side]; }
  Connection& connection(int side) override { return *connections_[side]; }
  bool step() override {
    bool any = false;
    for (int side = 0; side < 2; ++side)
      if (sides_[side]) any |= sides_[side]->poll() | loops_[side]->run(Nanoseconds(0));
    return any;
  }
  bool woken(int side) override {
    pollfd ready{loops_[side]->descriptor(), POLLIN, 0};      // a doorbell wakes, but calls nothing back
    const bool any = ::poll(&ready, 1, 0) == 1;
    loops_[side]->run(Nanoseconds(0));
    return any;
  }
  bool lends() const override { return lends_; }
  void kill_side_1() override { sides_[1].reset(); }

 private:
  template <class Done>
  void run_until(const Done& done) {
    while (!done())
      for (auto& loop : loops_) loop->run(std::chrono::milliseconds(1));
  }
  bool lends_;
  std::unique_ptr<PosixLoop> loops_[2];
  std::unique_ptr<ShmTransport> sides_[2];
  Connection* connections_[2] = {};
};

}  // namespace tutti::tests
