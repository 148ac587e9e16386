// See fake_verbs.h.
#if __has_include(<infiniband/verbs.h>)
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "transport/rdma/cell.h"

namespace tutti::tests {

using transport::rdma::Gid;
using transport::rdma::GidKind;
using transport::rdma::LinkLayer;
using transport::rdma::Port;
using transport::rdma::Verbs;

FakeFabric* FakeFabric::current = nullptr;

struct FakeFabric::Device : ibv_device {
  int host = 0, rail = 0;
  Port port;
};
struct FakeFabric::Context : ibv_context {
  Device* made_of = nullptr;
};
struct FakeFabric::Queue : ibv_cq {
  std::deque<ibv_wc> ready;
  bool armed = false;
  std::size_t room = 0;
  unsigned unacknowledged = 0;
};
struct FakeFabric::Channel : ibv_comp_channel {
  Queue* queue = nullptr;
};
struct FakeFabric::Memory : ibv_mr {
  std::byte* bytes = nullptr;      // where they can be touched
  std::byte* at(std::uint64_t address) const { return bytes + (address - reinterpret_cast<std::uintptr_t>(addr)); }
};
struct FakeFabric::Pair : ibv_qp {
  struct Send {
    ibv_send_wr request;
    ibv_sge piece;
    std::vector<std::byte> inlined;
  };
  ibv_qp_state now = IBV_QPS_RESET;
  std::uint32_t there = 0;
  std::deque<Send> sends;
  std::deque<std::uint64_t> receives;
  ibv_qp_cap room{};
  Device* device() const { return static_cast<Context*>(context)->made_of; }
};

// Several threads may be hosts: one call at a time.
template <auto function>
struct Locked;
template <class Result, class... Arguments, Result (*function)(Arguments...)>
struct Locked<function> {
  static Result call(Arguments... arguments) {
    const std::lock_guard held(FakeFabric::mutex);
    return function(arguments...);
  }
};

struct FakeCalls {
  using F = FakeFabric;
  static F& fabric() { return *F::current; }

