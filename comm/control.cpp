#include "comm/control.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/tls_stream.h"

namespace tutti::comm {
namespace {

// A frame: length 4 (of what follows), kind 1, origin 4, number 4, payload.
constexpr std::size_t kFrameHead = 9;

// More than a cut link can have swallowed: a socket's buffers hold less of what is small and seldom said.
constexpr std::size_t kSaidBytes = 512 << 10;

}  // namespace

bool Control::Seen::insert(std::uint32_t number) {
  if (number < next || !above.insert(number).second) return false;
  while (above.erase(next)) ++next;
  return true;
}

Control::Control(int own_rank, const std::vector<RankInfo>& ranks, std::map<int, std::unique_ptr<Stream>> links)
    : own_rank_(own_rank), ranks_(ranks) {
  for (auto& [rank, stream] : links) {
    links_[rank].stream = std::move(stream);
    links_[rank].stream->when_readable([this, r = rank] { readable(r); });
  }
}

Control::~Control() {
  auto bytes = frame(Kind::goodbye, own_rank_, 0, {});
  for (auto& [rank, link] : links_)
    if (link.stream) write(link, bytes);
}

std::vector<std::byte> Control::frame(Kind kind, int origin, std::uint32_t number, std::span<const std::byte> payload) {
  ByteWriter out;
  out.number(std::uint32_t(kFrameHead + payload.size()))
      .number(std::uint8_t(kind))
      .number(std::uint32_t(origin))
      .number(number)
      .raw(payload);
  return out.take();
}

std::vector<std::byte> Control::lost_frame(int rank, const std::string& text) {
  return frame(Kind::lost, rank, 0, std::as_bytes(std::span(text)));
}

std::optional<Status> Control::read_lost(std::span<const std::byte> body) {
  if (body.size() < kFrameHead || Kind(body[0]) != Kind::lost) return std::nullopt;
  ByteReader in(body);
  in.number<std::uint8_t>();
  const int rank = int(in.number<std::uint32_t>());
  in.number<std::uint32_t>();
  const auto text = in.rest();
  return Status(Code::peer_lost, std::string(reinterpret_cast<const char*>(text.data()), text.size()), rank);
}

Status Control::spread(std::span<const std::byte> message) {
  if (message.size() > kMaxMessageBytes)
    return {Code::invalid_argument, fmt::format("a control message of {} bytes", message.size())};
  forward(own_rank_, frame(Kind::flood, own_rank_, next_number_++, message));
  return {};
}

std::vector<int> Control::neighbours() const {
  std::vector<int> out;
  for (const auto& [rank, link] : links_) out.push_back(rank);
  return out;
}

void Control::on_message(std::function<void(int, std::span<const std::byte>)> callback) {
  on_message_ = std::move(callback);
  Alive alive = alive_;
  auto early = std::move(early_messages_);
  early_messages_.clear();
  for (auto& [from, message] : early) {
    if (alive.expired()) return;
    tell_message(from, message);
  }
}

void Control::on_lost(std::function<void(int, const Status&)> callback) {
  on_lost_ = std::move(callback);
  Alive alive = alive_;
  auto early = std::move(early_losses_);
  early_losses_.clear();
  auto tell = on_lost_;
  for (auto& [rank, why] : early) {
    if (alive.expired()) return;
    tell(rank, why);
  }
}

void Control::tell_message(int from, std::span<const std::byte> message) {
  if (!on_message_)
    return void(early_messages_.emplace_back(from, std::vector<std::byte>(message.begin(), message.end())));
  auto tell = on_message_;  // it may replace itself, or destroy this object
  tell(from, message);
}

void Control::tell_lost(int rank, const std::string& text, bool hung_up) {
  Status why(hung_up ? Code::peer_lost : Code::timeout, text, rank);
  if (!on_lost_) return void(early_losses_.emplace_back(rank, std::move(why)));
  auto tell = on_lost_;
  tell(rank, why);
}

void Control::readable(int rank) {
  Link& link = links_.at(rank);
  Alive alive = alive_;
  for (;;) {
    std::byte buffer[4096];
    IoResult io = link.stream->read(buffer);
    if (!io.status || io.closed)
      return end(rank, io.closed ? "its control connection was closed" : io.status.text(),
                 io.status.code() != Code::timeout);
    if (io.bytes == 0) return;
    link.in.insert(link.in.end(), buffer, buffer + io.bytes);
    if (!parse(rank, link) || alive.expired()) return;
  }
}

bool Control::parse(int rank, Link& link) {
  Alive alive = alive_;
  std::size_t at = 0;
  while (link.in.size() - at >= 4) {
    std::size_t bytes = ByteReader(std::span(link.in).subspan(at)).number<std::uint32_t>();
    if (bytes < kFrameHead || bytes > kFrameHead + kMaxMessageBytes)
      return end(rank, "it sent something that is no control message"), false;
    if (link.in.size() - at - 4 < bytes) break;
    // Moved out: what is called may come back here or destroy this object.
    std::vector<std::byte> body(link.in.begin() + std::ptrdiff_t(at + 4),
                                link.in.begin() + std::ptrdiff_t(at + 4 + bytes));
    at += 4 + bytes;
    if (!take(rank, body) || alive.expired() || !link.stream) return false;
  }
  link.in.erase(link.in.begin(), link.in.begin() + std::ptrdiff_t(at));
  return true;
}

bool Control::take(int rank, std::span<const std::byte> body) {
  ByteReader in(body);
  auto kind = Kind(in.number<std::uint8_t>());
  int origin = int(in.number<std::uint32_t>());
  auto number = in.number<std::uint32_t>();
  auto payload = in.rest();
  if (origin < 0 || origin >= int(ranks_.size())) return end(rank, "it sent a control message of no rank"), false;
  switch (kind) {
    case Kind::goodbye:
      left_.insert(rank);
      links_.at(rank).stream.reset();
      return false;
    case Kind::flood:
      if (origin == own_rank_ || !seen_[origin].insert(number)) return true;
      forward(rank, frame(kind, origin, number, payload));
      tell_message(origin, payload);
      return true;
    case Kind::lost:
      if (origin == own_rank_) return true;  // somebody's link to this rank has failed; the verdict comes separately
      lose(origin, std::string(reinterpret_cast<const char*>(payload.data()), payload.size()), number == 0);
      return true;
  }
  return end(rank, "it sent an unknown control message"), false;
}

void Control::write(Link& link, std::span<const std::byte> bytes) {
  link.out.insert(link.out.end(), bytes.begin(), bytes.end());
  flush(link);
}

void Control::flush(Link& link) {
  while (!link.out.empty()) {
    iovec part{link.out.data(), link.out.size()};
    IoResult io = link.stream->write(std::span<const iovec>(&part, 1));
    if (!io.status) return link.out.clear();  // reading will find the end, and whose it is
    link.out.erase(link.out.begin(), link.out.begin() + std::ptrdiff_t(io.bytes));
    if (io.bytes == 0) return link.stream->when_writable([this, &link] { flush(link); });
  }
  link.stream->when_writable({});
}

void Control::forward(int except, std::span<const std::byte> bytes) {
  said_.emplace_back(bytes.begin(), bytes.end());
  said_bytes_ += bytes.size();
  for (; said_bytes_ > kSaidBytes; said_.pop_front()) said_bytes_ -= said_.front().size();
  for (auto& [rank, link] : links_)
    if (rank != except && link.stream) write(link, bytes);
}

bool Control::linked_within_host(int rank) const { return linked(rank) && is_unix(*links_.at(rank).stream); }

void Control::end(int rank, const std::string& how, bool hung_up) {
  Link& link = links_.at(rank);
  const bool network = !is_unix(*link.stream);
  link = {};
  if (left_.count(rank)) return;
  std::string text = fmt::format("{} is gone: {} (was it killed, or did it fail? see its own output)",
                                 ranks_[std::size_t(rank)].describe(), how);
  if (!network || !hung_up || !on_cut_) return lose(rank, text, hung_up);
  link.cut = std::move(text);
  on_cut_(rank);
}

void Control::lost(int rank, const std::string& text) {
  const auto link = links_.find(rank);
  const bool cut = link != links_.end() && !link->second.cut.empty();
  lose(rank, cut ? link->second.cut : text, true);
}

void Control::unreachable(int rank, const std::string& text) {
  const auto link = links_.find(rank);
  const bool cut = link != links_.end() && !link->second.cut.empty();
  lose(rank, cut ? link->second.cut + "; " + text : text, false);
}

void Control::lose(int rank, const std::string& text, bool hung_up) {
  if (left_.count(rank) || !lost_.insert(rank).second) return;
  if (!hung_up) unreachable_.insert(rank);
  forward(rank, frame(Kind::lost, rank, hung_up ? 0 : 1, std::as_bytes(std::span(text))));
  tell_lost(rank, text, hung_up);
}

void Control::add_link(int rank, std::unique_ptr<Stream> stream) {
  Link& link = links_[rank];
  link = {};
  link.stream = std::move(stream);
  for (const std::vector<std::byte>& bytes : said_) write(link, bytes);
  link.stream->when_readable([this, rank] { readable(rank); });
}

}  // namespace tutti::comm
