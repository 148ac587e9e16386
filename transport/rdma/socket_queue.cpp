#include "transport/rdma/socket_queue.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "transport/ranges.h"

namespace tutti::transport::rdma {

SocketQueue::SocketQueue(std::unique_ptr<Stream> stream, std::uint32_t id, RdmaCounters& counters, Place place, GpuDirect* const& gpu)
    : Queue(id, counters), stream_(std::move(stream)), description_(fmt::format("over a socket, {} -> {}", stream_->local_address(), stream_->remote_address())), place_(std::move(place)), gpu_(gpu) {
  usable_ = true;
  stream_->when_readable([] {});       // what comes ends a sleep; poll() reads it
}

void SocketQueue::stop() {
  usable_ = false;
  out_.clear();
  stream_.reset();
}

Status SocketQueue::write(const WriteRequest& request, bool signaled, const Posted& posted) {
  Out out{{1, request.immediate, request.bytes, 0}, request.data};
  if (gpu_ && of_gpu(request.data, request.bytes)) {
    out.copy.resize(request.bytes);
    if (const Status status = gpu_->copy(out.copy.data(), request.data, request.bytes); !status) return status;
    out.data = out.copy.data();
    counters_.copied_out += request.bytes;
  }
  out_.push_back(std::move(out));
  keep(posted, request.bytes, signaled);
  counters_.socket_bytes_out += request.bytes;
  return {};
}

bool SocketQueue::fail(std::string why) {
  if (why_.empty()) why_ = std::move(why);
  return false;
}

bool SocketQueue::poll(const OnCompletion& on_completion) {
  if (!usable_) return false;
  bool any = send();
  if (why_.empty()) any |= receive(on_completion);
  if (usable_ && why_.empty()) flush();
  if (!usable_ || why_.empty() || told_) return any;
  told_ = true;
  ibv_wc failed{};
  failed.wr_id = std::uint64_t(id_) << 32;
  failed.status = IBV_WC_GENERAL_ERR;
  on_completion(failed);
  return true;
}

void SocketQueue::flush() {
  if (!usable_) return;
  if (taken_told_ != taken_ && out_.empty()) out_.push_back({{0, 0, 0, 0}, nullptr});
  (void)send();
  if (out_.empty()) stream_->when_writable({});
  else stream_->when_writable([] {});
}

bool SocketQueue::send() {
  bool any = false;
  while (!out_.empty() && why_.empty()) {
    std::array<iovec, 32> pieces;
    std::size_t count = 0, wanted = 0;
    for (auto out = out_.begin(); out != out_.end() && count + 2 <= pieces.size(); ++out) {
      if (out->sent == 0) out->frame.taken = taken_told_ = taken_;
      const std::size_t head = std::min(out->sent, sizeof(Frame));
      if (head < sizeof(Frame)) pieces[count++] = {reinterpret_cast<std::byte*>(&out->frame) + head, sizeof(Frame) - head};
      const std::size_t body = out->sent - head;
      if (body < out->frame.bytes) pieces[count++] = {const_cast<std::byte*>(out->data) + body, out->frame.bytes - body};
    }
    for (std::size_t i = 0; i < count; ++i) wanted += pieces[i].iov_len;
    const IoResult written = stream_->write(std::span<const iovec>(pieces.data(), count));
    if (!written.status.ok()) return fail(written.status.text());
    any |= written.bytes > 0;
    for (std::size_t left = written.bytes; left > 0;) {
      Out& out = out_.front();
      const std::size_t part = std::min(left, sizeof(Frame) + out.frame.bytes - out.sent);
      out.sent += part;
      left -= part;
      if (out.sent == sizeof(Frame) + out.frame.bytes) out_.pop_front();
    }
    if (written.bytes < wanted) break;
  }
  return any;
}

bool SocketQueue::receive(const OnCompletion& on_completion) {
  bool any = false;
  for (std::size_t got = 0; got < kReadBytes && usable_ && why_.empty();) {
    const bool head = left_ == 0;
    const std::span<std::byte> into = head ? std::span(reinterpret_cast<std::byte*>(&in_) + in_head_, sizeof in_ - in_head_) : std::span(into_, left_);
    const IoResult read = stream_->read(into);
    if (!read.status.ok()) return fail(read.status.text());
    if (read.closed) return fail("the peer has closed the socket");
    if (read.bytes == 0) break;
    any = true;
    got += read.bytes;
    if (head) {
      in_head_ += read.bytes;
      if (in_head_ < sizeof in_) continue;
      in_head_ = 0;
      peer_took(in_.taken, on_completion);
      if (!usable_ || in_.is_write == 0) continue;
      if (!begin_payload()) return any;
    } else {
      into_ += read.bytes;
      left_ -= std::uint32_t(read.bytes);
    }
    if (left_ == 0 && !arrived(on_completion)) return any;
  }
  return any;
}

bool SocketQueue::begin_payload() {
  left_ = in_.bytes;
  into_ = left_ > 0 ? place_(in_.immediate, in_.bytes) : nullptr;
  if (left_ > 0 && !into_) return fail("the peer sends a write that belongs nowhere");
  gpu_place_ = nullptr;
  if (gpu_ && of_gpu(into_, left_)) {
    gpu_place_ = into_;
    landing_.resize(left_);
    into_ = landing_.data();
  }
  return true;
}

bool SocketQueue::arrived(const OnCompletion& on_completion) {
  if (gpu_place_) {
    if (const Status status = gpu_->copy(gpu_place_, landing_.data(), in_.bytes); !status) return fail(status.text());
    counters_.copied_in += in_.bytes;
  }
  ++taken_;
  ibv_wc completion{};
  completion.wr_id = std::uint64_t(id_) << 32 | kReceiveFlag;
  completion.byte_len = in_.bytes;
  completion.imm_data = htonl(in_.immediate);
  on_completion(completion);
  return true;
}

void SocketQueue::peer_took(std::uint32_t taken, const OnCompletion& on_completion) {
  if (taken == peer_taken_ || std::int32_t(sequence_ - taken) < 0) return;
  peer_taken_ = taken;
  ibv_wc completion{};
  completion.wr_id = std::uint64_t(id_) << 32 | ((taken - 1) & ~kReceiveFlag);
  on_completion(completion);
}

}  // namespace tutti::transport::rdma
