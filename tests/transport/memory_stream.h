#pragma once
// Streams in memory, for tests: bounded pipes with seeded short reads and writes, resets at a chosen byte and flipped
// bits. And a loop that knows which of them are ready. No time passes in it.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "core/net.h"

namespace tutti::tests {

struct Faults {
  std::uint64_t seed = 1;
  bool short_moves = false;                        // every read and write moves a random part, or nothing
  std::map<std::uint64_t, unsigned> flips;         // byte position in the stream -> bit
  std::uint64_t reset_after = ~std::uint64_t{0};   // bytes; then the whole connection is reset
};

// One direction.
struct Pipe {
  explicit Pipe(std::size_t capacity, const Faults& with) : faults(with), random(with.seed), ring(capacity) {}
  Faults faults;
  std::mt19937_64 random;
  std::vector<std::byte> ring;
  std::uint64_t read = 0, written = 0;
  bool closed = false;                             // by the writer
  bool reset = false;
  bool stalled = false;                            // takes nothing and gives nothing

  std::size_t share(std::size_t bytes) { return faults.short_moves && bytes ? random() % (bytes + 1) : bytes; }
  std::size_t put(const std::byte* from, std::size_t bytes) {
    bytes = std::min<std::size_t>(bytes, ring.size() - (written - read));
    for (std::size_t i = 0; i < bytes; ++i) {
      std::byte value = from[i];
      if (!faults.flips.empty()) {
        const auto flip = faults.flips.find(written);
        if (flip != faults.flips.end()) value ^= std::byte(1u << flip->second);
      }
      ring[written++ % ring.size()] = value;
    }
    return bytes;
  }
  std::size_t get(std::byte* into, std::size_t bytes) {
    bytes = std::min<std::size_t>(bytes, written - read);
    for (std::size_t i = 0; i < bytes; ++i) into[i] = ring[read++ % ring.size()];
    return bytes;
  }
};

class MemoryLoop;

class MemoryStream final : public Stream {
 public:
  MemoryStream(MemoryLoop& loop, std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out, std::string local,
               std::string remote);
  ~MemoryStream() override;

  IoResult read(std::span<std::byte> into) override {
    if (in_->reset) return {0, false, Status(Code::network, "read from " + remote_ + ": reset by the test")};
    if (in_->stalled) return {};
    const std::size_t moved = in_->get(into.data(), in_->share(into.size()));
    return {moved, moved == 0 && in_->closed && in_->read == in_->written, {}};
  }
  IoResult write(std::span<const iovec> from) override {
    if (out_->reset) return {0, false, Status(Code::network, "write to " + remote_ + ": reset by the test")};
    if (out_->stalled) return {};
    ++writes;
    std::size_t total = 0, moved = 0;
    for (const iovec& part : from) total += part.iov_len;
    std::size_t left = out_->share(total);
    for (const iovec& part : from) {
      const std::size_t size = std::min(part.iov_len, left);
      const std::size_t took = out_->put(static_cast<const std::byte*>(part.iov_base), size);
      moved += took;
      left -= took;
      if (took < part.iov_len) break;
    }
    if (out_->written >= out_->faults.reset_after) reset();
    return {moved, false, {}};
  }
  void reset() { in_->reset = out_->reset = true; }
  bool readable() const { return in_->reset || (!in_->stalled && (in_->written > in_->read || in_->closed)); }
  bool writable() const { return out_->reset || (!out_->stalled && out_->written - out_->read < out_->ring.size()); }
  void when_readable(std::function<void()> callback) override { on_readable = std::move(callback); }
  void when_writable(std::function<void()> callback) override { on_writable = std::move(callback); }
  Status send_descriptors(std::span<const int>) override { return {Code::unsupported, "in memory"}; }
  Result<std::vector<int>> receive_descriptors() override { return Status(Code::unsupported, "in memory"); }
  std::string local_address() const override { return local_; }
  std::string remote_address() const override { return remote_; }
  Pipe& in() { return *in_; }
  Pipe& out() { return *out_; }

  std::function<void()> on_readable, on_writable;
  std::uint64_t writes = 0;

 private:
  MemoryLoop& loop_;
  std::shared_ptr<Pipe> in_, out_;
  std::string local_, remote_;
};

class MemoryLoop final : public Loop {
 public:
  TimePoint now() override { return {}; }
  Network& network() override { std::abort(); }
  bool run(Nanoseconds) override {
    ++runs;
    bool any = !posted_.empty();
    for (const auto& callback : std::exchange(posted_, {})) callback();
    for (std::size_t i = 0; i < streams_.size(); ++i) {          // callbacks may end streams
      MemoryStream* stream = streams_[i];
      if (stream->on_readable && stream->readable()) any = true, std::function<void()>(stream->on_readable)();
      if (i < streams_.size() && streams_[i] == stream && stream->on_writable && stream->writable())
        any = true, std::function<void()>(stream->on_writable)();
    }
    return any;
  }
  void wait(Nanoseconds) override {}
  Nanoseconds until_next_deadline() override { return Nanoseconds(-1); }
  void wake() override {}
  std::shared_ptr<void> at(TimePoint, std::function<void()>) override { return nullptr; }
  void post(std::function<void()> callback) override { posted_.push_back(std::move(callback)); }
  int doorbell_descriptor() override { return -1; }
  std::uint64_t random() override { return next_random++; }

  std::uint64_t runs = 0, next_random = 4;

 private:
  friend class MemoryStream;
  std::vector<MemoryStream*> streams_;
  std::vector<std::function<void()>> posted_;
};

inline MemoryStream::MemoryStream(MemoryLoop& loop, std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out,
                                  std::string local, std::string remote)
    : loop_(loop), in_(std::move(in)), out_(std::move(out)), local_(std::move(local)), remote_(std::move(remote)) {
  loop_.streams_.push_back(this);
}

inline MemoryStream::~MemoryStream() {
  out_->closed = true;
  in_->reset = in_->reset || in_->written > in_->read;      // as the kernel does: closing on unread bytes resets
  std::erase(loop_.streams_, this);
}

}  // namespace tutti::tests
