#pragma once
// Memory that devices may read and write: blocks, and pools that hand out parts of one.
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "transport/rdma/device.h"

namespace tutti::transport::rdma {

using Devices = std::vector<std::unique_ptr<Device>>;

// Registered with every device.
class Registration {
 public:
  static Result<std::unique_ptr<Registration>> make(const Devices& devices, std::byte* data, std::size_t bytes);
  // `add`: for the device of this index.
  static Result<std::unique_ptr<Registration>> make(const Devices& devices, const std::function<Result<ibv_mr*>(std::size_t device)>& add);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  std::uint32_t local_key(std::size_t device) const { return keys_[device]->lkey; }
  std::uint32_t remote_key(std::size_t device) const { return keys_[device]->rkey; }

 private:
  explicit Registration(const Devices& devices) : devices_(devices) {}
  const Devices& devices_;
  std::vector<ibv_mr*> keys_;
};

// A page-aligned block of our own, zeroed.
class Block {
 public:
  static Result<std::unique_ptr<Block>> make(const Devices& devices, std::size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const Registration& registration() const { return *registration_; }

 private:
  Block() = default;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<Registration> registration_;
};

// A part of a pool's memory, its alone until given back.
struct Part {
  Block* block = nullptr;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  explicit operator bool() const { return data != nullptr; }
};

class Pool {
 public:
  static Result<std::unique_ptr<Pool>> make(const Devices& devices, std::size_t bytes);
  // Empty: there is no such part free. With `must`, a block of its own then, which costs a registration; empty where that fails.
  Part take(std::size_t bytes, bool must = false);
  void give_back(const Part& part);
  std::size_t bytes() const { return block_->bytes() + extra_bytes_; }
  std::size_t free_bytes() const { return free_bytes_; }

 private:
  explicit Pool(const Devices& devices) : devices_(devices) {}
  static constexpr std::size_t kGrain = 4096;
  const Devices& devices_;
  std::unique_ptr<Block> block_;
  std::map<std::size_t, std::size_t> free_;             // offset -> bytes
  std::size_t free_bytes_ = 0, extra_bytes_ = 0;
  std::vector<std::unique_ptr<Block>> extra_;
};

}  // namespace tutti::transport::rdma
