#pragma once
// Schedule: one rank's part of a collective as data. It knows ranks, groups and chunks; never bytes, time or wires.
//
// Chunks. The data of a collective is cut into blocks, and blocks into `slices` chunks of nearly equal size:
//   all_reduce, reduce, broadcast: `blocks` (the generator's choice) equal blocks of the one vector;
//   all_gather, reduce_scatter, gather, scatter: rank_count blocks, block r belongs to rank r, sizes by the caller;
//   all_to_all: rank_count * rank_count blocks, block (from * rank_count + to).
// A chunk's *shape* = block * slices + slice tells its size; both ends of a message name chunks of equal shape.
// Each rank has three spaces of chunks:
//   input   full vector: all_reduce, reduce, broadcast (root only), reduce_scatter, scatter (root only): index = shape;
//           own block: all_gather, gather: index = slice;     all_to_all: index = to * slices + slice.
//   output  full vector: all_reduce, reduce (root only), broadcast, all_gather, gather (root only): index = shape;
//           own block: reduce_scatter, scatter: index = slice;    all_to_all: index = from * slices + slice.
//   scratch index i has the shape scratch[i].
// Where the caller works in place (see tutti/communicator.h) input and output chunks of the same place are one chunk:
// a schedule is generated for one or the other, and proved so. Steps write output and scratch only, so what is input
// and not output too stays intact. In reductions and all_to_all a rank's own untouched data is always named as input
// (there premul_sum multiplies), what came from others or was added up as output or scratch. Messages depend on
// collective, ranks, root and levels, never on in_place: ranks in place and ranks not in place may meet.
//
// Steps run as `docs/architecture.md` says: a step starts when every earlier step of this rank that conflicts on a
// chunk has finished, and every earlier step on its lane (a lane: a peer and a direction). Otherwise in any order, and
// together. No step counts on buffering: a send may wait for its receive. The k-th message of a lane meets the k-th
// receive.
#include <compare>
#include <cstdint>
#include <string>
#include <tutti/types.h>
#include <vector>

namespace tutti::algorithms {

enum class Space : std::uint8_t { input, output, scratch };

// `count` chunks one behind another. count 0: nothing.
struct Chunks {
  Space space = Space::input;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  auto operator<=>(const Chunks&) const = default;
};

enum class StepKind : std::uint8_t { send, recv, recv_reduce, copy, reduce };

struct Step {
  StepKind kind = StepKind::send;
  Chunks source;   // send, copy, reduce: what is read. recv_reduce: this rank's own operand; count 0: none
  Chunks target;   // recv, recv_reduce, copy: what is written. reduce: target = tree(target, source)
  // send: the receivers (several: a multicast). recv: one sender. recv_reduce: the senders, ascending; then
  // target = tree over the operands sorted by rank, the own operand (if any) under this rank's number.
  std::vector<int> peers;
  // recv_reduce, reduce: afterwards `target` holds the contributions of all ranks (here avg divides). The checker
  // verifies it.
  bool completes = false;
  auto operator<=>(const Step&) const = default;
};

// The balanced binary tree over operands 0..n-1: tree(lo, hi) = tree(lo, mid) op tree(mid, hi), mid = lo + the largest
// power of two below hi - lo. Over all ranks in order it is the *canonical* tree. op commutes bit for bit, so trees
// compare as unordered.
constexpr std::uint32_t tree_split(std::uint32_t n) {   // size of the left part, n >= 2
  std::uint32_t left = 1;
  while (left * 2 < n) left *= 2;
  return left;
}

struct Schedule {
  std::uint32_t blocks = 1;
  std::uint32_t slices = 1;
  std::vector<std::uint32_t> scratch;   // shapes
  std::vector<Step> steps;
  bool operator==(const Schedule&) const = default;
};

// What a schedule is generated for. Values outside the meaning of the collective are ignored (root of an all_gather).
struct Request {
  Collective collective = Collective::all_reduce;
  int rank_count = 1;
  int root = 0;
  bool in_place = false;
  // For hierarchical ones: group_of[rank], numbered from 0 in order of first appearance; outermost level first. Empty:
  // flat.
  std::vector<std::vector<int>> levels;
  // For rings: all ranks once, each beside those that it is best linked to. Empty:
  // group after group (borders.h, nested_order).
  std::vector<int> order;
  int channels = 1;   // for rings: into so many slices a vector is cut, each with a ring of its own; at least 1
  bool operator==(const Request&) const = default;
};

constexpr bool is_reduction(Collective what) {
  return what == Collective::all_reduce || what == Collective::reduce_scatter || what == Collective::reduce;
}

// One line a step, e.g. "send input[3] -> 2", for people and golden tests.
std::string to_string(const Step& step);
std::string to_string(const Schedule& schedule);

}  // namespace tutti::algorithms
