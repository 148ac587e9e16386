#pragma once
// Two ranks of this process, joined by RDMA: over the machine's devices, or over a fabric in memory.
#include <memory>
#include <string>

#include "conformance.h"
#include "core/check.h"
#include "core/posix_loop.h"
#include "fake_verbs.h"
#include "transport/ranges.h"
#include "transport/rdma/transport.h"

namespace tutti::tests {

using transport::rdma::RdmaOptions;
using transport::rdma::VerbsTransport;

// What that end sends from and receives into is registered while it is there.
inline void register_memory_of(transport::conformance::End& end) {
  end.gives_place = true;
  end.on_memory = [](const std::vector<std::byte>& memory, bool there) {
    if (memory.empty()) return;
    if (there) EXPECT_TRUE(transport::add_range(memory.data(), memory.size()).ok());
    else EXPECT_TRUE(transport::drop_range(memory.data()));
  };
}

class RdmaPair : public transport::conformance::Pair {
 public:
  transport::Transport& transport(int side) override { return *sides_[side]; }
  transport::Connection& connection(int side) override { return *connections_[side]; }
  VerbsTransport& rdma(int side) { return *sides_[side]; }
  bool step() override {
    bool any = deliver();
    for (int side = 0; side < 2; ++side)
      if (sides_[side]) any |= sides_[side]->poll() | loops_[side]->run(Nanoseconds(0));
    return any;
  }
  bool woken(int side) override {
    deliver();
    return loops_[side]->run(patience());
  }
  void kill_side_1() override { sides_[1].reset(); }
  const Status& why_not() const { return why_not_; }
  bool has_sockets(int side) const { return has_sockets_[side]; }

  // New sockets, and over them a connection, or new queue pairs for the one that there is. Returns whether it worked, on both sides alike.
  bool join(bool again = false) {
    make_sockets();
    for (const int side : {0, 1}) begin_side(side, again);
    while (!joined())
      for (const int side : {0, 1}) step_side(side);
    return outcome();
  }
  // The same in parts: either side may begin before the other.
  void make_sockets() {
    answers_ = 0;
    const std::string name = "@tutti-test-" + std::to_string(loops_[0]->random());
    auto acceptor = loops_[1]->network().listen(name, [&](std::unique_ptr<Stream> stream) { ends_[1] = std::move(stream); });
    TUTTI_CHECK(acceptor.ok());
    const auto attempt = loops_[0]->network().connect(name, [&](Result<std::unique_ptr<Stream>> stream) {
      TUTTI_CHECK(stream.ok());
      ends_[0] = std::move(*stream);
    });
    while (!ends_[0] || !ends_[1])
      for (auto& loop : loops_) loop->run(std::chrono::milliseconds(1));
  }
  void begin_side(int side, bool again) {
    std::vector<std::unique_ptr<Stream>> sockets;
    sockets.push_back(std::move(ends_[side]));
    if (again) return sides_[side]->resume(kPeer, std::move(sockets), side == 0, [this, side](const Status& status) { answer(side, status); });
    sides_[side]->connect(kPeer, std::move(sockets), side == 0, [this, side](Result<transport::Connection*> made, std::vector<std::unique_ptr<Stream>> back) {
      has_sockets_[side] = !back.empty();
      if (made) connections_[side] = *made;
      answer(side, made.status());
    });
  }
  void step_side(int side) {
    deliver();
    loops_[side]->run(Nanoseconds(0));
  }
  bool joined() const { return answers_ == 2; }
  bool outcome() const {
    TUTTI_CHECK(joined() && outcome_[0] == outcome_[1]);
    return outcome_[0];
  }

 private:
  void answer(int side, const Status& status) {
    ++answers_;
    outcome_[side] = status.ok();
    if (!status.ok()) why_not_ = status;
  }

 protected:
  void make(int side, const transport::rdma::Verbs& verbs, transport::Listener& listener, const RdmaOptions& options) {
    loops_[side] = make_posix_loop();
    auto made = VerbsTransport::make(verbs, *loops_[side], listener, options);
    TUTTI_CHECK(made.ok());
    sides_[side] = std::move(*made);
  }
  virtual bool deliver() { return false; }
  virtual Nanoseconds patience() const { return Nanoseconds(0); }     // for something that is on its way to a sleeper

 private:
  std::unique_ptr<PosixLoop> loops_[2];
  std::unique_ptr<VerbsTransport> sides_[2];
  transport::Connection* connections_[2] = {};
  std::unique_ptr<Stream> ends_[2];
  bool has_sockets_[2] = {}, outcome_[2] = {};
  int answers_ = 0;
  Status why_not_;
};

class FakeRdmaPair final : private FakeFabric, public RdmaPair {
 public:
  FakeRdmaPair(transport::Listener& a, transport::Listener& b, const RdmaOptions& options, int rails = 1) {
    for (int side = 0; side < 2; ++side)
      for (int rail = 0; rail < rails; ++rail) add_rail(side, rail);
    make(0, verbs(0), a, options);
    make(1, verbs(1), b, options);
    (void)join();
  }
  ~FakeRdmaPair() override { EXPECT_EQ(not_ready(), 0u) << "writes found no receive: the credits are wrong"; }
  FakeFabric& fabric() { return *this; }

 private:
  bool deliver() override { return FakeFabric::deliver(); }
};

}  // namespace tutti::tests
