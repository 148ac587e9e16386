#include "transport/rdma/device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/check.h"
#include "core/errno_text.h"
#include "core/fork.h"

namespace tutti::transport::rdma {
namespace {

constexpr int kLeastCompletions = 1024;
// Files of hw_counters: mlx5 and others that follow it; rdma_rxe; bnxt_re.
constexpr const char* kErrors[] = {"packet_seq_err", "out_of_sequence", "local_ack_timeout_err", "rnr_nak_retry_err", "duplicate_request", "out_of_buffer",
                                   "completer_retry_err", "out_of_seq_request", "rcvd_seq_err", "retry_exceeded_err", "rcvd_rnr_err", "send_err", "to_retransmits"};
constexpr std::uint32_t kSoftRoce = 0xffffff;       // its vendor; the kernel's rdma_rxe counts down from 6 and less, and from 7 never

double gbps_of(int speed, int width) {
  const double lane = [&] {
    switch (speed) {
      case 1: return 2.5;
      case 2: return 5.0;
      case 4: case 8: return 10.0;
      case 16: return 14.0;
      case 32: return 25.0;
      case 64: return 50.0;
      case 128: return 100.0;
      default: return 0.0;
    }
  }();
  switch (width) {
    case 1: return lane;
    case 2: return 4 * lane;
    case 4: return 8 * lane;
    case 8: return 12 * lane;
    case 16: return 2 * lane;
    default: return 0;
  }
}

const char* state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_ACTIVE: return "active";
    case IBV_PORT_INIT: return "initializing";
    case IBV_PORT_ARMED: return "armed";
    default: return "down";
  }
}

// Prefix of the subnet that an address of this host is in, counted as for IPv6; 0: it is none of this host's.
int prefix_of(const Gid& gid) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return 0;
  int bits = 0;
  for (const ifaddrs* a = all; a && bits == 0; a = a->ifa_next) {
    if (!a->ifa_addr || !a->ifa_netmask) continue;
    const auto ones = [](const auto& mask) {
      int count = 0;
      for (const unsigned char byte : std::span(reinterpret_cast<const unsigned char*>(&mask), sizeof mask)) count += std::popcount(byte);
      return count;
    };
    if (a->ifa_addr->sa_family == AF_INET && gid.ipv4()) {
      const auto& address = reinterpret_cast<const sockaddr_in*>(a->ifa_addr)->sin_addr;
      if (std::memcmp(&address, gid.address.data() + 12, 4) == 0) bits = 96 + ones(reinterpret_cast<const sockaddr_in*>(a->ifa_netmask)->sin_addr);
    } else if (a->ifa_addr->sa_family == AF_INET6 && !gid.ipv4()) {
      const auto& address = reinterpret_cast<const sockaddr_in6*>(a->ifa_addr)->sin6_addr;
      if (std::memcmp(&address, gid.address.data(), 16) == 0) bits = ones(reinterpret_cast<const sockaddr_in6*>(a->ifa_netmask)->sin6_addr);
    }
  }
  freeifaddrs(all);
  return bits;
}

std::uint64_t number_behind(const char* file, std::string_view name, int base) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name)) return std::strtoull(line.c_str() + name.size(), nullptr, base);
  return 0;
}

}  // namespace

std::string memory_lock_complaint(std::size_t bytes) {
  constexpr std::uint64_t kMayLock = 1ull << 14;      // CAP_IPC_LOCK
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  if (number_behind("/proc/self/status", "CapEff:", 16) & kMayLock) return "";
  const std::uint64_t pinned = 1024 * number_behind("/proc/self/status", "VmPin:", 10);
  if (pinned + bytes <= limit.rlim_cur) return "";
  return fmt::format("{} bytes are to be locked, and {} are, but this process may lock {} (RLIMIT_MEMLOCK): raise it with `ulimit -l unlimited`, LimitMEMLOCK=infinity "
                     "in the service's unit, or `docker run --ulimit memlock=-1`", bytes, pinned, std::uint64_t(limit.rlim_cur));
}

