#include "comm/metrics.h"

#include <fmt/format.h>

#include <charconv>

#include "comm/engine.h"
#include "comm/member.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti::comm {
namespace {

constexpr std::size_t kLongestRequest = 1024;
constexpr std::chrono::seconds kLimit{5};              // for a request and its answer

// Of the devices' own: packets sent again by hardware are seen nowhere else.
std::string port_metrics(const transport::RdmaTransport& rdma, int rank) {
  std::string out;
  for (const transport::rdma::PortError& error : rdma.port_errors())
    out += sample("tutti_rdma_port_errors_total", fmt::format("rank=\"{}\",device=\"{}\",port=\"{}\",counter=\"{}\"", rank, error.device, error.port, error.name), double(error.count));
  return out.empty() ? "" : metric_head("tutti_rdma_port_errors_total", "counter", "What the port's driver counts, of all that use it: the kernel's names.") + out;
}

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

// What an engine counts.

// By peer: what it is reached by, and what was sent to it again.
std::string Engine::link_metrics() const {
  std::string frames, segments, ways;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const std::string labels = fmt::format("rank=\"{}\",peer=\"{}\"", world_rank_, i);
    if (peers_[i].state == Peer::up) ways += sample("tutti_link_info", fmt::format("{},way=\"{}\"", labels, peers_[i].wire.connection->describe()), 1);
    if (by_rdma(int(i))) frames += sample("tutti_link_resent_frames_total", labels, double(rdma_->sent_again(int(i))));
    if (peers_[i].wire.transport != tcp_.get()) continue;
    const auto repairs = tcp_->repairs(int(i));
    frames += sample("tutti_link_resent_frames_total", labels, double(repairs.frames));
    segments += sample("tutti_link_retransmitted_segments_total", labels, double(repairs.segments));
  }
  if (!ways.empty()) ways = metric_head("tutti_link_info", "gauge", "The wire to that peer, with its addresses or devices.") + ways;
  if (frames.empty()) return ways;
  if (!segments.empty()) segments = metric_head("tutti_link_retransmitted_segments_total", "counter", "TCP segments that the kernel sent again to that peer.") + segments;
  return ways + metric_head("tutti_link_resent_frames_total", "counter", "Frames sent again to that peer.") + frames + segments;
}

std::string Engine::rdma_metrics() const {
  if (!rdma_) return "";
  const std::string rank = fmt::format("rank=\"{}\"", world_rank_);
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) { return metric(name, "counter", help, rank, double(value)); };
  const transport::rdma::RdmaCounters& rdma = rdma_->counters();
  return counter("tutti_rdma_sent_bytes_total", "Bytes written to peers, small messages' headers included.", rdma.bytes_out) +
         counter("tutti_rdma_socket_bytes_total", "Of those, the ones that went over a socket, because no RDMA rail worked.", rdma.socket_bytes_out) +
         counter("tutti_rdma_copied_bytes_total", "Payload copied on its way to a device, or from where it landed.", rdma.copied_out + rdma.copied_in) +
         counter("tutti_rdma_work_requests_total", "Writes posted.", rdma.work_requests) +
         counter("tutti_rdma_doorbells_total", "Calls of the device that posted writes or receives.", rdma.doorbells) +
         counter("tutti_rdma_completions_total", "Completions of writes.", rdma.completions) +
         counter("tutti_rdma_arrivals_total", "Writes of peers.", rdma.arrivals) +
         counter("tutti_rdma_registrations_total", "Registrations of users' memory.", rdma.registrations) +
         counter("tutti_rdma_breaks_total", "Connections of which all queue pairs had failed.", rdma.breaks) +
         counter("tutti_rdma_rebuilt_queue_pairs_total", "Queue pairs made in place of those.", rdma.rebuilt) +
         counter("tutti_rdma_over_sockets_total", "Times that a socket took their place, because no rail worked.", rdma.over_sockets) +
         counter("tutti_rdma_resent_total", "Writes sent again after that.", rdma.sent_again) + port_metrics(*rdma_, world_rank_);
}

std::string Engine::metrics_text() const {
  const std::string rank = fmt::format("rank=\"{}\"", world_rank_);
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) { return metric(name, "counter", help, rank, double(value)); };
  const auto gauge = [&](const char* name, const char* help, std::uint64_t value) { return metric(name, "gauge", help, rank, double(value)); };
  const transport::TcpCounters& tcp = tcp_->counters();
  std::uint64_t broken = 0;
  for (const auto& [id, member] : members_) broken += !member->broken().ok();
  return counter("tutti_operations_completed_total", "Operations that ended well.", totals_.completed) +
         counter("tutti_operations_failed_total", "Operations that did not.", totals_.failed) +
         counter("tutti_moved_bytes_total", "Bytes sent, received and added by their steps.", totals_.moved) +
         gauge("tutti_operations_pending", "Operations under way.", pending_.size()) +
         gauge("tutti_communicators", "Communicators of this rank.", members_.size()) +
         gauge("tutti_communicators_broken", "Those that have failed.", broken) +
         counter("tutti_tcp_sent_bytes_total", "Bytes on the wire, headers included.", tcp.bytes_out) +
         counter("tutti_tcp_received_bytes_total", "Bytes from the wire, headers included.", tcp.bytes_in) +
         counter("tutti_tcp_resent_frames_total", "Frames sent again: damaged ones, and those of connections that broke.", tcp.resends) +
         counter("tutti_tcp_damaged_frames_total", "Payloads with a wrong checksum.", tcp.damaged) +
         counter("tutti_tcp_lost_sockets_total", "Sockets that broke or were replaced.", tcp.sockets_lost) + link_metrics() + rdma_metrics() +
         gauge("tutti_memory_bytes", "Memory that the library holds for this rank.", memory_bytes());
}

}  // namespace tutti::comm
