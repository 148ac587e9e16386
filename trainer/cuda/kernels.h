#pragma once
// All kernels of the trainer, numbered by their place in one list.
#include <type_traits>

#include "trainer/cuda/attention_body.h"
#include "trainer/cuda/element_body.h"
#include "trainer/cuda/row_body.h"

namespace tutti::trainer::cuda {

template <class... Bodies>
struct List {};
using Kernels = List<Drop, Add, Round, Narrow, Widen, ChangeWeights, StartRows, Activate, ActivateBack, Rotate, Embed, EmbedPositionsBack,
                     NormForward, NormBack, NormWeightsBack, AddColumns, EmbedBack, LossForward, LossBack, SumSquares, AlongRows,
                     AttentionForward<64>, AttentionForward<128>, AttentionKeysBack<64>, AttentionKeysBack<128>, AttentionQueriesBack<64>,
                     AttentionQueriesBack<128>>;

template <class Body, class... Bodies>
constexpr int place_in(List<Bodies...>) {
  int place = 0;
  bool found = false;
  ((found = found || std::is_same_v<Body, Bodies>, place += found ? 0 : 1), ...);
  return place;
}

// Threads of a block on a GPU.
template <class Body>
constexpr std::size_t threads_of() {
  if constexpr (requires { Body::kThreads; }) return Body::kThreads;
  else return kThreads;
}

// By place: the body's kernel in `blocks` blocks on a stream; 0, or the cudaError_t with which the launch was refused.
using Launch = int (*)(std::size_t blocks, void* stream, const void* arguments);
const Launch* launches();      // in a build with CUDA

}  // namespace tutti::trainer::cuda
