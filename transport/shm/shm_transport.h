#pragma once
// ShmTransport: segments between ranks of one host through shared memory. A small message is written into a cell of its
// lane, a larger one into a slot of the sender's outbox, from which receivers reduce or copy in place. Knows only pairs
// that have been joined by a Unix socket, which also tells when the peer's process ends.
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/crc32c.h"
#include "core/net.h"
#include "transport/shm/layout.h"
#include "transport/shm/memory.h"
#include "transport/transport.h"

namespace tutti::transport::shm {

class ShmConnection;

struct ShmOptions {
  std::uint64_t segment_bytes = 0;   // upper limit; 0: by message size
  std::uint64_t large_slot_bytes =
      std::uint64_t(kSlotClasses[1].count) * kSlotClasses[1].bytes;  // all together; one group at least
  bool check = false;                // checksums of cells and slots; both ends alike
  bool lend = true;                  // segments that may be lent are, where the other end can read this process's memory
};

class ShmTransport final : public Transport, private LeaseHolder {
 public:
  using OnReady = std::function<void(Result<Connection*>)>;
  ShmTransport(Loop& loop, Listener& listener, ShmOptions options = {});
  ~ShmTransport();

  // Joins a local peer over a connected, authenticated Unix stream (kept open until the end). Asynchronous: both sides
  // call it, exactly one with `opener`; on_ready comes from Loop::run. network, out_of_resources, or unsupported where
  // descriptors cannot be passed.
  void connect(int peer, std::unique_ptr<Stream> stream, bool opener, OnReady on_ready);

  std::string name() const override { return "shm"; }
  std::size_t segment_bytes(std::uint64_t message_bytes) const override;
  std::uint64_t stage(const std::byte* data, std::uint32_t bytes, int readers) override;
  bool in_place(const SegmentHeader& header, const std::byte* data) const override;
  void unstage(std::uint64_t staged, int readers) override;
  bool drained() const override;
  bool poll() override;
  void abandon(std::uint32_t communicator) override;
  bool prepare_sleep() override;
  void wake_done() override;
  std::size_t memory_bytes() const override;
  std::string debts() const override;

  // Wakes those that sleep and wait for what was sent, as the next poll() would.
  void hurry() { if (unsettled_) settle(); }

 private:
  friend class ShmConnection;
  struct Setup;
  Status ensure_outbox();
  Outbox& outbox() { return *reinterpret_cast<Outbox*>(outbox_memory_.data()); }
  void set_up(Setup& setup);
  std::uint32_t take_slot(std::uint32_t bytes, ShmConnection* user);
  struct Reserve;
  std::uint32_t take_reserve(Reserve& reserve, int peer, std::uint32_t communicator);
  std::uint32_t fair_share(const ShmConnection* user) const;
  std::uint32_t take_ticket(ShmConnection& user, const SegmentHeader& header, const std::byte* data, std::uint64_t token);
  void return_ticket(std::uint32_t ticket);
  bool take_back();
  struct Lent;
  void take_back(Lent& lent);
  bool push_on();
  bool reclaim();
  bool grow(std::size_t slot_class);
  std::uint32_t slots_of(std::size_t slot_class) const;
  std::uint32_t inline_bytes() const { return options_.check ? kInlineBytes - kSumBytes : kInlineBytes; }
  std::uint32_t sum_of(const std::byte* data, std::uint32_t bytes) const {   // 0 where nothing is checked
    return options_.check && bytes > 0 ? crc32c(data, bytes) : 0;
  }
  void settle();
  void lost(ShmConnection& connection, const Status& why);
  void release(std::uint64_t token) override;
  bool fetch(std::uint64_t token, std::byte* into, std::uint32_t bytes) override;
  ShmConnection* to(int peer) const;

  Loop& loop_;
  Listener& listener_;
  ShmOptions options_;
  SharedMemory outbox_memory_;
  std::vector<std::unique_ptr<ShmConnection>> connections_;
  std::vector<std::unique_ptr<Setup>> setups_;
  std::vector<std::uint32_t> free_[kSlotClasses.size()];
  std::uint32_t made_[kSlotClasses.size()] = {};   // slots in use or free; the others have no pages yet
  struct Busy {
    std::uint32_t slot;
    ShmConnection* user;                           // null: staged for several
  };
  std::vector<Busy> busy_;
  struct Lent {
    std::uint32_t ticket;
    ShmConnection* reader;
    std::uint64_t token;                           // of send()
    SegmentHeader header;
    const std::byte* data;                         // nullptr: in a region
    bool taken_back = false;
  };
  std::vector<Lent> lent_;                         // what is being read where it lies
  struct Push {
    ShmConnection* reader;
    SegmentHeader header;                          // of what is left
    const std::byte* data;
    std::uint64_t token;
  };
  std::vector<Push> pushes_;                       // lent segments that could not be read, and go through slots
  std::vector<std::uint32_t> tickets_;             // free ones
  std::vector<std::uint32_t> stage_sums_;          // by slot, of multicasts; empty where nothing is checked
  std::uint32_t staged_ = 0;                       // large slots that hold multicasts
  struct Reserve {
    std::uint32_t first;                           // number
    std::unordered_map<std::uint64_t, std::uint32_t> of;      // by peer and communicator
    std::uint32_t made = 0;
    std::vector<std::uint32_t> free;               // of those made
  };
  Reserve reserved_slots_{kShared, {}, 0, {}}, reserved_tickets_{kSlots + kTickets, {}, 0, {}};
  std::vector<std::uint32_t> reserve_waits_;       // found taken since the last poll
  bool unsettled_ = false;       // something was published or freed since the last settle()
  bool starved_ = false;         // a send found no room since the last poll
};

}  // namespace tutti::transport::shm
