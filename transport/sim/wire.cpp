#include "transport/sim/wire.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/check.h"
#include "core/errno_text.h"
#include "transport/sim/sim_loop.h"

namespace tutti::sim {

namespace {

// A turned-down or cut-short call may be tried again so much later.
constexpr Nanoseconds kNudgeDelay = microseconds{50};
// After an outage a sender tries again when its retransmission timer next goes off.
constexpr Nanoseconds kLongestRetry = seconds{2};

}  // namespace

Wire::Wire(Fabric& fabric, const Route& route, SimLoop* client, std::string client_address, SimLoop* server,
           std::string server_address, bool passes_descriptors)
    : EventTarget(fabric.events), fabric_(fabric), number_(fabric.enter(this)),
      passes_descriptors_(passes_descriptors) {
  ends_[0].loop = client;
  ends_[0].address = std::move(client_address);
  ends_[1].loop = server;
  ends_[1].address = std::move(server_address);
  pipes_[0].link = route.there;
  pipes_[1].link = route.back;
}

Wire::~Wire() {
  for (Pipe& pipe : pipes_) drop_passed(pipe, UINT64_MAX);
  fabric_.leave(number_);
}

std::string Wire::text(int end) const { return fmt::format("{} -> {}", address(end), address(1 - end)); }

std::size_t Wire::room(const Pipe& pipe) const {
  const std::uint64_t used = pipe.written - pipe.acked;
  return used >= pipe.link->options.window ? 0 : pipe.link->options.window - used;
}

std::size_t Wire::unsent(int end) const { return end_at(end).failure.ok() ? written(end) - arrived(end) : 0; }

bool Wire::readable(int end) const {
  const Pipe& pipe = pipe_from(1 - end);
  return !end_at(end).failure.ok() || pipe.ended || pipe.arrived > pipe.read;
}

bool Wire::writable(int end) const {
  const End& mine = end_at(end);
  return !mine.failure.ok() || mine.fin_sent || room(pipe_from(end)) > 0;
}

bool Wire::due(int end) const {
  const End& mine = end_at(end);
  return mine.open && ((mine.readable && readable(end)) || (mine.writable && writable(end)));
}

bool Wire::dispatch(int end) {
  End& mine = end_at(end);
  bool ran = false;
  // The callback may replace itself or close the stream: a copy of it stays.
  if (mine.open && mine.readable && readable(end)) {
    const Callback callback = mine.readable;
    (*callback)();
    ran = true;
  }
  if (mine.open && mine.writable && writable(end)) {
    const Callback callback = mine.writable;
    (*callback)();
    ran = true;
  }
  return ran;
}

void Wire::when_readable(int end, std::function<void()> callback) {
  end_at(end).readable = callback ? std::make_shared<const std::function<void()>>(std::move(callback)) : nullptr;
  if (due(end)) wake(end);
}

void Wire::when_writable(int end, std::function<void()> callback) {
  end_at(end).writable = callback ? std::make_shared<const std::function<void()>>(std::move(callback)) : nullptr;
  if (due(end)) wake(end);
}

void Wire::wake(int end) {
  if (end_at(end).open) end_at(end).loop->stir(*this, end);
}

void Wire::schedule(TimePoint when, std::uint32_t what, int end) {
  fabric_.events.schedule(when, shared_from_this(), what + static_cast<std::uint32_t>(end));
}

void Wire::nudge(int end) {
  schedule(fabric_.events.now() + Nanoseconds{1} + fabric_.dice.up_to(kNudgeDelay), kNudge, end);
}

IoResult Wire::read(int end, std::span<std::byte> into) {
  End& mine = end_at(end);
  Pipe& pipe = pipe_to(end);
  const std::size_t there = pipe.arrived - pipe.read;
  if (!mine.open) return {.status = Status(Code::aborted, text(end) + ": the process was killed")};
  if (there == 0 && !mine.failure.ok()) return {.status = mine.failure};
  if (there == 0) return {.closed = pipe.ended};
  std::size_t bytes = std::min(there, into.size());
  if (bytes > 1 && fabric_.dice.chance(fabric_.options.short_read)) {
    bytes = 1 + fabric_.dice.below(bytes - 1);
    nudge(end);
  }
  if (bytes == 0) return {};
  pipe.bytes.pop(into.data(), bytes);
  for (const auto& [offset, bits] : pipe.flips)
    if (offset >= pipe.read && offset < pipe.read + bytes) into[offset - pipe.read] ^= bits;
  pipe.read += bytes;
  drop_passed(pipe, pipe.read);
  acknowledge(1 - end);
  fabric_.events.note(number_ << 32 | bytes);
  return {.bytes = bytes};
}

IoResult Wire::write(int end, std::span<const iovec> from) {
  End& mine = end_at(end);
  Pipe& pipe = pipe_from(end);
  if (!mine.open) return {.status = Status(Code::aborted, text(end) + ": the process was killed")};
  if (!mine.failure.ok()) return {.status = mine.failure};
  if (mine.fin_sent) return {.status = Status(Code::network, text(end) + ": " + errno_text(EPIPE))};
  std::size_t offered = 0;
  for (const iovec& part : from) offered += part.iov_len;
  std::size_t bytes = std::min(offered, room(pipe));
  if (bytes > 0 && fabric_.dice.chance(fabric_.options.would_block)) {
    bytes = 0;
    nudge(end);
  } else if (bytes > 1 && fabric_.dice.chance(fabric_.options.short_write)) {
    bytes = 1 + fabric_.dice.below(bytes - 1);
    nudge(end);
  }
  pipe.wants_room = bytes < offered;
  std::size_t left = bytes;
  for (const iovec& part : from) {
    const std::size_t piece = std::min(left, part.iov_len);
    pipe.bytes.push(static_cast<const std::byte*>(part.iov_base), piece);
    left -= piece;
  }
  for (left = bytes; left > 0;) {
    const std::size_t piece = std::min(left, pipe.link->options.segment);
    pipe.written += piece;
    left -= piece;
    const TimePoint arrival = pipe.link->carry(fabric_.events.now(), piece, fabric_.dice);
    launch(end, {.end = pipe.written, .arrival = arrival});
  }
  fabric_.events.note(number_ << 32 | bytes);
  return {.bytes = bytes};
}

Status Wire::send_descriptors(int end, std::span<const int> descriptors) {
  if (!passes_descriptors_) return Status(Code::unsupported, text(end) + ": only Unix sockets pass descriptors");
  if (!end_at(end).failure.ok()) return end_at(end).failure;
  if (!end_at(end).open || end_at(end).fin_sent) return Status(Code::network, text(end) + ": " + errno_text(EPIPE));
  if (descriptors.empty()) return Status(Code::invalid_argument, text(end) + ": no descriptors to pass");
  Pipe& pipe = pipe_from(end);
  Passed passed{.offset = pipe.written, .descriptors = {}};
  for (const int descriptor : descriptors) {
    const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
      for (const int made : passed.descriptors) ::close(made);
      return Status(Code::invalid_argument, fmt::format("{}: descriptor {} cannot be passed", text(end), descriptor));
    }
    passed.descriptors.push_back(copy);
  }
  pipe.passed.push_back(std::move(passed));
  const std::byte beside{0};
  pipe.bytes.push(&beside, 1);
  ++pipe.written;
  launch(end, {.end = pipe.written, .arrival = pipe.link->carry(fabric_.events.now(), 1, fabric_.dice)});
  return {};
}

