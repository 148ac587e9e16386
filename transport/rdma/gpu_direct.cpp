#include "transport/rdma/gpu_direct.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "core/finish.h"
#include "transport/rdma/queue_pair.h"

namespace tutti::transport::rdma {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kTrialBytes = 32 << 10;      // each way
constexpr auto kTrialLimit = 5s;
constexpr std::uint32_t kTrialId = 0x7fffff00;     // of work requests of two queue pairs, this and the next: no connection's come so far
constexpr const char* kNames[] = {"LOC", "PIX", "PXB", "PHB", "SYS", "unknown"};

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t slash = std::min(path.find('/', at), path.size());
    if (slash > at) out.push_back(path.substr(at, slash - at));
    at = slash + 1;
  }
  return out;
}

std::string folder_of(const std::string& link) {
  std::error_code error;
  const auto path = std::filesystem::canonical(link, error);
  return error ? "" : path.string();
}

// Memory of the GPU, of the host, and what the device knows of both, for one trial.
struct Trial {
  tutti::Device& gpu;
  Device& device;
  std::byte* here = nullptr;       // pinned
  ibv_mr* there_key = nullptr;
  ibv_mr* here_key = nullptr;
  ~Trial() {
    for (ibv_mr* key : {there_key, here_key})
      if (key) device.drop(key);
    if (here) gpu.release_pinned(here);
  }
};

}  // namespace

// One write, from one of two queue pairs of the same port to the other.
Status GpuDirect::write_to_self(Device& device, QueuePair& from, const WriteRequest& request) {
  if (const Status status = from.write(request, true, {}); !status) return status;
  const auto end = std::chrono::steady_clock::now() + kTrialLimit;
  for (bool sent = false, arrived = false; !sent || !arrived;) {
    std::array<ibv_wc, 8> batch;
    const int got = device.poll(batch);
    for (int i = 0; i < got; ++i) {
      const ibv_wc& wc = batch[std::size_t(i)];
      if (const auto id = std::uint32_t(wc.wr_id >> 32); id != kTrialId && id != kTrialId + 1) {
        kept_.push_back(wc);
        continue;
      }
      if (wc.status != IBV_WC_SUCCESS) return Status(Code::network, QueuePair::explain(wc.status, {}));
      (wc.wr_id & Queue::kReceiveFlag ? arrived : sent) = true;
    }
    if (got == 0 && std::chrono::steady_clock::now() > end) return Status(Code::timeout, "a write to itself does not arrive");
    if (got == 0) std::this_thread::sleep_for(50us);
  }
  return {};
}

const char* name_of(Distance distance) { return kNames[std::size_t(distance)]; }

Distance distance_named(std::string_view name) {
  const auto at = std::find(std::begin(kNames), std::end(kNames), name);
  return at == std::end(kNames) ? Distance::unknown : Distance(at - std::begin(kNames));
}

// /sys/devices/pci0000:3a/BRIDGE/.../FUNCTION: a switch is an upstream bridge with a downstream one behind it on each way.
Distance distance_between(std::string_view one, std::string_view other, bool same_node) {
  const auto a = parts_of(one), b = parts_of(other);
  const auto root = [](const auto& parts) { return std::find_if(parts.begin(), parts.end(), [](auto part) { return part.starts_with("pci"); }); };
  const auto root_a = root(a), root_b = root(b);
  if (root_a == a.end() || root_b == b.end()) return Distance::unknown;
  if (*root_a != *root_b) return same_node ? Distance::processor : Distance::system;
  const auto [end_a, end_b] = std::mismatch(root_a, a.end(), root_b, b.end());
  if (end_a - root_a <= 1) return Distance::processor;      // nothing but the root complex in common
  return std::max(a.end() - end_a, b.end() - end_b) <= 2 ? Distance::one_switch : Distance::switches;
}

GpuDirect::GpuDirect(tutti::Device& gpu, const Devices& devices, Distance most, std::vector<ibv_wc>& kept) : gpu_(gpu), devices_(devices), kept_(kept) {
  for (std::size_t d = 0; d < devices.size(); ++d) reaches_.push_back(find(d, most));
}

GpuDirect::~GpuDirect() {
  if (stream_) gpu_.close_stream(stream_);
}

Status GpuDirect::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (!stream_) {
    auto opened = gpu_.open_stream();
    if (!opened) return opened.status();
    stream_ = *opened;
  }
  const Status status = gpu_.copy(stream_, to, from, {.bytes = bytes});
  return status.ok() ? finish(gpu_, stream_, kTrialLimit) : status;
}

GpuReach GpuDirect::find(std::size_t device, Distance most) {
  if (most == Distance::local) return {GpuWay::staged, "TUTTI_IB_GPU_DISTANCE=LOC"};
  const Port& port = devices_[device]->port();
  const std::string gpu_folder = folder_of("/sys/bus/pci/devices/" + gpu_.bus_address()), port_folder = folder_of("/sys/class/infiniband/" + port.device + "/device");
  const Distance distance = gpu_.bus_address().empty() ? Distance::unknown : distance_between(gpu_folder, port_folder, gpu_.numa_node() == port.numa);
  if (distance != Distance::unknown && distance > most)
    return {GpuWay::staged, fmt::format("they are {} apart, and TUTTI_IB_GPU_DISTANCE={}", name_of(distance), name_of(most))};
  std::string why;
  for (const GpuWay way : {GpuWay::dmabuf, GpuWay::peermem}) {
    const Status status = try_out(way, device);
    if (status.ok()) return {way, why};
    why += (why.empty() ? "" : ", ") + status.text();
  }
  return {GpuWay::staged, why};
}

