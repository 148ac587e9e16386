#include "transport/rdma/queue_pair.h"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>

#include "core/check.h"
#include "core/errno_text.h"
#include "transport/ranges.h"

namespace tutti::transport::rdma {
namespace {

constexpr std::uint32_t kWantedInline = 256;      // a cell with a small payload

double seconds(int timeout) { return 4.096e-6 * double(1u << unsigned(timeout)); }

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::make(Device& device, std::size_t index, std::uint32_t id, RdmaCounters& counters) {
  std::unique_ptr<QueuePair> out(new QueuePair(device, index, id, counters));
  if (Status status = device.make_room(int(kSends + kReceives)); !status) return status;
  out->counted_ = true;
  ibv_qp_init_attr wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = wanted.recv_cq = device.completions();
  wanted.cap = {kSends, kReceives, 1, 1, kWantedInline};
  out->pair_ = device.verbs().create_qp(device.domain(), &wanted);
  if (!out->pair_) {
    wanted.cap = {kSends, kReceives, 1, 1, 0};
    out->pair_ = device.verbs().create_qp(device.domain(), &wanted);
  }
  if (!out->pair_) return Status(Code::out_of_resources, fmt::format("{}: ibv_create_qp: {}", device.port().name(), errno_text(errno)));
  out->inline_bytes_ = wanted.cap.max_inline_data;
  out->first_packet_ = std::random_device()() & 0xffffff;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = std::uint8_t(device.port().number);
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  if (Status status = out->modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "init"); !status) return status;
  return out;
}

QueuePair::~QueuePair() {
  if (pair_) device_.verbs().destroy_qp(pair_);
  if (counted_) (void)device_.make_room(-int(kSends + kReceives));
}

Status QueuePair::modify(ibv_qp_attr& attributes, int mask, const char* state) {
  const int error = device_.verbs().modify_qp(pair_, &attributes, mask);
  if (error == 0) return {};
  return Status(Code::network, fmt::format("{}: queue pair to {} ({}): {}", device_.port().name(), peer_gid_.text(), state, errno_text(error)));
}

Status QueuePair::connect(const QueueAddress& peer, const Gid& own_gid, int mtu, const QueueOptions& options) {
  own_gid_ = own_gid;
  peer_gid_ = peer.gid;
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = ibv_mtu(mtu);
  a.dest_qp_num = peer.number;
  a.rq_psn = peer.first_packet;
  a.max_dest_rd_atomic = 1;
  a.min_rnr_timer = 12;
  a.ah_attr.port_num = std::uint8_t(device_.port().number);
  a.ah_attr.sl = std::uint8_t(options.service_level);
  a.ah_attr.dlid = peer.lid;
  a.ah_attr.is_global = device_.port().link == LinkLayer::ethernet;
  if (a.ah_attr.is_global) {
    std::memcpy(a.ah_attr.grh.dgid.raw, peer.gid.address.data(), 16);
    a.ah_attr.grh.sgid_index = std::uint8_t(own_gid_.index);
    a.ah_attr.grh.hop_limit = 64;
    a.ah_attr.grh.traffic_class = std::uint8_t(options.traffic_class);
  }
  Status status = modify(a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, "ready to receive");
  if (!status) return status;
  if (!post_receives(kReceives)) return Status(Code::network, fmt::format("{}: ibv_post_recv failed", describe()));
  a = {};
  a.qp_state = IBV_QPS_RTS;
  a.timeout = std::uint8_t(options.timeout);
  a.retry_cnt = std::uint8_t(std::min(options.retry, device_.most_retries()));
  a.rnr_retry = 7;                     // without end; credits see to it that receives are there
  a.sq_psn = first_packet_;
  a.max_rd_atomic = 1;
  status = modify(a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, "ready to send");
  usable_ = status.ok();
  peer_receives_ = kReceives;
  receives_told = kReceives;
  return status;
}

void QueuePair::stop() {
  usable_ = false;
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_ERR;
  (void)modify(a, IBV_QP_STATE, "error");       // fails only where it is in that state
}

std::string QueuePair::describe() const { return fmt::format("{} {} -> {}", device_.port().name(), own_gid_.text(), peer_gid_.text()); }

bool QueuePair::has_room(std::uint32_t writes, bool control) const {
  const std::uint32_t kept = control ? 0 : kControlReceives;
  return Queue::has_room(writes, control) && std::int32_t(peer_receives_ - kept - sent_) >= std::int32_t(writes);
}

Status QueuePair::write(const WriteRequest& wanted, bool signaled, const Posted& posted) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(wanted.data), wanted.bytes, wanted.local_key};
  ibv_send_wr request{}, *bad = nullptr;
  request.wr_id = std::uint64_t(id_) << 32 | (sequence_ & ~kReceiveFlag);
  request.sg_list = &piece;
  request.num_sge = wanted.bytes > 0;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htobe32(wanted.immediate);
  request.wr.rdma.remote_addr = wanted.address;
  request.wr.rdma.rkey = wanted.remote_key;
  signaled = signaled || unsignaled_ + 1 >= kSends / 4;      // the send queue is freed by completions alone
  if (signaled) request.send_flags |= IBV_SEND_SIGNALED;
  // The processor reads what goes inline: not the rest of a message in a GPU's memory.
  if (wanted.bytes > 0 && wanted.bytes <= inline_bytes_ && (posted.cell || !of_gpu(wanted.data, wanted.bytes))) request.send_flags |= IBV_SEND_INLINE, ++counters_.inlined;
  if (const int error = ibv_post_send(pair_, &request, &bad); error != 0) return Status(Code::network, fmt::format("{}: ibv_post_send: {}", describe(), errno_text(error)));
  ++counters_.doorbells;
  keep(posted, wanted.bytes, signaled);
  return {};
}

