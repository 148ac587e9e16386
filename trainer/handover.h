#pragma once
// Handover: the state of a training run passes to a new set of ranks without a disk, from the memory of those that have been there.
#include <string>

#include "trainer/training.h"

namespace tutti::trainer {

// Collective among the ranks of `now`, which get the state of the one that has done most steps; ranks of a step are at most one
// apart, and a step that one has done is right: nothing has to be undone. `before`: this rank's training up to here, where all its
// state can be had: plain data parallelism, or nobody of its ranks has been lost; else null. False: nobody has any.
// `loss`: of the last step. `told`: where from, on rank 0.
bool hand_over(Training* before, Training& now, double& loss, std::string& told);

}  // namespace tutti::trainer
