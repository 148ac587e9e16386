#pragma once
// StraightRanks: between which ranks of a communicator bytes go straight from one GPU's memory to the other's by RDMA (GPUDirect): where the
// devices of both were found to reach their GPU, and the pair is connected by RDMA. All ranks agree on it, once.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"

namespace tutti::comm {

class Member;

class StraightRanks {
 public:
  static constexpr int kMost = 64;   // ranks: all of them are connected with each other for it
  // Blocks. `device` may be null, for `no_device`. `reserve`: takes what collectives need of the device; where all pairs can. Errors are the
  // operations' alone.
  static Result<StraightRanks> agree(const std::shared_ptr<Device>& device, const std::string& no_device, Member& member, const std::function<Status()>& reserve);
  bool with(int rank) const { return !with_.empty() && with_[std::size_t(rank)]; }
  bool all() const { return all_; }        // all pairs, and all ranks have what collectives need
  bool any() const { return any_; }        // some pair, maybe of others
  // The same on all ranks: which pairs, and why not more. "" where there was nothing to try.
  const std::string& text() const { return text_; }

 private:
  std::vector<bool> with_;
  bool all_ = false, any_ = false;
  std::string text_;
};

}  // namespace tutti::comm
