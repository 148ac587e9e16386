#pragma once
// ResultCheck (TUTTI_CHECK=1): whether a result that all ranks should hold alike is alike: after the operation each
// rank takes a checksum of what it has got, and an all_gather of the communicator's own (the exchange) brings them
// together. An operation is complete when its exchange is. Under the engine's lock.
#include <cstdint>
#include <memory>
#include <string>
#include <tutti/status.h>
#include <utility>
#include <vector>

#include "comm/arguments.h"

namespace tutti::comm {

class Engine;
class Operation;

class ResultCheck {
 public:
  // all_reduce, all_gather and broadcast have such a result.
  static bool applies(Collective what) {
    return what == Collective::all_reduce || what == Collective::all_gather || what == Collective::broadcast;
  }
  // Of that call among so many ranks; the buffer must stay.
  ResultCheck(const Prepared& call, int rank_count);

  AllGather exchange_call() { return {&own_, all_.data(), 1, DataType::u64}; }
  // Bound, and numbered behind the operation.
  void exchange_by(std::shared_ptr<Operation> exchange) { exchange_ = std::move(exchange); }

  bool begun() const { return begun_; }
  bool agreed() const { return agreed_; }
  // Takes the checksum. What to start.
  std::shared_ptr<Operation> begin();
  // After the exchange. damaged: naming the lowest rank that differs from most.
  Status judge(const Operation& of, const Engine& engine);
  // The operation has failed: there will be no exchange.
  void drop();

 private:
  std::vector<std::pair<const std::byte*, std::uint64_t>> blocks_;
  std::uint64_t own_ = 0;
  std::vector<std::uint64_t> all_;
  std::shared_ptr<Operation> exchange_;
  bool begun_ = false, agreed_ = false;
};

}  // namespace tutti::comm
