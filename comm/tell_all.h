#pragma once
// tell_all: an all_gather of values, for what the ranks of a communicator agree upon.
#include <type_traits>
#include <vector>

#include "comm/member.h"

namespace tutti::comm {

// Blocks. Errors are the operation's alone.
template <class Value>
Result<std::vector<Value>> tell_all(Member& member, const Value& mine) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> all(std::size_t(member.rank_count()));
  auto call = prepare(AllGather{&mine, all.data(), sizeof(Value), DataType::u8}, {member.rank(), member.rank_count()});
  if (!call) return call.status();
  if (Status status = member.start(std::move(*call)).wait(); !status.ok()) return status;
  return all;
}

}  // namespace tutti::comm
