#include "comm/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/memory_map.h"

namespace tutti::comm {
namespace {

// Beyond this no buffer can exist; sums and byte counts below cannot overflow.
constexpr std::uint64_t kMaxBytes = std::uint64_t(1) << 47;

struct Range {
  const char* name;
  const void* pointer;
  std::uint64_t bytes;
  bool written = false;
};

class Checker {
 public:
  Checker(Collective what, DataType type, Rank self) : what_(what), self_(self) {
    if (int(type) >= kDataTypeCount) fail("type", fmt::format("{}", int(type)), "a DataType");
    else element_ = size_of(type);
  }
  void reduction(ReduceOp op) {
    if (int(op) >= kReduceOpCount) fail("op", fmt::format("{}", int(op)), "a ReduceOp");
  }
  void root(int root) {
    if (root < 0 || root >= self_.count) fail("root", fmt::format("{}", root), fmt::format("0 to {}", self_.count - 1));
  }
  void peer(int peer) {
    if (peer < 0 || peer >= self_.count) fail("peer", fmt::format("{}", peer), fmt::format("0 to {}", self_.count - 1));
  }
  // Elements to bytes, times `blocks`.
  std::uint64_t bytes(const char* name, std::uint64_t count, std::uint64_t blocks = 1) {
    if (count > kMaxBytes / element_ / blocks)
      fail(
          name, fmt::format("{}", count),
          fmt::format("at most {} elements of {} bytes in {} blocks", kMaxBytes / element_ / blocks, element_, blocks));
    return status_.ok() ? count * element_ * blocks : 0;
  }
  void pointer(const Range& r) {
    if (r.bytes && !r.pointer) fail(r.name, "null", fmt::format("a buffer of {} bytes", r.bytes));
    else if (self_.check && status_.ok())
      if (const std::string complaint = memory_complaint(r.pointer, r.bytes, r.written); !complaint.empty())
        fail(r.name, fmt::format("{}, of which {}", r.pointer, complaint),
             fmt::format("a buffer of {} bytes", r.bytes));
  }
  // In place, or apart.
  void apart(const Range& input, const Range& output, bool in_place) {
    pointer(input);
    pointer(output);
    if (in_place || !status_.ok() || input.bytes == 0 || output.bytes == 0) return;
    const auto a = std::uintptr_t(input.pointer), b = std::uintptr_t(output.pointer);
    if (a < b + output.bytes && b < a + input.bytes)
      fail("output",
           fmt::format("{} (overlaps input {} by some of {} bytes)", output.pointer, input.pointer, input.bytes),
           "the in-place position or a buffer apart");
  }
  void blocks(const char* name, const std::vector<std::size_t>& counts, const std::vector<std::size_t>& offsets) {
    if (counts.size() != std::size_t(self_.count))
      return fail(name, fmt::format("{} entries", counts.size()), fmt::format("{}, one a rank", self_.count));
    if (!offsets.empty() && offsets.size() != counts.size())
      return fail("offsets", fmt::format("{} entries", offsets.size()), fmt::format("none or {}", self_.count));
    for (std::size_t i = 0; i < counts.size(); ++i) {
      bytes(name, counts[i]);
      if (!offsets.empty()) bytes("offsets", offsets[i]);
    }
  }
  // Blocks that are written.
  void disjoint(const char* name, const std::vector<std::size_t>& counts, const std::vector<std::size_t>& offsets) {
    std::vector<std::pair<std::size_t, std::size_t>> blocks;      // first, count
    for (std::size_t i = 0; ok() && i < offsets.size(); ++i)
      if (counts[i]) blocks.emplace_back(offsets[i], counts[i]);
    std::sort(blocks.begin(), blocks.end());
    for (std::size_t i = 1; i < blocks.size(); ++i)
      if (blocks[i].first < blocks[i - 1].first + blocks[i - 1].second)
        return fail(name,
                    fmt::format("{} inside the block of {} elements at {}", blocks[i].first, blocks[i - 1].second,
                                blocks[i - 1].first),
                    "blocks that do not overlap");
  }
  void fail(const char* name, const std::string& value, const std::string& wanted) {
    if (status_.ok())
      status_ =
          Status(Code::invalid_argument, fmt::format("{}: {} is {}, wanted {}", name_of(what_), name, value, wanted));
  }
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  std::size_t element() const { return element_; }

 private:
  Collective what_;
  Rank self_;
  std::size_t element_ = 1;
  Status status_;
};

Prepared base(Collective what, DataType type, ReduceOp op, int root, std::uint64_t count, const void* input,
              void* output) {
  Prepared p;
  p.call = {what, type, op, root, count};
  p.binding.input = static_cast<const std::byte*>(input);
  p.binding.output = static_cast<std::byte*>(output);
  p.binding.type = type;
  p.binding.op = op;
  return p;
}

Result<Prepared> done(const Checker& check, Prepared&& p) {
  if (!check.ok()) return check.status();
  return std::move(p);
}

std::uint64_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t(0));
}

