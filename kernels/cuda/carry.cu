// The kernel that carries the slices of several calls at once.
#include <kernels/cuda/carry_body.h>
#include <kernels/cuda/launch.cuh>

namespace tutti::kernels::cuda {

int launch_carry(int blocks, void* stream, const Carriage& carriage) {
  return launch<Carry>(blocks, stream, &carriage);
}

}  // namespace tutti::kernels::cuda
