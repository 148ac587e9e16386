#include "comm/straight_run.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tutti::comm {
namespace {

using algorithms::Space;
using algorithms::StepKind;

constexpr std::uint64_t kUnit = 16;   // bytes: where shares and pieces begin, for wide accesses

Layout layout_of(const Program& program, const Binding& binding) {
  Layout layout;
  layout.bind(program, size_of(binding.type), binding.vector, binding.in, binding.out);
  return layout;
}

bool is_message(const ProgramStep& p) { return p.step.kind == StepKind::send || p.step.kind == StepKind::recv; }

// Where the k-th of so many nearly equal parts begins, in elements.
std::uint64_t border(std::uint64_t elements, std::uint64_t parts, std::uint64_t k, std::uint64_t element) {
  const std::uint64_t unit = kUnit / element;
  return k == parts ? elements : elements / unit * k / parts * unit;
}

std::uint64_t pieces_of(const Prepared& call) { return std::max<std::uint64_t>(1, (call.bytes + StraightReduction::kPiece - 1) / StraightReduction::kPiece); }

// A rank's share of one piece, in elements of the vector.
struct Share {
  std::uint64_t begin = 0, count = 0;
};

// Of a reduce_scatter the blocks are the shares, and a piece is a part of each.
std::vector<Share> shares_of(const Prepared& call, int ranks, std::uint64_t piece) {
  const std::uint64_t element = size_of(call.binding.type), pieces = pieces_of(call), all = std::uint64_t(ranks);
  std::vector<Share> out;
  if (call.call.collective == Collective::reduce_scatter) {
    const std::uint64_t block = call.call.count, begin = border(block, pieces, piece, element), end = border(block, pieces, piece + 1, element);
    for (std::uint64_t r = 0; r < all; ++r) out.push_back({r * block + begin, end - begin});
    return out;
  }
  const std::uint64_t first = border(call.binding.vector, pieces, piece, element), end = border(call.binding.vector, pieces, piece + 1, element);
  for (std::uint64_t r = 0; r < all; ++r) {
    const std::uint64_t from = border(end - first, all, r, element), until = border(end - first, all, r + 1, element);
    out.push_back({first + from, until - from});
  }
  return out;
}

Prepared part_of(const Prepared& call, const std::byte* input, std::byte* output) {
  Prepared part = call;
  part.binding.input = input;
  part.binding.output = output;
  part.binding.in = part.binding.out = {};
  part.binding.straight = true;
  part.in_place = false;
  return part;
}

Blocks blocks_of(const std::vector<Share>& shares) {
  Blocks out;
  for (const Share& share : shares) out.counts.push_back(share.count), out.offsets.push_back(share.begin);
  return out;
}

}  // namespace

bool is_straight(const Program& program) {
  return std::all_of(program.steps.begin(), program.steps.end(), [](const ProgramStep& p) {
    return is_message(p) || (p.step.kind == StepKind::copy && (p.after.empty() || p.before.empty()));
  });
}

bool is_straight(const algorithms::Generator& generator, algorithms::Request request, const Binding& binding, std::uint64_t least) {
  for (const bool in_place : {false, true}) {
    request.in_place = in_place;
    if (!generator.refusal(request).empty()) return false;
    const auto schedule = generator.schedules(request);
    for (int rank = 0; rank < request.rank_count; ++rank) {
      const Program program = compile(request, rank, std::string(generator.name()), schedule(rank));
      if (!is_straight(program)) return false;
      const Layout layout = layout_of(program, binding);
      for (const ProgramStep& p : program.steps) {
        const std::uint64_t bytes = p.step.kind == StepKind::send ? layout.extent(p.step.source).bytes : 0;
        if (bytes != 0 && bytes <= least) return false;
      }
    }
  }
  return true;
}

std::uint64_t scratch_bytes_of(const Program& program, const Binding& binding) { return layout_of(program, binding).scratch_bytes(); }