// Fills in `blocks`; returns the elements that the buffer must span.
std::uint64_t set_blocks(Prepared& p, Blocks& blocks, const std::vector<std::size_t>& counts,
                         const std::vector<std::size_t>& offsets) {
  std::uint64_t at = 0, end = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::uint64_t offset = offsets.empty() ? at : offsets[i];
    p.contiguous = p.contiguous && offset == at;
    p.uniform = p.uniform && counts[i] == counts[0];
    blocks.counts.push_back(counts[i]);
    blocks.offsets.push_back(offset);
    at = offset + counts[i];
    end = std::max(end, counts[i] ? at : 0);
  }
  return end;
}

const void* block_at(const void* base_pointer, std::uint64_t elements, std::size_t element) {
  return base_pointer ? static_cast<const std::byte*>(base_pointer) + elements * element : nullptr;
}

// all_reduce, reduce, broadcast.
Result<Prepared> vector_call(Checker& check, Prepared&& p, bool reads, bool writes) {
  const std::uint64_t bytes = check.bytes("count", p.call.count);
  p.in_place = p.binding.input == p.binding.output && reads && writes;
  check.apart({"input", p.binding.input, reads ? bytes : 0}, {"output", p.binding.output, writes ? bytes : 0, true},
              p.in_place);
  p.binding.vector = p.call.count;
  p.bytes = bytes;
  return done(check, std::move(p));
}

// Collectives with a full buffer on one side and one block on the other.
struct Sides {
  bool full_input, reads, writes;
};
Result<Prepared> block_call(Checker& check, Prepared&& p, Rank self, Sides sides) {
  const std::uint64_t all = check.bytes("count", p.call.count, std::uint64_t(self.count));
  const std::uint64_t block = check.bytes("count", p.call.count);
  const std::uint64_t own = p.call.count * std::uint64_t(self.rank);
  const void* in_place = sides.full_input ? block_at(p.binding.input, own, check.element())
                                          : block_at(p.binding.output, own, check.element());
  p.in_place = sides.reads && sides.writes && in_place == (sides.full_input ? p.binding.output : p.binding.input);
  check.apart({"input", p.binding.input, !sides.reads ? 0 : sides.full_input ? all : block},
              {"output", p.binding.output, !sides.writes ? 0 : sides.full_input ? block : all, true}, p.in_place);
  (sides.full_input ? p.binding.in : p.binding.out).each = p.call.count;
  p.bytes = all;
  return done(check, std::move(p));
}

}  // namespace

Result<Prepared> prepare(const AllReduce& c, Rank self) {
  Checker check(Collective::all_reduce, c.type, self);
  check.reduction(c.op);
  Prepared p = base(Collective::all_reduce, c.type, c.op, 0, c.count, c.input, c.output);
  p.factor = c.factor;
  return vector_call(check, std::move(p), true, true);
}

Result<Prepared> prepare(const Reduce& c, Rank self) {
  Checker check(Collective::reduce, c.type, self);
  check.reduction(c.op);
  check.root(c.root);
  Prepared p = base(Collective::reduce, c.type, c.op, c.root, c.count, c.input, c.output);
  p.factor = c.factor;
  return vector_call(check, std::move(p), true, self.rank == c.root);
}

Result<Prepared> prepare(const Broadcast& c, Rank self) {
  Checker check(Collective::broadcast, c.type, self);
  check.root(c.root);
  return vector_call(check, base(Collective::broadcast, c.type, ReduceOp::sum, c.root, c.count, c.input, c.output),
                     self.rank == c.root, true);
}

Result<Prepared> prepare(const ReduceScatter& c, Rank self) {
  Checker check(Collective::reduce_scatter, c.type, self);
  check.reduction(c.op);
  Prepared p = base(Collective::reduce_scatter, c.type, c.op, 0, c.count, c.input, c.output);
  p.factor = c.factor;
  return block_call(check, std::move(p), self, {true, true, true});
}

Result<Prepared> prepare(const AllGather& c, Rank self) {
  Checker check(Collective::all_gather, c.type, self);
  return block_call(check, base(Collective::all_gather, c.type, ReduceOp::sum, 0, c.count, c.input, c.output), self,
                    {false, true, true});
}

Result<Prepared> prepare(const Gather& c, Rank self) {
  Checker check(Collective::gather, c.type, self);
  check.root(c.root);
  return block_call(check, base(Collective::gather, c.type, ReduceOp::sum, c.root, c.count, c.input, c.output), self,
                    {false, true, self.rank == c.root});
}

Result<Prepared> prepare(const Scatter& c, Rank self) {
  Checker check(Collective::scatter, c.type, self);
  check.root(c.root);
  return block_call(check, base(Collective::scatter, c.type, ReduceOp::sum, c.root, c.count, c.input, c.output), self,
                    {true, self.rank == c.root, true});
}