  static ibv_device** get_device_list(int* count) {
    auto** list = new ibv_device*[fabric().devices_.size() + 1];
    *count = 0;
    for (const auto& device : fabric().devices_)
      if (device->host == F::host_of_this_thread) list[(*count)++] = device.get();
    list[*count] = nullptr;
    return list;
  }
  static void free_device_list(ibv_device** list) { delete[] list; }
  static const char* get_device_name(ibv_device* device) { return device->name; }
  static ibv_context* open_device(ibv_device* device) {
    auto* context = new F::Context{};
    context->device = device;
    for (int* descriptor : {&context->cmd_fd, &context->async_fd}) *descriptor = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    context->made_of = static_cast<F::Device*>(device);
    context->ops.poll_cq = Locked<poll_cq>::call;
    context->ops.req_notify_cq = Locked<req_notify_cq>::call;
    context->ops.post_send = Locked<post_send>::call;
    context->ops.post_recv = Locked<post_recv>::call;
    ++fabric().objects_;
    return context;
  }
  static int close_device(ibv_context* context) {
    --fabric().objects_;
    for (const int descriptor : {context->cmd_fd, context->async_fd}) ::close(descriptor);
    delete static_cast<F::Context*>(context);
    return 0;
  }
  static int query_device(ibv_context*, ibv_device_attr* out) { return *out = {}, out->phys_port_cnt = 1, out->vendor_id = F::default_vendor, 0; }
  static int query_port(ibv_context* context, std::uint8_t, _compat_ibv_port_attr* compat) {
    const Port& port = static_cast<F::Context*>(context)->made_of->port;
    auto* out = reinterpret_cast<ibv_port_attr*>(compat);
    out->state = port.active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    out->active_mtu = ibv_mtu(port.mtu);
    out->gid_tbl_len = 16;
    out->lid = port.lid;
    out->active_speed = 32, out->active_width = 2;
    out->link_layer = port.link == LinkLayer::ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    return 0;
  }
  static int query_gid_ex(ibv_context* context, std::uint32_t, std::uint32_t index, ibv_gid_entry* out, std::uint32_t, std::size_t) {
    for (const Gid& gid : static_cast<F::Context*>(context)->made_of->port.gids) {
      if (gid.index != int(index)) continue;
      std::memcpy(out->gid.raw, gid.address.data(), 16);
      out->gid_type = std::uint32_t(gid.kind);
      return 0;
    }
    return ENODATA;
  }
  static ibv_pd* alloc_pd(ibv_context* context) { return ++fabric().objects_, new ibv_pd{context, 0}; }
  static int dealloc_pd(ibv_pd* domain) { return --fabric().objects_, delete domain, 0; }
  static ibv_mr* reg_mr(ibv_pd* domain, void* data, std::size_t bytes, int) {
    std::byte* const foreign = fabric().foreign(static_cast<std::byte*>(data), bytes);
    if (foreign && !fabric().takes_foreign) return errno = EFAULT, nullptr;
    return add(domain, data, bytes, foreign ? foreign : static_cast<std::byte*>(data));
  }
  static ibv_mr* add(ibv_pd* domain, void* data, std::size_t bytes, std::byte* touched) {
    if (fabric().registered_ + bytes > fabric().memory_limit) return errno = ENOMEM, nullptr;
    auto* memory = new F::Memory{};
    memory->context = domain->context;
    memory->pd = domain;
    memory->addr = data;
    memory->length = bytes;
    memory->bytes = touched;
    memory->lkey = memory->rkey = ++fabric().last_key_;
    fabric().memories_[memory->rkey] = memory;
    fabric().registered_ += bytes;
    ++fabric().objects_;
    return memory;
  }
  static ibv_mr* reg_mr_iova2(ibv_pd* domain, void* data, std::size_t bytes, std::uint64_t, unsigned access) {
    ibv_mr* memory = reg_mr(domain, data, bytes, int(access));
    if (memory) fabric().relaxed_ += (access & IBV_ACCESS_RELAXED_ORDERING) != 0;
    return memory;
  }
  static ibv_mr* reg_dmabuf_mr(ibv_pd* domain, std::uint64_t, std::size_t bytes, std::uint64_t address, int descriptor, int) {
    if (fabric().dmabuf_error) return errno = fabric().dmabuf_error, nullptr;
    auto* const data = reinterpret_cast<std::byte*>(address);
    std::byte* const foreign = fabric().foreign(data, bytes);
    if (::fcntl(descriptor, F_GETFD) < 0 || !foreign) return errno = EBADF, nullptr;
    ++fabric().dmabufs_;
    return add(domain, data, bytes, foreign);
  }
  static int dereg_mr(ibv_mr* memory) {
    fabric().memories_.erase(memory->rkey);
    fabric().registered_ -= memory->length;
    --fabric().objects_;
    delete static_cast<F::Memory*>(memory);
    return 0;
  }
  static ibv_comp_channel* create_comp_channel(ibv_context* context) {
    auto* channel = new F::Channel{};
    channel->context = context;
    channel->fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ++fabric().objects_;
    return channel;
  }
  static int destroy_comp_channel(ibv_comp_channel* channel) { return --fabric().objects_, ::close(channel->fd), delete static_cast<F::Channel*>(channel), 0; }
  static ibv_cq* create_cq(ibv_context* context, int room, void* user, ibv_comp_channel* channel, int) {
    auto* queue = new F::Queue{};
    queue->context = context;
    queue->channel = channel;
    queue->cq_context = user;
    queue->room = std::size_t(room);
    static_cast<F::Channel*>(channel)->queue = queue;
    ++fabric().objects_;
    return queue;
  }
  static int resize_cq(ibv_cq* queue, int room) { return static_cast<F::Queue*>(queue)->room = std::size_t(room), 0; }
  static int destroy_cq(ibv_cq* queue) {
    TUTTI_CHECK(static_cast<F::Queue*>(queue)->unacknowledged == 0);      // hardware would wait for ever
    return --fabric().objects_, delete static_cast<F::Queue*>(queue), 0;
  }
  static int get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void** user) {
    std::uint64_t count = 0;
    if (::read(channel->fd, &count, sizeof count) != sizeof count) return -1;
    *queue = static_cast<F::Channel*>(channel)->queue, *user = nullptr;
    ++static_cast<F::Channel*>(channel)->queue->unacknowledged;
    return 0;
  }
  static void ack_cq_events(ibv_cq* queue, unsigned count) { static_cast<F::Queue*>(queue)->unacknowledged -= count; }
  static ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
    auto* pair = new F::Pair{};
    pair->context = domain->context;
    pair->pd = domain;
    pair->send_cq = wanted->send_cq;
    pair->recv_cq = wanted->recv_cq;
    pair->qp_num = ++fabric().last_number_;
    pair->room = wanted->cap;
    fabric().pairs_[pair->qp_num] = pair;
    ++fabric().objects_;
    return pair;
  }
  static int modify_qp(ibv_qp* qp, ibv_qp_attr* wanted, int mask) {
    auto& pair = static_cast<F::Pair&>(*qp);
    if (!(mask & IBV_QP_STATE)) return EINVAL;
    if (wanted->qp_state == IBV_QPS_ERR) return fabric().fail(pair), 0;
    const ibv_qp_state before = wanted->qp_state == IBV_QPS_INIT ? IBV_QPS_RESET : wanted->qp_state == IBV_QPS_RTR ? IBV_QPS_INIT : IBV_QPS_RTR;
    if (pair.now != before) return EINVAL;
    if (wanted->qp_state == IBV_QPS_RTR) pair.there = wanted->dest_qp_num;
    pair.now = wanted->qp_state;
    if (mask & IBV_QP_RETRY_CNT) fabric().retries_ = wanted->retry_cnt;
    return 0;
  }
  static int destroy_qp(ibv_qp* qp) {
    auto* pair = static_cast<F::Pair*>(qp);
    for (ibv_cq* queue : {pair->send_cq, pair->recv_cq})      // as hardware's libraries do
      std::erase_if(static_cast<F::Queue*>(queue)->ready, [&](const ibv_wc& wc) { return wc.qp_num == pair->qp_num; });
    fabric().pairs_.erase(pair->qp_num);
    --fabric().objects_;
    delete pair;
    return 0;
  }
  static int poll_cq(ibv_cq* cq, int most, ibv_wc* out) {
    fabric().deliver();
    auto& ready = static_cast<F::Queue*>(cq)->ready;
    int got = 0;
    for (; got < most && !ready.empty(); ++got) {
      out[got] = ready.front();
      ready.pop_front();
    }
    return got;
  }
  static int req_notify_cq(ibv_cq* cq, int) { return static_cast<F::Queue*>(cq)->armed = true, 0; }
  static int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) {
    auto& pair = static_cast<F::Pair&>(*qp);
    for (; request; request = request->next) {
      *bad = request;
      if (pair.now != IBV_QPS_RTS && pair.now != IBV_QPS_ERR) return EINVAL;
      if (pair.sends.size() >= pair.room.max_send_wr) return ENOMEM;
      F::Pair::Send send{*request, request->num_sge ? request->sg_list[0] : ibv_sge{}, {}};
      if (request->send_flags & IBV_SEND_INLINE) {
        if (send.piece.length > pair.room.max_inline_data) return EINVAL;
        const auto* from = reinterpret_cast<const std::byte*>(send.piece.addr);
        send.inlined.assign(from, from + send.piece.length);
      }
      pair.sends.push_back(std::move(send));
      if (pair.now == IBV_QPS_ERR) fabric().fail(pair);
    }
    return 0;
  }
  static int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) {
    auto& pair = static_cast<F::Pair&>(*qp);
    for (; request; request = request->next) {
      *bad = request;
      if (pair.receives.size() >= pair.room.max_recv_wr) return ENOMEM;
      pair.receives.push_back(request->wr_id);
      if (pair.now == IBV_QPS_ERR) fabric().fail(pair);
    }
    return 0;
  }
  static void push(ibv_cq* cq, const ibv_wc& completion) {
    auto& queue = static_cast<F::Queue&>(*cq);
    TUTTI_CHECK(queue.ready.size() < queue.room && "the completion queue has run over");
    queue.ready.push_back(completion);
    if (!std::exchange(queue.armed, false)) return;
    const std::uint64_t one = 1;
    TUTTI_CHECK(::write(queue.channel->fd, &one, sizeof one) == sizeof one);
  }
};

