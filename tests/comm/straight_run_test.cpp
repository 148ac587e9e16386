// StraightRun: which schedules serve, and the stages of all ranks run on memory of the host in the order in which a stream runs them: what a
// stage sends and receives comes when it is begun, what the stream does behind it when it is waited for.
#include "comm/straight_run.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "algorithms/generate.h"
#include "kernels/kernels.h"

namespace tutti::comm {
namespace {

using algorithms::Chunks;
using algorithms::Request;
using algorithms::Space;
using algorithms::StepKind;
using Values = std::vector<std::int64_t>;

constexpr DataType kType = DataType::i64;

std::shared_ptr<const Program> direct(const Request& request, int rank) {
  return std::make_shared<Program>(compile(request, rank, "direct", algorithms::find_generator("direct")->generate(request, rank)));
}

std::byte* place(const StraightStage& stage, const Chunks& chunks, std::uint64_t& bytes) {
  const Binding& b = stage.operation.binding;
  Layout layout;
  layout.bind(*stage.program, size_of(b.type), b.vector, b.in, b.out);
  bytes = layout.extent(chunks).bytes;
  const std::byte* const base = chunks.space == Space::input ? b.input : chunks.space == Space::output ? b.output : b.scratch;
  return const_cast<std::byte*>(base) + layout.extent(chunks).offset;
}

using Stages = std::vector<StraightStage>;

void begin(const std::vector<Stages>& crew, std::size_t at) {
  struct Message {
    std::byte* to;
    std::vector<std::byte> bytes;
  };
  std::vector<Message> messages;
  for (const Stages& stages : crew)
    for (const auto& copy : stages[at].before) std::memcpy(copy.to, copy.from, copy.bytes);
  for (std::size_t rank = 0; rank < crew.size(); ++rank) {
    const StraightStage& from = crew[rank][at];
    for (const ProgramStep& p : from.program->steps) {
      if (p.step.kind != StepKind::send) continue;
      std::uint64_t sent = 0, taken = 0;
      const std::byte* const source = place(from, p.step.source, sent);
      for (std::size_t i = 0; i < p.step.peers.size(); ++i) {
        const StraightStage& to = crew[std::size_t(p.step.peers[i])][at];
        const Arrival arrival = to.program->arrivals[rank].at(p.message[i]);
        std::byte* const target = place(to, to.program->steps[arrival.step].step.target, taken);
        EXPECT_EQ(sent, taken);
        messages.push_back({target, {source, source + sent}});
      }
    }
  }
  for (const Message& message : messages) std::memcpy(message.to, message.bytes.data(), message.bytes.size());
}

void finish(const std::vector<Stages>& crew, std::size_t at) {
  for (const Stages& stages : crew) {
    if (const auto& adds = stages[at].adds) kernels::reduce(adds->type, adds->op, adds->out, {adds->inputs, std::size_t(adds->n)}, adds->count, {adds->divide_by});
    for (const auto& copy : stages[at].after) std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

// As Relay::enqueue_straight puts them on a stream.
void run(const std::vector<Stages>& crew) {
  const std::size_t count = crew[0].size();
  for (const Stages& stages : crew) ASSERT_EQ(stages.size(), count);
  std::size_t out = 0;
  for (std::size_t in = 0; in < count; ++in) {
    for (; out < in && out + 1 + crew[0][out].ahead <= in; ++out) finish(crew, out);
    begin(crew, in);
  }
  for (; out < count; ++out) finish(crew, out);
}

std::int64_t value(int rank, std::size_t i) { return std::int64_t(i * 31 + std::size_t(rank) * 7919); }
Values drawn(int rank, std::size_t n) {
  Values out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = value(rank, i);
  return out;
}

TEST(StraightRun, TakesSchedulesThatCopyAtTheirEdgesAlone) {
  EXPECT_TRUE(is_straight(*direct({Collective::all_gather, 4}, 1)));
  EXPECT_TRUE(is_straight(*direct({.collective = Collective::all_to_all, .rank_count = 4, .in_place = true}, 1)));
  EXPECT_FALSE(is_straight(*direct({Collective::reduce_scatter, 4}, 1)));
  algorithms::Schedule schedule;      // of what has come, a copy goes on
  schedule.scratch = {0, 0};
  schedule.steps = {{.kind = StepKind::recv, .target = {Space::scratch, 0, 1}, .peers = {0}},
                    {.kind = StepKind::copy, .source = {Space::scratch, 0, 1}, .target = {Space::scratch, 1, 1}},
                    {.kind = StepKind::send, .source = {Space::scratch, 1, 1}, .peers = {2}}};
  const Request request{Collective::broadcast, 3};
  EXPECT_FALSE(is_straight(compile(request, 1, "by hand", schedule)));
  schedule.steps.pop_back();
  EXPECT_TRUE(is_straight(compile(request, 1, "by hand", schedule)));
}

TEST(StraightRun, TakesLongMessagesAlone) {
  Binding binding;
  binding.type = kType;
  binding.in.each = binding.out.each = 128;
  const auto& generator = *algorithms::find_generator("direct");
  EXPECT_TRUE(is_straight(generator, {Collective::all_to_all, 4}, binding, 1023));
  EXPECT_FALSE(is_straight(generator, {Collective::all_to_all, 4}, binding, 1024));
}

TEST(StraightRun, SetsAsideFirstWhatIsSentInPlace) {
  constexpr int ranks = 3;
  constexpr std::size_t n = 1001;
  std::vector<Values> buffers;
  std::vector<std::vector<std::byte>> scratch(ranks);
  std::vector<Stages> crew;
  for (int r = 0; r < ranks; ++r) {
    buffers.push_back(drawn(r, n * ranks));
    std::int64_t* const at = buffers.back().data();
    const auto call = prepare(AllToAll{at, at, n, kType}, {r, ranks});
    ASSERT_TRUE(call.ok());
    const auto program = direct({.collective = Collective::all_to_all, .rank_count = ranks, .in_place = true}, r);
    scratch[std::size_t(r)].resize(scratch_bytes_of(*program, call->binding));
    crew.push_back({straight_stage(*call, program, scratch[std::size_t(r)].data())});
    EXPECT_FALSE(crew.back()[0].before.empty());
  }
  run(crew);
  for (int r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < n * ranks; ++i) ASSERT_EQ(buffers[std::size_t(r)][i], value(int(i / n), std::size_t(r) * n + i % n)) << r << " " << i;
}

TEST(StraightRun, ReducesAmongSoManyRanksByLongSharesAndWithoutFactors) {
  std::int64_t at[1];
  const auto call = [&](std::size_t count, ReduceOp op, int ranks) { return *prepare(AllReduce{at, at, count, kType, op}, {0, ranks}); };
  EXPECT_TRUE(reduces_straight(call(8 * 1026, ReduceOp::sum, 8), 8, 8192));
  EXPECT_FALSE(reduces_straight(call(8 * 1024, ReduceOp::sum, 8), 8, 8192));
  EXPECT_FALSE(reduces_straight(call(100000, ReduceOp::sum, 9), 9, 8192));
  EXPECT_FALSE(reduces_straight(call(100000, ReduceOp::premul_sum, 4), 4, 8192));
}

struct Case {
  Collective what;
  int ranks;
  std::size_t count;      // of a block, in reduce_scatter
  ReduceOp op = ReduceOp::sum;
  Reached reached = {};
};

Result<Prepared> prepared(const Case& c, int root, const std::int64_t* in, std::int64_t* out, int rank) {
  const Rank self{rank, c.ranks};
  if (c.what == Collective::all_reduce) return prepare(AllReduce{in, out, c.count, kType, c.op}, self);
  if (c.what == Collective::reduce) return prepare(Reduce{in, rank == root ? out : nullptr, c.count, kType, c.op, root}, self);
  return prepare(ReduceScatter{in, out, c.count, kType, c.op}, self);
}

void expect_reduced(const Case& c) {
  const int root = c.ranks - 1;
  const bool scatters = c.what == Collective::reduce_scatter;
  const std::size_t all = scatters ? c.count * std::size_t(c.ranks) : c.count;
  std::vector<Values> inputs, outputs(std::size_t(c.ranks), Values(c.count, -1));
  std::vector<std::vector<std::byte>> areas(std::size_t(c.ranks));
  std::vector<Stages> crew;
  for (int r = 0; r < c.ranks; ++r) {
    inputs.push_back(drawn(r, all));
    auto& area = areas[std::size_t(r)];
    area.resize(StraightReduction::kArea);
    const auto call = prepared(c, root, inputs.back().data(), outputs[std::size_t(r)].data(), r);
    ASSERT_TRUE(call.ok()) << call.status().text();
    ASSERT_TRUE(reduces_straight(*call, c.ranks, 16));
    StraightReduction by{direct({Collective::all_to_all, c.ranks}, r), nullptr};
    if (c.what == Collective::all_reduce) by.gather = direct({.collective = Collective::all_gather, .rank_count = c.ranks, .in_place = true}, r);
    if (c.what == Collective::reduce) by.gather = direct({.collective = Collective::gather, .rank_count = c.ranks, .root = root, .in_place = r == root}, r);
    crew.push_back(straight_stages(*call, r, c.ranks, by, area.data(), c.reached));
    const auto inside = [&](const std::byte* at, std::uint64_t bytes) { return at >= area.data() && at + bytes <= area.data() + area.size(); };
    for (const StraightStage& stage : crew.back()) {
      if (!stage.adds) continue;
      const std::uint64_t bytes = stage.adds->count * sizeof(std::int64_t);
      for (int k = 0; k < c.ranks; ++k) EXPECT_TRUE(inside(stage.adds->inputs[k], bytes) || (k == r && c.reached.input)) << k;
      EXPECT_TRUE(inside(stage.adds->out, bytes) || c.reached.output);
    }
  }
  run(crew);
  for (int r = 0; r < c.ranks; ++r) {
    if (c.what == Collective::reduce && r != root) continue;
    for (std::size_t i = 0; i < c.count; ++i) {
      std::int64_t sum = 0;
      for (int k = 0; k < c.ranks; ++k) sum += value(k, scatters ? std::size_t(r) * c.count + i : i);
      ASSERT_EQ(outputs[std::size_t(r)][i], c.op == ReduceOp::avg ? sum / c.ranks : sum) << r << " " << i;
    }
  }
}

constexpr Collective kReductions[] = {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter};

TEST(StraightRun, AddsSharesAndGathersThem) {
  for (const Collective what : kReductions) {
    for (const int ranks : {2, 3, 8}) {
      SCOPED_TRACE(testing::Message() << name_of(what) << " of " << ranks);
      expect_reduced({what, ranks, 1003});
      expect_reduced({what, ranks, 1003, ReduceOp::avg});
    }
  }
}

// The next piece comes into the area while the last one is still to be added.
TEST(StraightRun, PiecesTakeTurnsInTheArea) {
  for (const Collective what : kReductions) {
    SCOPED_TRACE(name_of(what));
    expect_reduced({what, 3, 3 * StraightReduction::kPiece / sizeof(std::int64_t) / (what == Collective::reduce_scatter ? 3 : 1) + 77});
  }
}

TEST(StraightRun, KernelsTouchWhatTheGpuReaches) {
  for (const Collective what : kReductions)
    for (const bool input : {false, true})
      for (const bool output : {false, true}) expect_reduced({what, 3, 1003, ReduceOp::sum, {input, output}});
}

}  // namespace
}  // namespace tutti::comm