StraightStage straight_stage(const Prepared& call, std::shared_ptr<const Program> program, std::byte* scratch) {
  StraightStage out{call, std::move(program), {}, {}, {}, 0};
  Binding& binding = out.operation.binding;
  binding.straight = true;
  binding.scratch = scratch;
  const Layout layout = layout_of(*out.program, binding);
  const auto place = [&](const algorithms::Chunks& chunks) {
    const std::byte* const base = chunks.space == Space::input ? binding.input : chunks.space == Space::output ? binding.output : binding.scratch;
    return const_cast<std::byte*>(base) + layout.extent(chunks).offset;
  };
  for (const ProgramStep& p : out.program->steps) {
    const std::uint64_t bytes = p.step.kind == StepKind::copy ? layout.extent(p.step.target).bytes : 0;
    if (bytes == 0) continue;
    const StraightStage::Copy copy{place(p.step.target), place(p.step.source), bytes};
    if (copy.to != copy.from) (p.after.empty() ? out.before : out.after).push_back(copy);
  }
  return out;
}

bool reduces_straight(const Prepared& call, int ranks, std::uint64_t least) {
  if (!algorithms::is_reduction(call.call.collective) || call.barrier || !call.uniform || !call.contiguous || call.call.op == ReduceOp::premul_sum) return false;
  if (ranks > DeviceReduction::kMostInputs) return false;
  for (std::uint64_t piece = 0; piece < pieces_of(call); ++piece)
    for (const Share& share : shares_of(call, ranks, piece))
      if (share.count * size_of(call.binding.type) <= least) return false;
  return true;
}

// Pieces take turns at the halves of the area: the exchange of the next one is begun before this one's is waited for.
std::vector<StraightStage> straight_stages(const Prepared& call, int rank, int ranks, const StraightReduction& by, std::byte* area, Reached reached) {
  const std::uint64_t element = size_of(call.binding.type), pieces = pieces_of(call), half = StraightReduction::kArea / 2;
  const bool scatters = call.call.collective == Collective::reduce_scatter;
  const bool has_output = call.call.collective != Collective::reduce || rank == call.call.root;
  std::vector<StraightStage> exchanges, gathers, out;
  for (std::uint64_t k = 0; k < pieces; ++k) {
    const auto shares = shares_of(call, ranks, k);
    const Share own = shares[std::size_t(rank)];
    std::byte* const come = area + k % 2 * half;
    const std::uint64_t row = (own.count * element + kUnit - 1) / kUnit * kUnit;

    StraightStage exchange{part_of(call, call.binding.input, come), by.exchange, {}, {}, DeviceReduction{}, 0};
    Binding& binding = exchange.operation.binding;
    binding.in = blocks_of(shares);
    for (std::uint64_t r = 0; r < std::uint64_t(ranks); ++r) binding.out.counts.push_back(own.count), binding.out.offsets.push_back(r * row / element);
    DeviceReduction& adds = *exchange.adds;
    adds.type = call.binding.type;
    adds.op = call.call.op == ReduceOp::avg ? ReduceOp::sum : call.call.op;
    adds.divide_by = call.call.op == ReduceOp::avg ? std::uint32_t(ranks) : 1;
    adds.n = ranks;
    adds.count = own.count;
    const std::byte* const mine = call.binding.input + own.begin * element;
    std::byte* const own_row = come + std::uint64_t(rank) * row;      // nobody else's share comes there
    for (int r = 0; r < ranks; ++r) adds.inputs[r] = r == rank && reached.input ? mine : come + std::uint64_t(r) * row;
    if (!reached.input) exchange.before.push_back({own_row, mine, own.count * element});
    const std::uint64_t place = scatters ? own.begin - std::uint64_t(rank) * call.call.count : own.begin;
    std::byte* const result = has_output ? call.binding.output + place * element : nullptr;
    adds.out = result && reached.output ? result : come + std::uint64_t(ranks) * row;
    if (result && !reached.output) exchange.after.push_back({result, adds.out, own.count * element});
    exchanges.push_back(exchange);
    if (scatters) continue;

    StraightStage gather{part_of(call, result ? result : adds.out, call.binding.output), by.gather, {}, {}, {}, 0};
    gather.operation.binding.in = gather.operation.binding.out = blocks_of(shares);
    gather.operation.in_place = has_output;
    gathers.push_back(gather);
  }
  // E0 E1 G0 E2 G1 ..: a stage is waited for before the one after the next begins.
  for (std::uint64_t k = 0; k <= pieces; ++k) {
    if (k < pieces) out.push_back(exchanges[std::size_t(k)]);
    if (k > 0 && !scatters) out.push_back(gathers[std::size_t(k - 1)]);
  }
  for (StraightStage& stage : out) stage.ahead = pieces > 1;
  return out;
}

}  // namespace tutti::comm