FakeFabric::FakeFabric(std::uint64_t seed) : random_(seed) { current = this; }
FakeFabric::~FakeFabric() {
  TUTTI_CHECK(objects_ == 0);
  current = nullptr;
}

void FakeFabric::add_port(int host, Port port) {
  auto device = std::make_unique<Device>();
  std::snprintf(device->name, sizeof device->name, "%s", port.device.c_str());
  device->transport_type = port.connects ? IBV_TRANSPORT_IB : IBV_TRANSPORT_UNSPECIFIED;
  device->host = host;
  device->rail = int(std::count_if(devices_.begin(), devices_.end(), [&](const auto& d) { return d->host == host; }));
  device->port = std::move(port);
  devices_.push_back(std::move(device));
}

void FakeFabric::add_rail(int host, int rail) {
  Port port{.device = "fake" + std::to_string(rail), .link = LinkLayer::ethernet, .active = true};
  Gid gid{.index = 3, .kind = GidKind::roce_v2};
  TUTTI_CHECK(transport::rdma::parse_gid_address("::ffff:10.0." + std::to_string(rail) + "." + std::to_string(host + 1), gid.address));
  port.gids.push_back(gid);
  add_port(host, port);
}

const Verbs& FakeFabric::verbs(int host) {
  host_of_this_thread = host;
  using C = FakeCalls;
  static Verbs table{Locked<C::get_device_list>::call, Locked<C::free_device_list>::call, Locked<C::get_device_name>::call, Locked<C::open_device>::call, Locked<C::close_device>::call, Locked<C::query_device>::call, Locked<C::query_port>::call, Locked<C::query_gid_ex>::call,
                           Locked<C::alloc_pd>::call, Locked<C::dealloc_pd>::call, Locked<C::reg_mr>::call, Locked<C::dereg_mr>::call, Locked<C::create_comp_channel>::call, Locked<C::destroy_comp_channel>::call, Locked<C::create_cq>::call, Locked<C::resize_cq>::call,
                           Locked<C::destroy_cq>::call, Locked<C::get_cq_event>::call, Locked<C::ack_cq_events>::call, Locked<C::create_qp>::call, Locked<C::modify_qp>::call, Locked<C::destroy_qp>::call, Locked<C::reg_mr_iova2>::call, Locked<C::reg_dmabuf_mr>::call};
  if (table.sysfs != sysfs) table.sysfs = sysfs;      // ranks may be threads
  return table;
}

