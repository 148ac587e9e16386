#pragma once
// One end of a connection under test: writes a known sequence of bytes and compares what it reads with another one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/net.h"
#include "transport/sim/sim_world.h"

namespace tutti::sim {

// The byte at an offset of the sequence that `salt` names. 64-bit mixing, so that any shift, loss or repeat shows.
inline std::byte byte_at(std::uint64_t salt, std::uint64_t offset) {
  std::uint64_t z = (salt + 1) * 0xd1342543de82ef95ULL + offset * 0xaf251af3b0f025b5ULL;
  z ^= z >> 32;
  return static_cast<std::byte>((z * 0x2545f4914f6cdd1dULL) >> 56);
}

class Talker {
 public:
  // Writes `to_send` bytes of sequence `mine`; expects sequence `theirs`.
  Talker(std::unique_ptr<Stream> stream, std::uint64_t mine, std::uint64_t to_send, std::uint64_t theirs)
      : stream_(std::move(stream)), mine_(mine), to_send_(to_send), theirs_(theirs) {}

  // Calls back itself from its loop, as a user of callbacks would.
  void use_callbacks() {
    stream_->when_readable([this] { read_some(4096); });
    stream_->when_writable([this] {
      write_some(4096);
      if (sent_ == to_send_ || !failure_.ok()) stream_->when_writable(nullptr);
    });
  }
  // Polls, as the data path does: until nothing happens.
  void pump() {
    while (stream_ && (write_some(3000) | read_some(5000))) {}
  }
  bool write_some(std::size_t most) {
    const std::size_t bytes = std::min<std::uint64_t>(most, to_send_ - sent_);
    if (bytes == 0 || !failure_.ok()) return false;
    std::vector<std::byte> data(bytes);
    for (std::size_t i = 0; i < bytes; ++i) data[i] = byte_at(mine_, sent_ + i);
    const std::size_t cut = bytes / 3;
    const iovec parts[] = {{data.data(), cut}, {data.data() + cut, bytes - cut}};
    const IoResult result = stream_->write(parts);
    if (!result.status.ok()) failure_ = result.status;
    sent_ += result.bytes;
    return result.bytes > 0;
  }
  bool read_some(std::size_t most) {
    if (closed_ || !failure_.ok()) return false;
    std::vector<std::byte> data(most);
    const IoResult result = stream_->read(data);
    if (!result.status.ok()) failure_ = result.status;
    if (result.closed) closed_ = true;
    if (closed_ || !failure_.ok()) stream_->when_readable(nullptr);
    for (std::size_t i = 0; i < result.bytes; ++i) wrong_ += data[i] != byte_at(theirs_, received_ + i);
    received_ += result.bytes;
    return result.bytes > 0;
  }

  void close() { stream_.reset(); }
  Stream& stream() { return *stream_; }
  std::uint64_t wire() const { return static_cast<const SimStream&>(*stream_).wire(); }
  std::uint64_t sent() const { return sent_; }
  std::uint64_t received() const { return received_; }
  std::uint64_t wrong() const { return wrong_; }
  bool closed() const { return closed_; }
  const Status& failure() const { return failure_; }
  bool over() const { return closed_ || !failure_.ok(); }

 private:
  std::unique_ptr<Stream> stream_;
  std::uint64_t mine_, to_send_, theirs_;
  std::uint64_t sent_ = 0, received_ = 0, wrong_ = 0;
  bool closed_ = false;
  Status failure_;
};

// Two processes and one connection between them, both ends of which talk.
struct Pair {
  SimWorld world;
  SimLoop& server;
  SimLoop& client;
  std::unique_ptr<Acceptor> acceptor;
  std::shared_ptr<void> connecting;
  std::unique_ptr<Talker> at_server, at_client;
  std::uint64_t from_server, from_client;      // bytes to send

  explicit Pair(std::uint64_t seed, const SimOptions& options = {}, std::uint64_t bytes_from_server = 100'000,
                std::uint64_t bytes_from_client = 100'000, bool one_host = false, std::string address = "10.0.0.1:0")
      : world(seed, options), server(world.add_process(world.add_host())),
        client(world.add_process(one_host ? 0 : world.add_host())), from_server(bytes_from_server),
        from_client(bytes_from_client) {
    acceptor = std::move(server.network().listen(address, [this](std::unique_ptr<Stream> stream) {
      at_server = std::make_unique<Talker>(std::move(stream), 1, from_server, 2);
    })).value();
    connecting = client.network().connect(acceptor->address(), [this](Result<std::unique_ptr<Stream>> stream) {
      if (stream.ok()) at_client = std::make_unique<Talker>(std::move(stream).value(), 2, from_client, 1);
    });
  }
  // Both poll whenever they are woken.
  void poll() {
    server.on_tick([this] {
      server.run({});
      if (at_server) at_server->pump();
    });
    client.on_tick([this] {
      client.run({});
      if (at_client) at_client->pump();
    });
  }
  bool connect() {
    return world.run_until([this] { return at_server && at_client; }, std::chrono::seconds{60});
  }
  bool all_arrived() const {
    return at_server && at_client && at_server->received() == from_client && at_client->received() == from_server;
  }
};

}  // namespace tutti::sim
