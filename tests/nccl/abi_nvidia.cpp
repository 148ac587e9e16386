// The list of the CUDA toolkit's headers, where they are; by their full paths, since ours have the same names.
#ifdef TUTTI_NVIDIA_NCCL
#include TUTTI_NVIDIA_HEADER
#include TUTTI_NVIDIA_DEVICE_HEADER

#include "tests/nccl/abi_list.h"

tutti::test::Abi tutti::test::abi_of_nvidia() { return abi_list(); }
#else
#include "tests/nccl/abi.h"

tutti::test::Abi tutti::test::abi_of_nvidia() { return {}; }
#endif