std::vector<std::unique_ptr<Device>> Device::open_all(const Verbs& verbs) {
  std::vector<std::unique_ptr<Device>> out;
  int count = 0;
  ibv_device** list = verbs.get_device_list(&count);
  for (int i = 0; list && i < count; ++i) {
    int ports = 1;
    for (int number = 1; number <= ports; ++number) {
      ibv_context* context = verbs.open_device(list[i]);
      if (!context) break;
      // In a child they would keep the queue pairs of a dead rank alive.
      for (const int descriptor : {context->cmd_fd, context->async_fd}) keep_from_children(descriptor);
      std::unique_ptr<Device> device(new Device(verbs, context));
      ibv_device_attr attributes{};
      if (verbs.query_device(context, &attributes) == 0) ports = attributes.phys_port_cnt;
      if (attributes.vendor_id == kSoftRoce) device->most_retries_ = 6;
      device->port_.device = verbs.get_device_name(list[i]);
      device->port_.connects = list[i]->transport_type == IBV_TRANSPORT_IB;
      if (device->read(std::uint8_t(number))) out.push_back(std::move(device));
    }
  }
  if (list) verbs.free_device_list(list);
  return out;
}

bool Device::read(std::uint8_t number) {
  ibv_port_attr port{};
  if (verbs_.query_port(context_, number, reinterpret_cast<_compat_ibv_port_attr*>(&port)) != 0) return false;
  port_.number = number;
  port_.link = port.link_layer == IBV_LINK_LAYER_ETHERNET ? LinkLayer::ethernet
               : port.link_layer == IBV_LINK_LAYER_INFINIBAND || port.link_layer == IBV_LINK_LAYER_UNSPECIFIED ? LinkLayer::infiniband
                                                                                                              : LinkLayer::other;
  port_.active = port.state == IBV_PORT_ACTIVE;
  port_.state = state_text(port.state);
  port_.gbps = gbps_of(port.active_speed, port.active_width);
  port_.lid = port.lid;
  port_.mtu = port.active_mtu;
  std::ifstream node(verbs_.sysfs + "/class/infiniband/" + port_.device + "/device/numa_node");
  if (!(node >> port_.numa)) port_.numa = -1;
  read_gids(number, port.gid_tbl_len);
  return true;
}

bool Device::active() const {
  ibv_port_attr port{};
  return verbs_.query_port(context_, std::uint8_t(port_.number), reinterpret_cast<_compat_ibv_port_attr*>(&port)) == 0 && port.state == IBV_PORT_ACTIVE;
}

void Device::read_errors(std::vector<PortError>& into) const {
  const std::string folder = fmt::format("{}/class/infiniband/{}/ports/{}/hw_counters/", verbs_.sysfs, port_.device, port_.number);
  for (const char* name : kErrors)
    if (PortError error{port_.device, name, port_.number}; std::ifstream(folder + name) >> error.count) into.push_back(error);
}

// Tables have holes: an entry that cannot be read is skipped.
void Device::read_gids(std::uint8_t number, int table_size) {
  for (int i = 0; i < std::min(table_size, 256); ++i) {
    ibv_gid_entry entry{};
    if (verbs_.query_gid_ex(context_, number, std::uint32_t(i), &entry, 0, sizeof entry) != 0) continue;
    Gid gid;
    gid.index = i;
    gid.kind = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? GidKind::roce_v2 : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? GidKind::roce_v1 : GidKind::infiniband;
    std::memcpy(gid.address.data(), entry.gid.raw, gid.address.size());
    if (gid.zero()) continue;
    if (gid.kind != GidKind::infiniband) gid.prefix_bits = prefix_of(gid);
    port_.gids.push_back(gid);
  }
}