Result<std::vector<int>> Wire::receive_descriptors(int end) {
  if (!passes_descriptors_) return Status(Code::unsupported, text(end) + ": only Unix sockets pass descriptors");
  Pipe& pipe = pipe_to(end);
  if (pipe.arrived == pipe.read) {
    if (!end_at(end).failure.ok()) return end_at(end).failure;
    if (pipe.ended) return Status(Code::network, text(end) + ": closed by the peer");
    return std::vector<int>{};
  }
  if (pipe.passed.empty() || pipe.passed.front().offset != pipe.read) {
    pipe.bytes.pop(nullptr, 1);
    ++pipe.read;
    acknowledge(1 - end);
    return Status(Code::network, text(end) + ": a byte came without descriptors");
  }
  std::vector<int> descriptors = std::move(pipe.passed.front().descriptors);
  pipe.passed.pop_front();
  pipe.bytes.pop(nullptr, 1);
  ++pipe.read;
  acknowledge(1 - end);
  return descriptors;
}

// As the kernel does when their byte is read without asking for them.
void Wire::drop_passed(Pipe& pipe, std::uint64_t before) {
  while (!pipe.passed.empty() && pipe.passed.front().offset < before) {
    for (const int descriptor : pipe.passed.front().descriptors) ::close(descriptor);
    pipe.passed.pop_front();
  }
}

