// The list of our own headers.
#include "nccl/nccl.h"
#include "nccl/nccl_device.h"

#include "tests/nccl/abi_list.h"

tutti::test::Abi tutti::test::abi_of_ours() { return abi_list(); }
