#pragma once
// Grants: how far a peer may send the messages that are too long to go on credit. What is granted has its memory set
// aside, so that no segment ever has to be refused or waited with: a message whose bytes all have their place at the
// receiver's is granted whole; others get a window that moves on as their segments are consumed. Messages that cannot
// be consumed yet get windows from a part of the memory that is kept for them, if there is some: the wire need not rest
// until they can.
//
// All connections of a transport share one budget. Beyond it every connection may have the earliest message of each
// communicator that is expected on it, by one segment: whatever later ones hold, the oldest operation goes on.
#include <cstdint>
#include <memory_resource>
#include <unordered_map>
#include <vector>

#include "transport/key_hash.h"
#include "transport/transport.h"

namespace tutti::transport::tcp {

struct Shared;
class Outgoing;
class Grants;

// Of one transport: bytes that windows may hold, and who waits for some.
struct GrantBudget {
  std::size_t limit = 0, reserved = 0;
  std::size_t limit_ahead = 0, reserved_ahead = 0;
  struct Waiting {
    Grants* grants;
    MessageKey key;
  };
  std::vector<Waiting> waiting;              // in order of arrival
  void retry();
};

// Of one connection, at the receiver.
class Grants {
 public:
  // Grants go out by `out`.
  Grants(Shared& shared, Outgoing& out);
  ~Grants();
  Grants(const Grants&) = delete;
  Grants& operator=(const Grants&) = delete;

  void expect(const MessageKey& key, std::uint64_t message_bytes, Readiness readiness);
  // Whether the peer may have sent a segment that ends there.
  bool covers(const MessageKey& key, std::uint64_t end) const;
  // So many bytes of the message need no memory of the transport's any more.
  void consumed(const MessageKey& key, std::uint64_t message_bytes, std::uint64_t bytes);
  std::size_t messages() const { return messages_.size(); }   // expected or begun, and not consumed
  // Nothing more is granted to this communicator; what was may still come.
  void abandon(std::uint32_t communicator);

 private:
  friend struct GrantBudget;
  struct Message {
    std::uint64_t bytes = 0, told = 0, consumed = 0, window = 0;   // window: reserved
    bool ahead = false;                                            // from what is kept for those
  };
  bool admit(const MessageKey& key, Message& message);
  void admit_ahead(const MessageKey& key, Message& message);
  void give_back(Message& message);
  bool is_first(const MessageKey& key) const;
  void tell(const MessageKey& key, Message& message);

  Shared& shared_;
  Outgoing& out_;
  std::pmr::unsynchronized_pool_resource memory_;
  std::pmr::unordered_map<MessageKey, Message, KeyHash> messages_{&memory_};
  std::vector<std::uint32_t> abandoned_;
};

}  // namespace tutti::transport::tcp
