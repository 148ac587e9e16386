#include "record/recording.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/errno_text.h"
#include "core/host.h"
#include "record/folder.h"
#include "record/process.h"

namespace tutti::record {
namespace {

constexpr std::int64_t kLatest = std::int64_t(1) << 61;      // ns since 1970, far beyond any clock

// Ticks of one file to nanoseconds of the wall clock.
class Timescale {
 public:
  Timescale(const Moment& first, const Moment& last) : first_(first) {
    const double ticks = double(last.ticks) - double(first.ticks), ns = double(last.monotonic) - double(first.monotonic);
    if (ticks > 0 && ns > 0) factor_ = std::clamp(ns / ticks, 1e-3, 1e3);
  }
  std::int64_t span(std::uint64_t ticks) const { return std::int64_t(std::min(double(ticks) * factor_, double(kLatest))); }
  std::int64_t wall(std::uint64_t ticks) const {
    const std::int64_t begin = std::clamp<std::int64_t>(first_.wall, 0, kLatest);
    if (ticks >= first_.ticks) return begin + span(ticks - first_.ticks);
    return std::max<std::int64_t>(begin - span(first_.ticks - ticks), 1);
  }

 private:
  Moment first_;
  double factor_ = 1;
};

template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return printable(std::string_view(field, ::strnlen(field, N)));
}

// The entries of a ring with a good stamp, oldest first. The number of a place's entry is that place, modulo the ring.
template <class Entry>
std::vector<Entry> ring(std::span<const std::byte> bytes, std::uint32_t count, std::size_t& torn) {
  const auto stamp_at = [&](std::uint32_t place) {
    std::uint32_t stamp = 0;
    std::memcpy(&stamp, bytes.data() + place * sizeof(Entry), sizeof stamp);
    return stamp;
  };
  std::uint32_t newest = 0;
  std::size_t used = 0;
  for (std::uint32_t place = 0; place < count; ++place) {
    const auto entry = bytes.subspan(place * sizeof(Entry), sizeof(Entry));
    used += std::any_of(entry.begin(), entry.end(), [](std::byte b) { return b != std::byte{}; });
    const std::uint32_t stamp = stamp_at(place);
    if (stamp != 0 && stamp % count == place && (newest == 0 || std::int32_t(stamp - newest) > 0)) newest = stamp;
  }
  std::vector<Entry> found;
  for (std::uint32_t back = newest == 0 ? 0 : count; back-- > 0;) {
    const std::uint32_t stamp = newest - back;
    if (stamp == 0 || stamp_at(stamp % count) != stamp) continue;
    found.emplace_back();
    std::memcpy(&found.back(), bytes.data() + stamp % count * sizeof(Entry), sizeof(Entry));
  }
  torn += used - found.size();
  return found;
}

Operation operation_of(const OperationEntry& entry, const Timescale& scale) {
  Operation out;
  out.number = entry.stamp;
  out.communicator = entry.communicator;
  out.sequence = entry.operation;
  out.call = entry.call;
  out.started = scale.wall(entry.started);
  out.ended = entry.ended == 0 ? 0 : std::max(out.started, scale.wall(entry.ended));
  out.first_after = scale.span(std::uint64_t(entry.first_after) << kAfterShift);
  out.last_after = scale.span(std::uint64_t(entry.last_after) << kAfterShift);
  out.last_peer = entry.last_peer == kNobody ? -1 : int(entry.last_peer);
  out.code = std::min<int>(entry.code, int(kLastCode));
  out.moved = entry.moved;
  out.total = entry.total;
  return out;
}

// A run's, one by one, the last few of them where they are many.
void tell_run(const OperationEntry& entry, const Operation& first, std::vector<Operation>& out) {
  const std::int64_t over = std::min(entry.last_after, entry.first_after);
  const std::int64_t begun = std::min<std::int64_t>(entry.first_after, over + 1);      // one at a time
  const std::int64_t each = over == 0 ? 0 : std::max<std::int64_t>(first.ended - first.started, 0) / over;
  for (std::int64_t i = std::max<std::int64_t>(begun - std::int64_t(kMostOperations), 0); i < begun; ++i) {
    Operation o = first;
    o.in_run = true;
    o.sequence += std::uint32_t(i);
    o.started += i * each;
    o.ended = i < over ? o.started + each : 0;
    o.first_after = o.last_after = 0;
    out.push_back(o);
  }
}

void keep_newest(std::vector<Operation>& operations) {
  if (operations.size() > kMostOperations) operations.erase(operations.begin(), operations.end() - std::ptrdiff_t(kMostOperations));
}

Event event_of(const EventEntry& entry, const Timescale& scale) {
  const auto kind = entry.kind <= std::uint16_t(EventKind::mended) ? EventKind(entry.kind) : EventKind::none;
  return {kind, entry.peer == kNobody ? -1 : int(entry.peer), scale.wall(entry.ticks), entry.communicator, entry.operation,
          entry.a, entry.b, entry.c, entry.d, entry.e};
}

std::vector<Peer> peers_of(std::span<const std::byte> bytes, std::uint32_t count, const Timescale& scale) {
  std::vector<Peer> out;
  for (std::uint32_t i = 0; i < count; ++i) {
    PeerEntry entry;
    std::memcpy(&entry, bytes.data() + i * sizeof entry, sizeof entry);
    if (entry.state == 0 && entry.waits == 0) continue;
    out.push_back({int(i), scale.span(entry.waited), entry.waits, entry.service_bytes, entry.service_nanoseconds, int(std::min(entry.state, 2u)),
                   entry.resent, entry.retransmitted, entry.mended, text_of(entry.wire), text_of(entry.way)});
  }
  return out;
}

Status check(const Header& h, std::size_t size) {
  const auto no = [](const std::string& why) { return Status(Code::invalid_argument, "no recorder's file: " + why); };
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) return no("it begins with something else");
  if (h.version != kVersion) return no(fmt::format("format {}, this program reads {}", h.version, kVersion));
  if (h.header_bytes != kHeaderBytes || h.operations != kOperations || h.events != kEvents || h.peers > kMostPeers) return no("its tables have other sizes");
  if (size < file_bytes(h.peers)) return no(fmt::format("it has {} bytes of {}", size, file_bytes(h.peers)));
  if (h.rank_count < 1 || h.rank < 0 || h.rank >= h.rank_count) return no(fmt::format("rank {} of {}", h.rank, h.rank_count));
  return {};
}

