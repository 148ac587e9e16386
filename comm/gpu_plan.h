#pragma once
// GpuPlan: how a collective on streams is carried out where the GPUs of all ranks reach each other's memory: by a kernel in
// which each rank reads what it wants of everybody (one-shot), an all_reduce also by one that shares the additions
// (two-shot), or in slices through the host's memory. Pure: all ranks decide alike, from settings and prices that they share.
#include <tutti/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"

namespace tutti::comm {

enum class GpuWay { one_shot, two_shot, staged };
const char* name_of(GpuWay way);  // "one-shot kernel", ..

// None of them was ever measured: round figures from data sheets.
struct GpuPrices {
  double launch = 4e-6;           // seconds until a kernel runs
  double meeting = 3e-6;          // for all ranks to see each other's flags
  double beta_peer = 1 / 40e9;    // a byte read from another GPU
  double beta_own = 1 / 800e9;    // a byte read and written in its own memory
  double slice = 40e-6;           // of a staged one: the stream tells the host, and the host the stream
  double beta_host = 1 / 20e9;    // a byte between a GPU and the host's memory
};

struct GpuQuestion {
  Collective collective = Collective::all_reduce;
  std::uint64_t bytes = 0;        // of the vector, as in comm/planner: of blocks, all together
  int ranks = 2;
  double host_seconds = 0;        // of the operation in the host's memory, as the planner predicts
  bool host_rule = false;         // the user has named an algorithm of the host's for it
};

struct GpuPlan {
  GpuWay way = GpuWay::staged;
  double seconds = 0;             // predicted
  std::string reason;             // of the first
};

inline constexpr std::uint64_t kGpuPiece = 4 << 20;  // what a rank puts before the others at most; what is larger goes in pieces
// Elements of each row that one kernel takes at most. Rows: blocks, or the vector.
std::uint64_t gpu_piece(Collective what, int ranks, std::size_t element);
// Best first; all that there are.
std::vector<GpuPlan> gpu_plans(const GpuQuestion& question, const Settings& settings, const GpuPrices& prices = {});
int gpu_blocks(std::uint64_t bytes);  // of a kernel for so much; the same on all ranks

}  // namespace tutti::comm
