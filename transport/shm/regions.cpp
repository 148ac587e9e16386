#include "transport/shm/regions.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <shared_mutex>

#include "core/fork.h"
#include "transport/ranges.h"

namespace tutti::transport::shm {
namespace {

constexpr std::size_t kHead = 4096;      // the first page, before what the user has
constexpr std::uint64_t kMagic = 0x7475747469726567ull;

struct Head {
  std::uint64_t magic, token;
  std::atomic<std::uint32_t> dropped;
};

Head* head_of(const SharedMemory& region) { return reinterpret_cast<Head*>(region.data()); }

struct Table {
  std::shared_mutex mutex;
  std::map<const std::byte*, SharedMemory> regions;      // by the user's address
  std::atomic<std::size_t> count{0};
};

// A child's is empty: what its parent has stays the parent's, whatever the child drops.
Table& table() {
  static PerProcess<Table> all;
  return *all;
}

}  // namespace

Result<std::byte*> make_region(std::size_t bytes) {
  auto memory = SharedMemory::create(kHead + bytes);
  if (!memory) return memory.status();
  static thread_local std::random_device random;
  Head* const head = head_of(*memory);
  head->token = std::uint64_t(random()) << 32 | random() | 1;       // never 0
  head->magic = kMagic;
  std::byte* const data = memory->data() + kHead;
  if (Status status = add_range(data, bytes, true); !status) return status;
  const std::unique_lock held(table().mutex);
  table().regions.emplace(data, std::move(*memory));
  table().count.store(table().regions.size(), std::memory_order_release);
  return data;
}

void drop_region(std::byte* data) {
  const std::unique_lock held(table().mutex);
  const auto found = table().regions.find(data);
  if (found == table().regions.end()) return;
  SharedMemory& region = found->second;
  (void)drop_range(data);
  head_of(region)->dropped.store(1, std::memory_order_release);
  // Peers may have it mapped still: its pages go, its mapping reads as zeros.
  (void)fallocate(region.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(kHead), off_t(region.bytes() - kHead));
  table().regions.erase(found);
  table().count.store(table().regions.size(), std::memory_order_release);
}

std::optional<RegionPart> region_part(const std::byte* data, std::size_t bytes) {
  if (table().count.load(std::memory_order_acquire) == 0) return std::nullopt;
  const std::shared_lock held(table().mutex);
  auto found = table().regions.upper_bound(data);
  if (found == table().regions.begin()) return std::nullopt;
  --found;
  const SharedMemory& region = found->second;
  const std::size_t offset = std::size_t(data - region.data());
  if (offset > region.bytes() || bytes > region.bytes() - offset) return std::nullopt;
  return RegionPart{head_of(region)->token, offset, ::getpid(), region.descriptor()};
}

int foreign_descriptor(int process, int descriptor) {
  return ::open(fmt::format("/proc/{}/fd/{}", process, descriptor).c_str(), O_RDWR | O_CLOEXEC);
}

Result<SharedMemory> open_region(const RegionPart& part) {
  const int fd = foreign_descriptor(part.process, part.descriptor);
  if (fd < 0) return Status(Code::unsupported, fmt::format("memory of process {}: {}", part.process, std::strerror(errno)));
  auto region = SharedMemory::open(fd, kHead);
  if (!region) return region;
  region->close_descriptor();
  if (head_of(*region)->magic != kMagic || head_of(*region)->token != part.token)
    return Status(Code::unsupported, fmt::format("memory of process {}: descriptor {} is something else", part.process, part.descriptor));
  keep_mapping_from_children(region->data(), region->bytes());
  return region;
}

bool is_dropped(const SharedMemory& region) { return head_of(region)->dropped.load(std::memory_order_acquire) != 0; }

}  // namespace tutti::transport::shm
