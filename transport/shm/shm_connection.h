#pragma once
// ShmConnection: this rank's end of one pair's lanes.
#include <array>
#include <unordered_map>

#include "transport/shm/regions.h"
#include "transport/shm/shm_transport.h"

namespace tutti::transport::shm {

class ShmConnection final : public Connection {
 public:
  ShmConnection(ShmTransport& transport, int peer, std::unique_ptr<Stream> stream, SharedMemory lanes, bool opener);
  ~ShmConnection() override;
  // The peer's outbox and doorbell (-1: none); takes over the descriptor.
  void join(SharedMemory outbox, int doorbell);

  Sent send(const SegmentHeader& header, const std::byte* data, std::uint64_t token) override;
  Sent send_staged(const SegmentHeader& header, std::uint64_t staged) override;
  void expect(const SegmentHeader&, Readiness, std::byte*) override {}
  std::size_t eager_bytes() const override { return ~std::size_t(0); }
  std::size_t lent_bytes() const override;
  std::size_t glance_bytes() const override;
  const std::byte* glance(const SegmentHeader& message) override;
  void take_glanced() override;
  std::string describe() const override { return "shm"; }

 private:
  friend class ShmTransport;
  Cell* reserve();
  // `sum`: of the payload.
  void publish(Cell& cell, const SegmentHeader& header, std::uint32_t slot, std::uint32_t sum);
  bool receive();
  static std::uint32_t sum_of(const Cell& cell, std::uint32_t payload_sum);
  bool intact(const Cell& cell, const std::byte* payload) const;
  bool has_arrivals() const;
  void ring_if_sleeping();
  const std::byte* in_slot(std::uint32_t slot);   // where the peer's slot lies here
  static bool lends(const Cell& cell);                 // it tells where the bytes are, outside of any slot
  const std::byte* in_region(const RegionPart& part, std::uint32_t bytes);   // where that lies here; nullptr: nowhere
  void find_out_what_can_be_read();
  bool peer_can(std::uint32_t what) const;
  Sent lend(Cell& cell, const SegmentHeader& header, const RegionPart& part, const std::byte* data, std::uint32_t sum, std::uint64_t token);
  Outbox& theirs() const { return *reinterpret_cast<Outbox*>(outbox_.data()); }
  bool fetch(std::uint32_t ticket, std::byte* into, std::uint32_t bytes);

  ShmTransport& transport_;
  int peer_;
  std::unique_ptr<Stream> stream_;
  SharedMemory lanes_, outbox_;
  bool opener_;
  std::unordered_map<std::uint64_t, SharedMemory> regions_;     // of the peer's, by token
  Lane* out_;
  Lane* in_;
  int doorbell_ = -1;
  std::uint32_t sent_ = 0, room_until_ = kCells, received_ = 0;
  std::uint32_t slots_ = 0;      // large ones in use for this peer alone
  std::uint32_t seen_groups_ = 0; // bits: groups of the peer's slots that have their pages here
  std::uint32_t news_ = 0;       // kWantsData, kWantsRoom: what the peer may wait for and has not been rung about
  std::array<std::uint64_t, kAllTickets> lent_at_;     // of the peer's lent segments, by ticket: their addresses in its process
  bool refuses_ = false;         // it could not read what it was lent
  bool lost_ = false;
};

}  // namespace tutti::transport::shm