void Wire::close(int end) {
  End& mine = end_at(end);
  if (!mine.open) return;
  mine.open = false;
  mine.readable = nullptr;
  mine.writable = nullptr;
  if (!mine.failure.ok()) return;
  const Pipe& unread = pipe_to(end);
  if (unread.arrived > unread.read) {
    send_reset(end);
  } else {
    half_close(end);
  }
}

void Wire::half_close(int end) {
  End& mine = end_at(end);
  if (mine.fin_sent || mine.reset_sent || !mine.failure.ok()) return;
  mine.fin_sent = true;
  Pipe& pipe = pipe_from(end);
  const TimePoint arrival = pipe.link->carry(fabric_.events.now(), 0, fabric_.dice);
  launch(end, {.kind = Segment::Kind::end_of_file, .end = pipe.written, .arrival = arrival});
}

void Wire::kill(int end, bool by_reset) {
  if (by_reset && end_at(end).open && end_at(end).failure.ok()) send_reset(end);
  close(end);
}

void Wire::break_off(int end) {
  if (end_at(end).failure.ok()) send_reset(end);
  fail(end, ECONNRESET);
}

void Wire::flip_after(int end, std::uint64_t bytes, std::byte bits) {
  Pipe& pipe = pipe_from(end);
  pipe.flips.emplace_back(pipe.arrived + bytes, bits);
}

void Wire::break_after(int end, std::uint64_t bytes) { pipe_from(end).break_at = pipe_from(end).arrived + bytes; }

void Wire::send_reset(int end) {
  End& mine = end_at(end);
  if (mine.reset_sent) return;
  mine.reset_sent = true;
  Pipe& pipe = pipe_from(end);
  pipe.in_flight.clear();
  const TimePoint arrival = pipe.link->carry(fabric_.events.now(), 0, fabric_.dice);
  launch(end, {.kind = Segment::Kind::reset, .end = pipe.written, .arrival = arrival});
}

void Wire::fail(int end, int error) {
  End& mine = end_at(end);
  if (!mine.failure.ok()) return;
  mine.failure = Status(Code::network, fmt::format("{}: {}", text(end), errno_text(error)));
  Pipe& unread = pipe_to(end);
  if (fabric_.dice.chance(0.5)) {
    unread.bytes.pop(nullptr, unread.arrived - unread.read);
    unread.read = unread.arrived;
    drop_passed(unread, unread.read);
  }
  wake(end);
}

void Wire::launch(int from, const Segment& segment) {
  pipe_from(from).in_flight.push_back(segment);
  schedule_arrival(from);
}

void Wire::schedule_arrival(int from) {
  Pipe& pipe = pipe_from(from);
  if (pipe.in_flight.empty() || pipe.held_since != TimePoint::max()) return;
  const TimePoint when = std::max(pipe.in_flight.front().arrival, fabric_.events.now());
  if (when >= pipe.next_event) return;
  pipe.next_event = when;
  schedule(when, kArrive, from);
}

void Wire::fire(std::uint32_t what) {
  const int end = static_cast<int>(what & 1);
  Pipe& pipe = pipe_from(end);
  switch (what & ~1U) {
    case kArrive:
      if (pipe.next_event <= fabric_.events.now()) pipe.next_event = TimePoint::max();
      return arrive(end);
    case kAck:
      pipe.ack_scheduled = false;
      return acknowledge(end);
    case kNudge: return wake(end);
    case kGiveUp: return give_up(end);
    default: TUTTI_CHECK(false);
  }
}

