// The kernel that holds a stream until the host has written a word, for drivers whose streams cannot wait for memory.
#include <kernels/cuda/await_body.h>
#include <kernels/cuda/launch.cuh>

namespace tutti::kernels::cuda {

int launch_await(void* stream, const AwaitArguments& arguments) { return launch<Await>(1, stream, &arguments); }

}  // namespace tutti::kernels::cuda