Status Device::failed(const char* call, int error) const {
  return Status(Code::out_of_resources, fmt::format("{}: {}: {}", port_.name(), call, errno_text(error)));
}

Status Device::prepare(bool relaxed_ordering) {
  access_ = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  // A completion comes after all that its write has put into memory, whatever the order of that.
  if (relaxed_ordering && verbs_.reg_mr_iova2) access_ |= IBV_ACCESS_RELAXED_ORDERING;
  domain_ = verbs_.alloc_pd(context_);
  if (!domain_) return failed("ibv_alloc_pd", errno);
  channel_ = verbs_.create_comp_channel(context_);
  if (!channel_) return failed("ibv_create_comp_channel", errno);
  keep_from_children(channel_->fd);
  if (::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) return failed("fcntl on the completion channel", errno);
  room_ = kLeastCompletions;
  completions_ = verbs_.create_cq(context_, room_, nullptr, channel_, 0);
  return completions_ ? Status() : failed("ibv_create_cq", errno);
}

Device::~Device() {
  if (completions_) verbs_.destroy_cq(completions_);
  if (channel_) {
    let_go(channel_->fd);
    verbs_.destroy_comp_channel(channel_);
  }
  if (domain_) verbs_.dealloc_pd(domain_);
  for (const int descriptor : {context_->cmd_fd, context_->async_fd}) let_go(descriptor);
  verbs_.close_device(context_);
}

Status Device::make_room(int completions) {
  used_ += completions;
  if (used_ <= room_) return {};
  const int wanted = std::max(2 * room_, used_);
  if (const int error = verbs_.resize_cq(completions_, wanted); error != 0) {
    used_ -= completions;
    return failed("ibv_resize_cq", error);
  }
  room_ = wanted;
  return {};
}

Result<ibv_mr*> Device::add(std::byte* data, std::size_t bytes) {
  if (const std::string complaint = memory_lock_complaint(bytes); !complaint.empty()) return Status(Code::out_of_resources, fmt::format("{}: {}", port_.name(), complaint));
  ibv_mr* registration = access_ & IBV_ACCESS_OPTIONAL_RANGE ? verbs_.reg_mr_iova2(domain_, data, bytes, reinterpret_cast<std::uintptr_t>(data), access_)
                                                             : verbs_.reg_mr(domain_, data, bytes, int(access_));
  if (registration) return registration;
  return failed(fmt::format("ibv_reg_mr of {} bytes (see `ulimit -l`)", bytes).c_str(), errno);
}

Result<ibv_mr*> Device::add_dmabuf(int descriptor, std::uint64_t offset, std::byte* data, std::size_t bytes) {
  if (!verbs_.reg_dmabuf_mr) return Status(Code::unsupported, "this libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 has)");
  ibv_mr* registration = verbs_.reg_dmabuf_mr(domain_, offset, bytes, reinterpret_cast<std::uintptr_t>(data), descriptor, int(access_));
  if (registration) return registration;
  if (errno == EOPNOTSUPP || errno == EPROTONOSUPPORT) return Status(Code::unsupported, fmt::format("{}: its driver knows no dma-buf", port_.name()));
  return failed(fmt::format("ibv_reg_dmabuf_mr of {} bytes", bytes).c_str(), errno);
}

void Device::drop(ibv_mr* registration) { verbs_.dereg_mr(registration); }

int Device::poll(std::span<ibv_wc> into) {
  const int got = ibv_poll_cq(completions_, int(into.size()), into.data());
  TUTTI_CHECK(got >= 0 && "the completion queue is broken");
  return got;
}

bool Device::arm() {
  armed_ = armed_ || ibv_req_notify_cq(completions_, 0) == 0;
  return armed_;
}

void Device::take_events() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (verbs_.get_cq_event(channel_, &queue, &context) == 0) ++events;
  if (events == 0) return;
  verbs_.ack_cq_events(completions_, events);
  armed_ = false;
}

}  // namespace tutti::transport::rdma
