#include "transport/rdma/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "core/check.h"
#include "core/errno_text.h"
#include "core/fork.h"

namespace tutti::transport::rdma {

Result<std::unique_ptr<Registration>> Registration::make(const Devices& devices, std::byte* data, std::size_t bytes) {
  return make(devices, [&](std::size_t device) { return devices[device]->add(data, bytes); });
}

Result<std::unique_ptr<Registration>> Registration::make(const Devices& devices, const std::function<Result<ibv_mr*>(std::size_t)>& add) {
  std::unique_ptr<Registration> out(new Registration(devices));
  for (std::size_t d = 0; d < devices.size(); ++d) {
    auto key = add(d);
    if (!key) return key.status();
    out->keys_.push_back(*key);
  }
  return out;
}

Registration::~Registration() {
  for (std::size_t i = 0; i < keys_.size(); ++i) devices_[i]->drop(keys_[i]);
}

Result<std::unique_ptr<Block>> Block::make(const Devices& devices, std::size_t bytes) {
  std::unique_ptr<Block> out(new Block);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return Status(Code::out_of_resources, fmt::format("rdma: {} bytes of memory: {}", bytes, errno_text(errno)));
  out->data_ = static_cast<std::byte*>(data);
  out->bytes_ = bytes;
  keep_mapping_from_children(data, bytes);      // the pages would become copies under the devices' hands
  auto registration = Registration::make(devices, out->data_, bytes);
  if (!registration) return registration.status();
  out->registration_ = std::move(*registration);
  return out;
}

Block::~Block() {
  registration_.reset();
  if (data_) ::munmap(data_, bytes_);
}

Result<std::unique_ptr<Pool>> Pool::make(const Devices& devices, std::size_t bytes) {
  std::unique_ptr<Pool> out(new Pool(devices));
  bytes = std::max(kGrain, bytes / kGrain * kGrain);
  auto block = Block::make(devices, bytes);
  if (!block) return block.status();
  out->block_ = std::move(*block);
  out->free_[0] = out->free_bytes_ = bytes;
  return out;
}

Part Pool::take(std::size_t bytes, bool must) {
  bytes = std::max(kGrain, (bytes + kGrain - 1) / kGrain * kGrain);
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    if (at->second < bytes) continue;
    const auto [offset, size] = *at;
    free_.erase(at);
    if (size > bytes) free_[offset + bytes] = size - bytes;
    free_bytes_ -= bytes;
    return {block_.get(), block_->data() + offset, bytes};
  }
  if (!must) return {};
  auto block = Block::make(devices_, bytes);
  if (!block) return {};
  extra_.push_back(std::move(*block));
  extra_bytes_ += bytes;
  return {extra_.back().get(), extra_.back()->data(), bytes};
}

void Pool::give_back(const Part& part) {
  if (part.block != block_.get()) {
    extra_bytes_ -= part.block->bytes();
    std::erase_if(extra_, [&](const auto& block) { return block.get() == part.block; });
    return;
  }
  free_bytes_ += part.bytes;
  const auto offset = std::size_t(part.data - block_->data());
  auto [at, fresh] = free_.emplace(offset, part.bytes);
  TUTTI_CHECK(fresh);
  if (const auto next = std::next(at); next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  if (const auto before = std::prev(at); before->first + before->second == at->first) {
    before->second += at->second;
    free_.erase(at);
  }
}

}  // namespace tutti::transport::rdma
