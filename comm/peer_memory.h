#pragma once
// PeerMemory: memory of this rank's GPU that the other ranks of a communicator reach, and theirs, mapped once. All ranks of
// the communicator make it together, and only when each has written into and read from every other's area what it should:
// a way between GPUs that loses bytes (IOMMU or ACS in the way, cards that only seem to have one) is found here.
//
// An area is used again by a later communicator once all who could read it have said that they do not any more, and is
// otherwise kept until the process ends: memory must not go away under a peer's kernel.
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"

namespace tutti::comm {

class Member;

class PeerMemory {
 public:
  struct Outcome {
    std::unique_ptr<PeerMemory> memory;  // null: there is none, on no rank
    std::string why_not;                 // names ranks and reason; the same on all
  };
  // Blocks. `device` may be null, for `no_device`. Errors are the operations' alone.
  static Result<Outcome> make(std::shared_ptr<Device> device, const std::string& no_device, Member& member);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int rank() const { return rank_; }
  int rank_count() const { return int(areas_.size()); }
  std::byte* area(int rank) const { return areas_[std::size_t(rank)]; }
  SharedWords& words() const { return *words_; }
  StreamHandle stream() const { return stream_; }  // this object's own
  std::size_t memory_bytes() const;
  // Enqueues on its stream that this rank reads nobody's area any more.
  void leave();

 private:
  friend class PeerTrial;
  explicit PeerMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<Device> device_;
  int rank_ = 0;
  bool tried_ = false;             // others may have opened the area
  bool stuck_ = false;             // copies on the stream do not end: all that they touch is kept
  std::vector<std::byte*> areas_;  // by rank; null: not open
  StreamHandle stream_ = nullptr;
  std::byte* pinned_ = nullptr;
  SharedWords* words_ = nullptr;   // at its beginning
};

}  // namespace tutti::comm
