#pragma once
// Grants: where a peer may write the messages that are too long for cells. What is granted has its memory set aside: a message whose
// bytes all have their place in registered memory is granted whole, there; others get a window of the transport's memory, used in turn,
// which moves on as its bytes are used.
//
// All connections of a transport share that memory. Beyond it every connection may have the earliest message of each communicator that is
// expected on it, by one segment: whatever later ones hold, the oldest operation goes on.
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/rdma/shared.h"

namespace tutti::transport::rdma {

class RdmaConnection;

struct Expected {
  Pool* pool = nullptr;
  Part window;                                    // none: the whole message has its place
  std::uint64_t window_bytes = 0;                 // of it, in use: a multiple of the grid
  std::byte* place = nullptr;
  std::shared_ptr<const Registration> memory;     // of the place
  std::byte* behind = nullptr;                    // a place in a GPU's memory that is not registered: what lands in the window is copied there
  SegmentHeader header;                           // key, message_bytes, call, plan
  std::uint64_t told = 0, arrived = 0, freed = 0; // freed: of the window, without a gap
  std::size_t grid = 0;
  std::uint32_t leased = 0;                       // parts of the window
  bool abandoned = false;
  std::map<std::uint64_t, std::uint64_t> freed_later;             // offset -> bytes, behind a gap
  std::unordered_map<std::uint32_t, std::uint32_t> begun;         // grid cell -> its bytes so far, where not whole
  std::vector<bool> whole;                                        // grid cells

  ~Expected();
  bool windowed() const { return bool(window); }
  std::byte* at(std::uint64_t offset) const { return place ? place + offset : window.data + offset % window_bytes; }
  std::uint32_t cell_bytes(std::uint32_t index) const;
  std::uint32_t begun_bytes(std::uint32_t index) const;
};

// Of one connection, at the receiver.
class Grants {
 public:
  Grants(Shared& shared, RdmaConnection& connection) : shared_(shared), connection_(connection) {}
  ~Grants();
  Grants(const Grants&) = delete;
  Grants& operator=(const Grants&) = delete;

  void expect(const SegmentHeader& header, std::byte* place);
  // A write has arrived: hands it to the listener. nullptr, or what is wrong with it.
  const char* arrived(std::uint32_t id, std::uint32_t index, std::uint32_t bytes);
  // Where such a write belongs; null: nowhere.
  std::byte* place_of(std::uint32_t id, std::uint32_t index, std::uint32_t bytes) const;
  // Whether a write that the peer is not sure of has arrived.
  bool has(std::uint32_t id, const MessageKey& key, std::uint64_t offset) const;
  void freed(Expected& message, std::uint64_t offset, std::uint64_t bytes);
  // Nothing more is delivered of this communicator. The windows stay set aside until revoked(), when the peer has stopped writing.
  // Whether it may still write into users' memory.
  bool abandon(std::uint32_t communicator);
  void revoked(std::uint32_t communicator);
  bool admit(std::uint32_t id);
  // Communicators of which something is granted, and nothing wanted any more.
  std::vector<std::uint32_t> abandoned() const;

 private:
  const char* wrong_with(std::uint32_t id, std::uint32_t index, std::uint32_t bytes) const;
  std::uint32_t free_id();
  bool is_first(const MessageKey& key) const;
  void tell(std::uint32_t id);
  void finish_if_done(std::uint32_t id);
  void pass_on(std::uint32_t id, const SegmentHeader& header);

  Shared& shared_;
  RdmaConnection& connection_;
  std::vector<std::shared_ptr<Expected>> messages_;      // by id; null: free
  std::vector<std::uint32_t> free_;
  struct Queued {
    SegmentHeader header;
    std::byte* place;
  };
  std::vector<Queued> queued_;                           // no id was left for them
};

}  // namespace tutti::transport::rdma
