#include "comm/world_directory.h"

namespace tutti::comm {

WorldDirectory::WorldDirectory(Loop& loop, std::unique_ptr<World> world) : loop_(loop), world_(std::move(world)) {}

void WorldDirectory::dial(int world_rank, Purpose purpose, int count, Nanoseconds limit, OnStream on_stream) {
  tasks_.spawn(dial_all(world_rank, purpose, std::uint16_t(count), limit, std::move(on_stream)));
}

Task<void> WorldDirectory::dial_all(int world_rank, Purpose purpose, std::uint16_t count, Nanoseconds limit,
                                    OnStream on_stream) {
  const TimePoint deadline = loop_.now() + limit;
  const std::uint32_t call = ++calls_;
  std::vector<std::unique_ptr<Stream>> streams;
  for (std::uint16_t i = 0; i < count; ++i) {
    auto task = world_->connect_to(world_rank, purpose, i, count, call, deadline);
    auto stream = co_await task;
    if (!stream) {
      on_stream(stream.status());
      co_return;
    }
    streams.push_back(std::move(*stream));
  }
  on_stream(std::move(streams));
}

void WorldDirectory::on_incoming(OnIncoming on_incoming) {
  on_incoming_ = std::move(on_incoming);
  world_->set_on_connection(
      [this](const PeerHello& hello, std::unique_ptr<Stream> stream) { arrived(hello, std::move(stream)); });
}

void WorldDirectory::arrived(const PeerHello& hello, std::unique_ptr<Stream> stream) {
  if (hello.purpose != Purpose::shm && hello.purpose != Purpose::tcp && hello.purpose != Purpose::rdma) return;
  const auto key = std::tuple(hello.rank, hello.purpose, hello.call);
  Partial& partial = partial_[key];
  partial.streams.resize(std::max<std::size_t>(partial.streams.size(), hello.count));
  if (hello.index >= partial.streams.size()) return;
  partial.there += !partial.streams[hello.index];
  partial.streams[hello.index] = std::move(stream);       // dialled again: the peer has given up the one before
  if (partial.there < partial.streams.size()) return;
  auto streams = std::move(partial.streams);
  partial_.erase(key);
  on_incoming_(hello.rank, hello.purpose, std::move(streams));
}

void WorldDirectory::say(const Word& word) {
  if (Status status = world_->control().spread(word.encode()); !status.ok()) return;   // too late for the others anyway
}

void WorldDirectory::on_word(OnWord on_word) {
  world_->control().on_message([on_word = std::move(on_word)](int from, std::span<const std::byte> bytes) {
    if (const auto word = Word::decode(bytes)) on_word(from, *word);
  });
}

void WorldDirectory::on_gone(OnGone on_gone) { world_->control().on_lost(std::move(on_gone)); }

}  // namespace tutti::comm