Result<ibv_mr*> GpuDirect::add_by(GpuWay way, Device& device, std::byte* data, std::size_t bytes) const {
  if (way == GpuWay::peermem) {
    auto key = device.add(data, bytes);
    if (key) return key;
    const bool loaded = std::filesystem::exists("/sys/module/nvidia_peermem") || std::filesystem::exists("/sys/module/nv_peer_mem");
    return Status(Code::unsupported, loaded ? "nvidia_peermem is loaded, but " + key.status().text() : "nvidia_peermem not loaded");
  }
  const auto exported = gpu_.export_memory(data, bytes);
  if (!exported) return Status(Code::unsupported, exported.status().text());
  auto key = device.add_dmabuf(exported->descriptor, exported->offset, data, bytes);
  ::close(exported->descriptor);         // the registration has its own
  return key;
}

Result<ibv_mr*> GpuDirect::add(std::size_t device, std::byte* data, std::size_t bytes) const {
  if (reaches_[device].way == GpuWay::staged) return Status(Code::unsupported, reaches_[device].why);
  return add_by(reaches_[device].way, *devices_[device], data, bytes);
}

// The device writes into the GPU's memory and from it, and what comes out is what went in.
Status GpuDirect::try_out(GpuWay way, std::size_t index) {
  Device& device = *devices_[index];
  Trial trial{gpu_, device};
  if (!there_) {
    auto made = gpu_.allocate(2 * kTrialBytes);
    if (!made) return made.status();
    there_ = *made;
  }
  auto there_key = add_by(way, device, there_, 2 * kTrialBytes);
  if (!there_key) return there_key.status();
  trial.there_key = *there_key;
  auto here = gpu_.allocate_pinned(3 * kTrialBytes);
  if (!here) return here.status();
  trial.here = *here;
  auto here_key = device.add(*here, 3 * kTrialBytes);
  if (!here_key) return here_key.status();
  trial.here_key = *here_key;

  RdmaCounters ignored;
  auto one = QueuePair::make(device, index, kTrialId, ignored), other = QueuePair::make(device, index, kTrialId + 1, ignored);
  if (!one || !other) return one ? other.status() : one.status();
  const auto gids = preferred_gids(device.port());
  const Gid gid = gids.empty() ? Gid{} : gids[0];
  for (QueuePair* pair : {one->get(), other->get()}) {
    QueuePair& peer = pair == one->get() ? **other : **one;
    const Status status = pair->connect({peer.number(), peer.first_packet(), gid, device.port().lid}, gid, device.port().mtu, {});
    if (!status) return status;
  }

  // Out of `here` into the first half `there`, and by the GPU back; by the GPU into the second half, and out of it by the device.
  std::byte* const source = *here;
  std::byte* const back = *here + kTrialBytes;
  std::byte* const by_device = *here + 2 * kTrialBytes;
  std::mt19937_64 random(std::random_device{}());
  for (std::size_t i = 0; i < kTrialBytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(source + i, &word, 8);
  }
  const std::string wrong = way == GpuWay::dmabuf ? "by dma-buf" : "by nvidia_peermem";
  Status status = copy(there_ + kTrialBytes, source, kTrialBytes);
  if (!status) return status;
  status = write_to_self(device, **one, {source, kTrialBytes, (*here_key)->lkey, reinterpret_cast<std::uintptr_t>(there_), (*there_key)->rkey, 0});
  if (status.ok()) status = write_to_self(device, **one, {there_ + kTrialBytes, kTrialBytes, (*there_key)->lkey, reinterpret_cast<std::uintptr_t>(by_device), (*here_key)->rkey, 0});
  if (!status) return Status(status.code(), fmt::format("{} it registers the GPU's memory, but cannot use it ({})", wrong, status.text()));
  status = gpu_.take_remote_writes();
  if (status.ok()) status = copy(back, there_, kTrialBytes);
  if (!status) return status;
  const bool into = std::memcmp(back, source, kTrialBytes) == 0, out_of = std::memcmp(by_device, source, kTrialBytes) == 0;
  if (into && out_of) return {};
  return Status(Code::damaged, fmt::format("{} what the device {} the GPU's memory is wrong: look for PCIe access control (ACS) and an IOMMU between them", wrong, into ? "reads from" : "writes to"));
}

bool GpuDirect::direct() const {
  return std::all_of(reaches_.begin(), reaches_.end(), [](const GpuReach& r) { return r.way != GpuWay::staged; });
}

std::vector<std::string> GpuDirect::describe() const {
  std::vector<std::string> out;
  for (std::size_t d = 0; d < reaches_.size(); ++d) {
    const GpuReach& reach = reaches_[d];
    const std::string pair = fmt::format("{}/{}", gpu_.describe(), devices_[d]->port().device);
    if (reach.way == GpuWay::staged) out.push_back(fmt::format("off for {}: {}; staged in host memory", pair, reach.why));
    else out.push_back(fmt::format("on for {}, by {}{}", pair, reach.way == GpuWay::dmabuf ? "dma-buf" : "nvidia_peermem", reach.why.empty() ? "" : " (" + reach.why + ")"));
  }
  return out;
}

}  // namespace tutti::transport::rdma
