#pragma once
// Call: what a rank asked for, packed into 64 bits that travel with every segment: both ends of a message compare it,
// and either can print the other's. Exact for counts below 2^36 and roots below
// 4096 (beyond, equality is checked on the rest).
#include <cstdint>
#include <string>
#include <tutti/types.h>

namespace tutti::comm {

struct Call {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::uint64_t count = 0;
  bool operator==(const Call&) const = default;
};

// 5 bits collective, 4 type, 4 op, 12 root, 36 count, 3 spare.
constexpr std::uint64_t pack(const Call& call) {
  return std::uint64_t(call.collective) | std::uint64_t(call.type) << 5 | std::uint64_t(call.op) << 9 |
         (std::uint64_t(call.root) & 0xfff) << 13 | (call.count & 0xfffffffffull) << 25;
}
Call unpack(std::uint64_t packed);
// "all_reduce f32[1024] sum", "broadcast i64[1] root 2"
std::string to_string(const Call& call);

}  // namespace tutti::comm