void QueuePair::used_receive() {
  if (++receives_used_ + kReceives - receives_posted_ >= kRepost && usable_) (void)post_receives(kRepost);      // fails with the queue pair, which tells
}

bool QueuePair::post_receives(std::uint32_t count) {
  std::array<ibv_recv_wr, kRepost> requests{};
  for (std::uint32_t done = 0; done < count; done += kRepost) {
    for (std::uint32_t i = 0; i < kRepost; ++i) {
      requests[i].wr_id = std::uint64_t(id_) << 32 | kReceiveFlag;
      requests[i].next = i + 1 < kRepost ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(pair_, requests.data(), &bad) != 0) return false;
    ++counters_.doorbells;
    receives_posted_ += kRepost;
  }
  return true;
}

std::string QueuePair::explain(ibv_wc_status status, const QueueOptions& options) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return fmt::format("no answer after {} retries of {:.3g} s (TUTTI_IB_RETRY, TUTTI_IB_TIMEOUT): the peer's process has ended, or the way to it is down or drops packets; check both ports' state, "
                         "the subnets of the GIDs, and flow control (PFC or ECN) for RoCE", options.retry, seconds(options.timeout));
    case IBV_WC_RNR_RETRY_EXC_ERR: return "the peer has no receive posted: it may be stopped, or run another version of tutti";
    case IBV_WC_REM_ACCESS_ERR: return "the peer's device refused the write: the memory is not registered there any more, or both run different versions of tutti";
    case IBV_WC_LOC_PROT_ERR: return "this side's device may not read the memory: was it freed while an operation was using it?";
    case IBV_WC_REM_OP_ERR: return "the peer's device failed to carry the write out: see its kernel's log";
    case IBV_WC_REM_INV_REQ_ERR: return "the peer's device calls the write invalid: both run different versions of tutti, or its firmware is at fault";
    case IBV_WC_WR_FLUSH_ERR: return "dropped, as the queue pair had failed before; the cause came with an earlier completion";
    case IBV_WC_LOC_LEN_ERR: case IBV_WC_LOC_QP_OP_ERR: return "this side's device calls the request invalid";
    case IBV_WC_FATAL_ERR: return "the device has failed: see the kernel's log";
    default: return fmt::format("completion status {}", int(status));
  }
}

}  // namespace tutti::transport::rdma
