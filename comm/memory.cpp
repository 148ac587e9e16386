#include <tutti/memory.h>

#include "transport/ranges.h"
#include "transport/shm/regions.h"

namespace tutti {

Result<void*> allocate(std::size_t bytes) {
  if (bytes == 0) return Status(Code::invalid_argument, "allocate: 0 bytes, wanted at least one");
  auto region = transport::shm::make_region(bytes);
  if (!region) return region.status();
  return static_cast<void*>(*region);
}

void deallocate(void* memory) { transport::shm::drop_region(static_cast<std::byte*>(memory)); }

Status register_memory(void* memory, std::size_t bytes) {
  return transport::add_range(static_cast<const std::byte*>(memory), bytes);
}

Status unregister_memory(void* memory) {
  if (transport::drop_range(static_cast<const std::byte*>(memory))) return {};
  return Status(Code::invalid_argument, "unregister_memory: nothing was registered at that address");
}

}  // namespace tutti