int FakeFabric::rail_of(const Pair& pair) const { return pair.device()->rail; }

FakeFabric::Memory* FakeFabric::find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes) const {
  const auto at = memories_.find(key);
  if (at == memories_.end()) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(at->second->addr);
  return address >= begin && address + bytes <= begin + at->second->length ? at->second : nullptr;
}

bool FakeFabric::deliver() {
  const std::lock_guard held(mutex);
  bool any = false;
  std::vector<std::uint32_t> order;
  for (const auto& [number, pair] : pairs_) order.push_back(number);
  std::shuffle(order.begin(), order.end(), random_);
  for (const std::uint32_t number : order) {
    const auto at = pairs_.find(number);
    for (auto left = random_() % 6; at != pairs_.end() && left > 0 && carry_out(*at->second); --left) any = true;
  }
  return any;
}

bool FakeFabric::carry_out(Pair& pair) {
  if (pair.now != IBV_QPS_RTS || pair.sends.empty() || down_[rail_of(pair)]) return false;
  const auto there = pairs_.find(pair.there);
  if (there == pairs_.end() || there->second->now == IBV_QPS_ERR) return complete(pair, IBV_WC_RETRY_EXC_ERR), true;
  Pair& peer = *there->second;
  if (peer.now != IBV_QPS_RTR && peer.now != IBV_QPS_RTS) return false;
  if (peer.receives.empty()) return ++not_ready_, false;
  if (fail_in_ >= 0 && fail_in_-- == 0) return ++failures_, complete(pair, fail_with_), true;
  const Pair::Send& send = pair.sends.front();
  const std::uint32_t bytes = send.piece.length;
  const bool inlined = send.request.send_flags & IBV_SEND_INLINE;
  const Memory* from = find(send.piece.lkey, send.piece.addr, bytes);
  if (bytes && !inlined && !from) return complete(pair, IBV_WC_LOC_PROT_ERR), true;
  const Memory* into = find(send.request.wr.rdma.rkey, send.request.wr.rdma.remote_addr, bytes);
  if (bytes && (!into || into->pd != peer.pd)) return complete(pair, IBV_WC_REM_ACCESS_ERR), true;
  if (bytes) std::memcpy(into->at(send.request.wr.rdma.remote_addr), inlined ? send.inlined.data() : from->at(send.piece.addr), bytes);
  constexpr std::uint32_t kLongerThanCells = transport::rdma::kEagerBytes + sizeof(transport::rdma::Cell);
  if (bytes && into->bytes != into->addr) moved_.into_foreign += bytes;
  else if (bytes > kLongerThanCells) moved_.into_host += bytes;
  if (bytes && !inlined && from->bytes != from->addr) moved_.out_of_foreign += bytes;
  else if (bytes > kLongerThanCells) moved_.out_of_host += bytes;
  if (bytes && damages_foreign && into->bytes != into->addr) into->at(send.request.wr.rdma.remote_addr)[bytes / 2] ^= std::byte{1};
  ibv_wc arrived{};
  arrived.wr_id = peer.receives.front();
  arrived.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  arrived.byte_len = bytes;
  arrived.imm_data = send.request.imm_data;
  arrived.qp_num = peer.qp_num;
  peer.receives.pop_front();
  ++delivered_[peer.device()->host];
  FakeCalls::push(peer.recv_cq, arrived);
  complete(pair, IBV_WC_SUCCESS);
  return true;
}

