#include "comm/metrics.h"

#include <fmt/format.h>

#include <charconv>

namespace tutti::comm {
namespace {

constexpr std::size_t kLongestRequest = 1024;
constexpr std::chrono::seconds kLimit{5};              // for a request and its answer

}  // namespace

Metrics::Metrics(Loop& loop, const std::string& where, int rank, int local_rank, std::function<std::string()> text) : loop_(loop), text_(std::move(text)) {
  int port = 0;
  const auto [end, error] = std::from_chars(where.data(), where.data() + where.size(), port);
  if (where.starts_with('@')) {
    address_ = fmt::format("{}-{}", where, rank);
  } else if (error == std::errc() && end == where.data() + where.size() && port > 0 && port + local_rank < 65536) {
    address_ = fmt::format("127.0.0.1:{}", port + local_rank);
  } else {
    status_ = Status(Code::invalid_argument, fmt::format("TUTTI_METRICS={}: wanted a port, or \"@name\"", where));
    return;
  }
  auto acceptor = loop.network().listen(address_, [this](std::unique_ptr<Stream> stream) { enter(std::move(stream)); });
  if (acceptor) acceptor_ = std::move(*acceptor);
  else status_ = Status(acceptor.status().code(), fmt::format("TUTTI_METRICS={}: {}", where, acceptor.status().text()));
}

void Metrics::enter(std::unique_ptr<Stream> stream) {
  if (visitors_.size() >= kMostVisitors) return;
  Visitor& visitor = visitors_.emplace_back();
  visitor.stream = std::move(stream);
  visitor.limit = loop_.at(loop_.now() + kLimit, [this, &visitor] { leave(visitor); });
  visitor.stream->when_readable([this, &visitor] { hear(visitor); });
}

void Metrics::hear(Visitor& visitor) {
  std::byte buffer[256];
  const IoResult io = visitor.stream->read(buffer);
  if (!io.status.ok() || io.closed) return leave(visitor);
  visitor.request.append(reinterpret_cast<const char*>(buffer), io.bytes);
  const bool whole = visitor.request.find("\r\n\r\n") != std::string::npos || visitor.request.find("\n\n") != std::string::npos;
  if (!whole && visitor.request.size() < kLongestRequest) return;
  visitor.stream->when_readable({});
  const bool asks = visitor.request.starts_with("GET /metrics") || visitor.request.starts_with("GET / ");
  const std::string body = asks ? text_() : "there is /metrics\n";
  visitor.answer = fmt::format("HTTP/1.0 {}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                               asks ? "200 OK" : "404 Not Found", body.size(), body);
  say(visitor);
}

void Metrics::say(Visitor& visitor) {
  while (!visitor.answer.empty()) {
    const iovec part{visitor.answer.data(), visitor.answer.size()};
    const IoResult io = visitor.stream->write({&part, 1});
    if (!io.status.ok()) return leave(visitor);
    if (io.bytes == 0) return visitor.stream->when_writable([this, &visitor] { say(visitor); });
    visitor.answer.erase(0, io.bytes);
  }
  leave(visitor);
}

// Not from within its own callbacks: they are still running.
void Metrics::leave(Visitor& visitor) {
  visitor.stream->when_readable({});
  visitor.stream->when_writable({});
  visitor.limit = loop_.at(loop_.now(), [this, &visitor] { visitors_.remove_if([&](const Visitor& v) { return &v == &visitor; }); });
}

std::string metric_head(const char* name, const char* kind, const char* help) { return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind); }

std::string sample(const char* name, const std::string& labels, double value) { return fmt::format("{}{{{}}} {}\n", name, labels, value); }

std::string metric(const char* name, const char* kind, const char* help, const std::string& labels, double value) {
  return metric_head(name, kind, help) + sample(name, labels, value);
}

}  // namespace tutti::comm
