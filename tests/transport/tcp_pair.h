#pragma once
// Connected pairs of TcpTransports for the tests: over streams in memory, and over loopback sockets.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "conformance.h"
#include "core/check.h"
#include "core/posix_loop.h"
#include "memory_stream.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti::tests {

using transport::Connection;
using transport::Listener;
using transport::TcpOptions;
using transport::TcpTransport;
using transport::Transport;

// Each side has a loop of its own, as in two processes.
class TcpPair : public transport::conformance::Pair {
 public:
  Transport& transport(int side) override { return *sides_[side]; }
  Connection& connection(int side) override { return *connections_[side]; }
  TcpTransport& tcp(int side) { return *sides_[side]; }
  bool step() override {
    bool any = false;
    for (auto& side : sides_) any = (side && side->poll()) || any;
    return any;
  }
  void kill_side_1() override { sides_[1].reset(); }

 protected:
  void join(int side, Loop& loop, Listener& listener, const TcpOptions& options,
            std::vector<std::unique_ptr<Stream>> sockets) {
    sides_[side] = std::make_unique<TcpTransport>(loop, listener, options);
    connections_[side] = sides_[side]->connect(kPeer, std::move(sockets));
  }
  std::unique_ptr<TcpTransport> sides_[2];
  Connection* connections_[2] = {};
};

class MemoryPair final : public TcpPair {
 public:
  // `faults`: of each socket from side 0, then those of each socket from side 1; missing ones are without faults.
  MemoryPair(Listener& a, Listener& b, const TcpOptions& options, int sockets = 1, std::size_t capacity = 256 << 10,
             std::vector<Faults> faults = {}) {
    faults.resize(std::size_t(2 * sockets));
    std::vector<std::unique_ptr<Stream>> ends[2];
    for (int i = 0; i < sockets; ++i) {
      auto [first, second] = connect_streams(capacity, faults[std::size_t(i)], faults[std::size_t(sockets + i)]);
      streams[0].push_back(first.get());
      streams[1].push_back(second.get());
      ends[0].push_back(std::move(first));
      ends[1].push_back(std::move(second));
    }
    join(0, loops_[0], a, options, std::move(ends[0]));
    join(1, loops_[1], b, options, std::move(ends[1]));
  }
  ~MemoryPair() override {
    for (auto& side : sides_) side.reset();
  }
  bool woken(int side) override { return loops_[side].run(Nanoseconds(0)); }
  MemoryLoop& loop(int side) { return loops_[side]; }
  // Not to be used once the transport may have buried it.
  std::vector<MemoryStream*> streams[2];

 private:
  std::pair<std::unique_ptr<MemoryStream>, std::unique_ptr<MemoryStream>> connect_streams(std::size_t capacity,
                                                                                          const Faults& there,
                                                                                          const Faults& back) {
    auto out = std::make_shared<Pipe>(capacity, there), in = std::make_shared<Pipe>(capacity, back);
    const std::string a = "a:" + std::to_string(++count_), b = "b:" + std::to_string(count_);
    return {std::make_unique<MemoryStream>(loops_[0], in, out, a, b),
            std::make_unique<MemoryStream>(loops_[1], out, in, b, a)};
  }
  MemoryLoop loops_[2];
  int count_ = 0;
};

class LoopbackPair final : public TcpPair {
 public:
  LoopbackPair(Listener& a, Listener& b, const TcpOptions& options, int sockets = 1) {
    for (auto& loop : loops_) loop = make_posix_loop();
    std::vector<std::unique_ptr<Stream>> ends[2];
    auto acceptor = loops_[1]->network().listen("127.0.0.1:0", [&](std::unique_ptr<Stream> stream) {
      ends[1].push_back(std::move(stream));
    });
    TUTTI_CHECK(acceptor.ok());
    std::vector<std::shared_ptr<void>> attempts;
    for (int i = 0; i < sockets; ++i) {
      const auto on_connect = [&](Result<std::unique_ptr<Stream>> stream) {
        TUTTI_CHECK(stream.ok());
        ends[0].push_back(std::move(*stream));
      };
      attempts.push_back(loops_[0]->network().connect((*acceptor)->address(), on_connect));
    }
    while (ends[0].size() < std::size_t(sockets) || ends[1].size() < std::size_t(sockets)) {
      loops_[0]->run(Nanoseconds(1000000));
      loops_[1]->run(Nanoseconds(1000000));
    }
    join(0, *loops_[0], a, options, std::move(ends[0]));
    join(1, *loops_[1], b, options, std::move(ends[1]));
  }
  ~LoopbackPair() override {
    for (auto& side : sides_) side.reset();
  }
  bool woken(int side) override { return loops_[side]->run(Nanoseconds(0)); }

 private:
  std::unique_ptr<PosixLoop> loops_[2];
};

}  // namespace tutti::tests