Result<Prepared> prepare(const AllToAll& c, Rank self) {
  Checker check(Collective::all_to_all, c.type, self);
  Prepared p = base(Collective::all_to_all, c.type, ReduceOp::sum, 0, c.count, c.input, c.output);
  p.bytes = check.bytes("count", c.count, std::uint64_t(self.count));
  p.in_place = c.input == c.output;
  check.apart({"input", c.input, p.bytes}, {"output", c.output, p.bytes, true}, p.in_place);
  p.binding.in.each = p.binding.out.each = c.count;
  return done(check, std::move(p));
}

Result<Prepared> prepare(const AllGatherV& c, Rank self) {
  Checker check(Collective::all_gather, c.type, self);
  check.blocks("counts", c.counts, c.offsets);
  check.disjoint("offsets", c.counts, c.offsets);
  if (!check.ok()) return check.status();
  Prepared p = base(Collective::all_gather, c.type, ReduceOp::sum, 0, sum(c.counts), c.input, c.output);
  const std::uint64_t span = check.bytes("offsets", set_blocks(p, p.binding.out, c.counts, c.offsets));
  const std::uint64_t own = p.binding.out.offset(std::uint64_t(self.rank));
  p.in_place = c.input == block_at(c.output, own, check.element());
  check.apart({"input", c.input, check.bytes("counts", c.counts[std::size_t(self.rank)])},
              {"output", c.output, span, true}, p.in_place);
  p.bytes = check.bytes("counts", p.call.count);
  return done(check, std::move(p));
}

Result<Prepared> prepare(const ReduceScatterV& c, Rank self) {
  Checker check(Collective::reduce_scatter, c.type, self);
  check.reduction(c.op);
  check.blocks("counts", c.counts, c.offsets);
  if (!check.ok()) return check.status();
  Prepared p = base(Collective::reduce_scatter, c.type, c.op, 0, sum(c.counts), c.input, c.output);
  p.factor = c.factor;
  const std::uint64_t span = check.bytes("offsets", set_blocks(p, p.binding.in, c.counts, c.offsets));
  const std::uint64_t own = p.binding.in.offset(std::uint64_t(self.rank));
  p.in_place = c.output == block_at(c.input, own, check.element());
  check.apart({"input", c.input, span},
              {"output", c.output, check.bytes("counts", c.counts[std::size_t(self.rank)]), true}, p.in_place);
  p.bytes = check.bytes("counts", p.call.count);
  return done(check, std::move(p));
}

Result<Prepared> prepare(const AllToAllV& c, Rank self) {
  Checker check(Collective::all_to_all, c.type, self);
  check.blocks("send_counts", c.send_counts, c.send_offsets);
  check.blocks("recv_counts", c.recv_counts, c.recv_offsets);
  check.disjoint("recv_offsets", c.recv_counts, c.recv_offsets);
  if (!check.ok()) return check.status();
  // Every rank has its own counts: what must agree is found block by block, so the call's count is left out.
  Prepared p = base(Collective::all_to_all, c.type, ReduceOp::sum, 0, 0, c.input, c.output);
  const std::uint64_t in = check.bytes("send_offsets", set_blocks(p, p.binding.in, c.send_counts, c.send_offsets));
  const std::uint64_t out = check.bytes("recv_offsets", set_blocks(p, p.binding.out, c.recv_counts, c.recv_offsets));
  const auto self_index = std::size_t(self.rank);
  if (c.send_counts[self_index] != c.recv_counts[self_index])
    check.fail("recv_counts", fmt::format("{} for this rank itself", c.recv_counts[self_index]),
               fmt::format("send_counts' {}", c.send_counts[self_index]));
  check.apart({"input", c.input, in}, {"output", c.output, out, true}, false);
  p.uniform = false;
  p.bytes = std::max(in, out);
  return done(check, std::move(p));
}

Result<Prepared> prepare(const Barrier& c, Rank self) {
  auto prepared = prepare(AllReduce{c.input, c.output, c.count, c.type, ReduceOp::max}, self);
  if (prepared) prepared->barrier = true;
  return prepared;
}

Result<Prepared> prepare(const Send& c, Rank self) {
  Checker check(Collective::send, c.type, self);
  check.peer(c.peer);
  Prepared p = base(Collective::send, c.type, ReduceOp::sum, 0, c.count, c.input, nullptr);
  p.bytes = check.bytes("count", c.count);
  p.binding.vector = c.count;
  check.pointer({"input", c.input, p.bytes});
  return done(check, std::move(p));
}

Result<Prepared> prepare(const Recv& c, Rank self) {
  Checker check(Collective::recv, c.type, self);
  check.peer(c.peer);
  Prepared p = base(Collective::recv, c.type, ReduceOp::sum, 0, c.count, nullptr, c.output);
  p.bytes = check.bytes("count", c.count);
  p.binding.vector = c.count;
  check.pointer({"output", c.output, p.bytes, true});
  return done(check, std::move(p));
}

}  // namespace tutti::comm
