#include "comm/call.h"

#include <fmt/format.h>

namespace tutti::comm {

Call unpack(std::uint64_t packed) {
  Call call;
  call.collective = Collective(packed & 31);
  call.type = DataType(packed >> 5 & 15);
  call.op = ReduceOp(packed >> 9 & 15);
  call.root = int(packed >> 13 & 0xfff);
  call.count = packed >> 25 & 0xfffffffffull;
  return call;
}

std::string to_string(const Call& call) {
  if (int(call.collective) >= kCollectiveCount || int(call.type) >= kDataTypeCount || int(call.op) >= kReduceOpCount)
    return "something that is no call";
  std::string out{name_of(call.collective)};
  if (call.collective == Collective::barrier) return out;
  out += fmt::format(" {}[{}]", name_of(call.type), call.count);
  switch (call.collective) {
    case Collective::all_reduce: case Collective::reduce_scatter: out += fmt::format(" {}", name_of(call.op)); break;
    case Collective::reduce: out += fmt::format(" {} root {}", name_of(call.op), call.root); break;
    case Collective::broadcast:
    case Collective::gather:
    case Collective::scatter: out += fmt::format(" root {}", call.root); break;
    default: break;
  }
  return out;
}

}  // namespace tutti::comm
