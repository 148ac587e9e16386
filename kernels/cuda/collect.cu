// The kernel of collectives that copy what others have put into their memory.
#include <kernels/cuda/shared_body.h>
#include <kernels/cuda/launch.cuh>

namespace tutti::kernels::cuda {

int launch_collect(int blocks, void* stream, const SharedArguments& arguments) {
  return launch<Collect>(blocks, stream, &arguments);
}

}  // namespace tutti::kernels::cuda
