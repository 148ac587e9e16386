#pragma once
// Bytes that have arrived and are leased to the listener: in the window of a granted message, or in a copy of a cell's payload.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace tutti::transport::rdma {

class RdmaConnection;
struct Expected;

struct Landed {
  RdmaConnection* owner = nullptr;          // told at release; null: it is gone
  std::shared_ptr<Expected> message;        // in its window, from `offset` of the message on; or
  std::uint64_t offset = 0;
  std::vector<std::byte> copy;              // here
  std::uint32_t bytes = 0, communicator = 0;
  std::uint8_t flags = 0;                   // the cell's
};

class LandedPool final : public LeaseHolder {
 public:
  Landed* take();
  Lease lease(Landed* landed) { return {this, reinterpret_cast<std::uintptr_t>(landed)}; }
  void release(std::uint64_t token) override;
  void forget(const RdmaConnection* owner);     // it ends; what is leased stays readable
  std::size_t memory_bytes() const { return copied_bytes_; }
  void count_copy(std::size_t bytes) { copied_bytes_ += bytes; }

 private:
  std::vector<std::unique_ptr<Landed>> all_;
  std::vector<Landed*> free_;
  std::size_t copied_bytes_ = 0;
};

}  // namespace tutti::transport::rdma