void FakeFabric::complete(Pair& pair, ibv_wc_status status) {
  const Pair::Send send = std::move(pair.sends.front());
  pair.sends.pop_front();
  if (status != IBV_WC_SUCCESS || (send.request.send_flags & IBV_SEND_SIGNALED)) {
    ibv_wc completion{};
    completion.wr_id = send.request.wr_id;
    completion.status = status;
    completion.qp_num = pair.qp_num;
    FakeCalls::push(pair.send_cq, completion);
  }
  if (status != IBV_WC_SUCCESS) fail(pair);
}

void FakeFabric::fail(Pair& pair) {
  pair.now = IBV_QPS_ERR;
  while (!pair.sends.empty()) {
    ibv_wc completion{};
    completion.wr_id = pair.sends.front().request.wr_id;
    completion.status = IBV_WC_WR_FLUSH_ERR;
    completion.qp_num = pair.qp_num;
    pair.sends.pop_front();
    FakeCalls::push(pair.send_cq, completion);
  }
  while (!pair.receives.empty()) {
    ibv_wc completion{};
    completion.wr_id = pair.receives.front();
    completion.status = IBV_WC_WR_FLUSH_ERR;
    completion.qp_num = pair.qp_num;
    pair.receives.pop_front();
    FakeCalls::push(pair.recv_cq, completion);
  }
}

void FakeFabric::set_port(int rail, bool up) {
  const std::lock_guard held(mutex);
  for (const auto& device : devices_)
    if (device->rail == rail) device->port.active = up;
}

bool FakeFabric::fail_one(int rail, ibv_wc_status status) {
  const std::lock_guard held(mutex);
  for (const auto& [number, pair] : pairs_) {
    if (rail_of(*pair) != rail || pair->sends.empty() || pair->now != IBV_QPS_RTS) continue;
    complete(*pair, status);
    return true;
  }
  return false;
}

}  // namespace tutti::tests
#endif