Recording::Life life_of(const Recording& recording, const std::string& path) {
  if (recording.host_identity != read_host_facts().identity) return Recording::Life::unknown;
  if (!is_held(path)) return Recording::Life::dead;
  const ProcessState state = process_state(recording.pid);
  if (!state.there || state.start != recording.process_start) return Recording::Life::dead;   // a child holds the file
  return state.stopped ? Recording::Life::stopped : Recording::Life::running;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t more = c < 0x80 ? 0 : c >> 5 == 6 ? 1 : c >> 4 == 14 ? 2 : c >> 3 == 30 ? 3 : 9;
    bool good = more <= 3 && i + more < text.size() && (more > 0 || (c >= 0x20 && c != 0x7f));
    for (std::size_t k = 1; good && k <= more; ++k) good = (static_cast<unsigned char>(text[i + k]) >> 6) == 2;
    out += good ? std::string(text.substr(i, more + 1)) : "?";
    i += good ? more + 1 : 1;
  }
  return out;
}

Result<Recording> parse(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) return Status(Code::invalid_argument, fmt::format("no recorder's file: it has {} bytes", bytes.size()));
  Header h;
  std::memcpy(&h, bytes.data(), sizeof h);
  if (Status status = check(h, bytes.size()); !status) return status;
  const Timescale scale(h.first, h.last);
  Recording out;
  out.job = h.job;
  out.host_identity = h.host_identity;
  out.process_start = h.process_start;
  out.rank = h.rank;
  out.rank_count = h.rank_count;
  out.pid = h.pid;
  out.host = text_of(h.host);
  out.library = text_of(h.library);
  out.end = h.end <= std::uint32_t(End::failed) ? End(h.end) : End::failed;
  out.begun = scale.wall(h.first.ticks);
  out.last_beat = scale.wall(h.last.ticks);
  if (h.verdict_stamp != 0 && h.verdict_code > 0 && h.verdict_code <= std::uint32_t(kLastCode))
    out.verdict.push_back({h.verdict_communicator, Status(Code(h.verdict_code), text_of(h.verdict), h.verdict_culprit), scale.wall(h.verdict_ticks)});
  auto rest = bytes.subspan(kHeaderBytes);
  for (const auto& entry : ring<OperationEntry>(rest, kOperations, out.torn)) {
    const Operation operation = operation_of(entry, scale);
    if (entry.run) tell_run(entry, operation, out.operations);
    else out.operations.push_back(operation);
    if (out.operations.size() > 2 * kMostOperations) keep_newest(out.operations);
  }
  keep_newest(out.operations);
  rest = rest.subspan(kOperations * sizeof(OperationEntry));
  for (const auto& entry : ring<EventEntry>(rest, kEvents, out.torn)) out.events.push_back(event_of(entry, scale));
  rest = rest.subspan(kEvents * sizeof(EventEntry));
  out.peers = peers_of(rest, h.peers, scale);
  return out;
}

Result<Recording> read_recording(const std::string& path) {
  const auto failed = [&](const std::string& why) { return Status(Code::invalid_argument, path + ": " + why); };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return failed(errno_text(errno));
  struct stat found {};
  if (::fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
    ::close(fd);
    return failed("not a file");
  }
  std::vector<std::byte> bytes(std::min<std::size_t>(std::size_t(found.st_size), file_bytes(kMostPeers)));
  std::size_t have = 0;
  for (ssize_t got; have < bytes.size() && (got = ::pread(fd, bytes.data() + have, bytes.size() - have, off_t(have))) > 0;) have += std::size_t(got);
  ::close(fd);
  bytes.resize(have);
  auto recording = parse(bytes);
  if (!recording) return failed(recording.status().text());
  recording->path = path;
  recording->life = life_of(*recording, path);
  return recording;
}

}  // namespace tutti::record
