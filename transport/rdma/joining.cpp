#include "transport/rdma/joining.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/rdma/bytes.h"
#include "transport/rdma/rdma_transport.h"

namespace tutti::transport::rdma {
namespace {

constexpr std::uint32_t kVersion = 0x52440002;      // of everything that two ranks say by this transport
constexpr std::size_t kMostFrameBytes = 128 << 10;     // what is unsure of all writes under way
constexpr std::size_t kMostTextBytes = 4096;

}  // namespace

std::vector<std::byte> encode(const Proposal& proposal) {
  const std::vector<std::byte> offer = encode(proposal.offer);
  std::vector<std::byte> out;
  append(out, kVersion);
  append(out, proposal.queues);
  append(out, std::uint32_t(offer.size()));
  append_bytes(out, offer.data(), offer.size());
  append_bytes(out, proposal.why_not.data(), std::min(proposal.why_not.size(), kMostTextBytes));
  return out;
}

Result<Proposal> decode_proposal(std::span<const std::byte> bytes) {
  std::uint32_t version = 0, offer_bytes = 0;
  Proposal out;
  const Status nonsense(Code::network, "rdma: what the peer proposes cannot be read");
  if (!take(bytes, version) || !take(bytes, out.queues) || !take(bytes, offer_bytes)) return nonsense;
  if (version != kVersion) return Status(Code::network, fmt::format("rdma: the peer speaks version {:#x} of the RDMA transport, this side {:#x}", version, kVersion));
  if (bytes.size() < offer_bytes) return nonsense;
  auto offer = decode_offer(bytes.first(offer_bytes));
  if (!offer) return offer.status();
  out.offer = std::move(*offer);
  out.why_not = text_of(bytes.subspan(offer_bytes));
  return out;
}

Task<Status> send_frame(Loop& loop, Stream& stream, std::vector<std::byte> own, TimePoint deadline) {
  const auto bytes = std::uint32_t(own.size());
  std::vector<std::byte> frame;
  append(frame, bytes);
  append_bytes(frame, own.data(), own.size());
  const std::span<const std::byte> out(frame);
  auto writing = write_all(loop, stream, out, deadline);
  const Status status = co_await writing;
  co_return status;
}

Task<Result<std::vector<std::byte>>> receive_frame(Loop& loop, Stream& stream, TimePoint deadline) {
  std::uint32_t bytes = 0;
  const std::span<std::byte> head(reinterpret_cast<std::byte*>(&bytes), sizeof bytes);
  auto reading_head = read_exact(loop, stream, head, deadline);
  Status status = co_await reading_head;
  if (!status) co_return status;
  if (bytes > kMostFrameBytes) co_return Status(Code::network, "rdma: the peer sends a frame that is too long");
  std::vector<std::byte> theirs(bytes);
  const std::span<std::byte> body(theirs);
  auto reading = read_exact(loop, stream, body, deadline);
  status = co_await reading;
  if (!status) co_return status;
  co_return std::move(theirs);
}

Task<Result<std::vector<std::byte>>> exchange(Loop& loop, Stream& stream, std::vector<std::byte> own, TimePoint deadline) {
  auto sending = send_frame(loop, stream, std::move(own), deadline);
  const Status sent = co_await sending;
  if (!sent) co_return sent;
  auto receiving = receive_frame(loop, stream, deadline);
  auto theirs = co_await receiving;
  co_return theirs;
}

Task<Status> agree(Loop& loop, Stream& stream, Status own, TimePoint deadline, bool& broken) {
  std::vector<std::byte> text;
  append_bytes(text, own.text().data(), std::min(own.text().size(), kMostTextBytes));
  auto exchanging = exchange(loop, stream, std::move(text), deadline);
  const auto theirs = co_await exchanging;
  broken = !theirs.ok();
  if (broken) co_return theirs.status();
  if (!own.ok()) co_return own;
  if (theirs->empty()) co_return Status();
  co_return Status(Code::unsupported, "on its side: " + std::string(text_of(*theirs)));
}

Task<void> decline(Loop& loop, std::vector<std::unique_ptr<Stream>> sockets, std::string why, RdmaTransport::OnReady on_ready) {
  const Proposal none{{}, 1, why};
  std::vector<std::byte> own = encode(none);
  auto exchanging = exchange(loop, *sockets[0], std::move(own), loop.now() + kJoinLimit);
  const auto theirs = co_await exchanging;
  if (!theirs) sockets.clear();
  const Status status = theirs ? Status(Code::unsupported, why) : theirs.status();
  on_ready(status, std::move(sockets));
}

}  // namespace tutti::transport::rdma
