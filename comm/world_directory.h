#pragma once
// WorldDirectory: the engine's way to other ranks, over the World that the bootstrap made. Several streams that one
// dial opens are handed over together at the other end.
#include <map>
#include <memory>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/engine.h"

namespace tutti::comm {

class WorldDirectory final : public Directory {
 public:
  WorldDirectory(Loop& loop, std::unique_ptr<World> world);

  void dial(int world_rank, Purpose purpose, int count, Nanoseconds limit, OnStream on_stream) override;
  void on_incoming(OnIncoming on_incoming) override;
  void say(const Word& word) override;
  void on_word(OnWord on_word) override;
  bool gone(int world_rank) const override { return world_->control().gone(world_rank); }
  bool ended(int world_rank) const override { return world_->control().ended(world_rank); }
  void link(int world_rank) override { world_->link(world_rank); }
  void on_gone(OnGone on_gone) override;
  std::string describe(int world_rank) const override { return world_->describe(world_rank); }

 private:
  Task<void> dial_all(int world_rank, Purpose purpose, std::uint16_t count, Nanoseconds limit, OnStream on_stream);
  void arrived(const PeerHello& hello, std::unique_ptr<Stream> stream);

  Loop& loop_;
  std::unique_ptr<World> world_;
  OnIncoming on_incoming_;
  struct Partial {
    std::vector<std::unique_ptr<Stream>> streams;
    std::size_t there = 0;
  };
  std::map<std::tuple<int, Purpose, std::uint32_t>, Partial> partial_;
  std::uint32_t calls_ = 0;
  TaskSet tasks_;                          // dies first
};

}  // namespace tutti::comm