void Wire::arrive(int from) {
  Pipe& pipe = pipe_from(from);
  const TimePoint now = fabric_.events.now();
  while (!pipe.in_flight.empty() && pipe.in_flight.front().arrival <= now && pipe.held_since == TimePoint::max()) {
    if (down(pipe)) {
      pipe.held_since = now;
      schedule(now + fabric_.options.give_up, kGiveUp, from);
      return;
    }
    const Segment segment = pipe.in_flight.front();
    pipe.in_flight.pop_front();
    deliver(from, segment);
  }
  schedule_arrival(from);
}

void Wire::deliver(int from, const Segment& segment) {
  const int to = 1 - from;
  End& reader = end_at(to);
  if (!reader.failure.ok()) return;
  if (segment.kind == Segment::Kind::reset) return fail(to, ECONNRESET);
  if (!reader.open) {
    if (segment.kind == Segment::Kind::data) send_reset(to);
    return;
  }
  if (segment.kind == Segment::Kind::end_of_file) {
    pipe_from(from).ended = true;
    return wake(to);
  }
  deliver_bytes(from, segment);
}

void Wire::deliver_bytes(int from, const Segment& segment) {
  Pipe& pipe = pipe_from(from);
  std::uint64_t until = segment.end;
  bool breaks = pipe.break_at <= until;
  if (breaks) {
    until = std::max(pipe.break_at, pipe.arrived);
  } else if (fabric_.dice.chance(pipe.link->options.reset)) {
    breaks = true;
    until = pipe.arrived + fabric_.dice.below(segment.end - pipe.arrived + 1);
  }
  pipe.arrived = until;
  if (breaks) break_off(1 - from);
  wake(1 - from);
}

// Tells the writer, one latency later, what has been read.
void Wire::acknowledge(int from) {
  Pipe& pipe = pipe_from(from);
  if (pipe.ack_to > pipe.acked) {             // one comes back
    if (down(pipe_to(from))) {
      pipe.ack_held = true;
      return;
    }
    if (pipe.ack_scheduled) return;
    pipe.acked = pipe.ack_to;
    if (pipe.wants_room || end_at(from).writable) wake(from);
    pipe.wants_room = false;
  }
  if (pipe.ack_scheduled || pipe.read == pipe.acked || !end_at(from).open) return;
  pipe.ack_scheduled = true;
  pipe.ack_to = pipe.read;
  schedule(fabric_.events.now() + pipe_to(from).link->options.latency, kAck, from);
}

void Wire::set_stalled(bool stalled) {
  stalled_ = stalled;
  if (!stalled) heal();
}

void Wire::heal() {
  const TimePoint again = fabric_.events.now() + fabric_.dice.up_to(kLongestRetry);
  for (int end = 0; end < 2; ++end) {
    Pipe& pipe = pipe_from(end);
    if (pipe.held_since != TimePoint::max() && !down(pipe)) {
      pipe.held_since = TimePoint::max();
      for (Segment& segment : pipe.in_flight) segment.arrival = std::max(segment.arrival, again);
      schedule_arrival(end);
    }
    if (pipe.ack_held && !down(pipe_to(end))) {
      pipe.ack_held = false;
      pipe.ack_scheduled = true;
      schedule(again, kAck, end);
    }
  }
}

void Wire::give_up(int from) {
  const Pipe& pipe = pipe_from(from);
  if (pipe.held_since == TimePoint::max()) return;
  if (fabric_.events.now() - pipe.held_since < fabric_.options.give_up) return;
  fail(from, ETIMEDOUT);
}

std::string Wire::describe(std::uint32_t what) const {
  const char* names[] = {"arrives", "acknowledged", "nudge", "gives up"};
  return fmt::format("wire {} ({}) {}", number_, text(static_cast<int>(what & 1)), names[what >> 1]);
}

}  // namespace tutti::sim
