#pragma once
// The bodies of kernels/cuda by runtime values, on emulated grids: what kernels/cuda/type.cuh is on a GPU.
#include <tests/cuda/emulation.h>

#include <array>
#include <utility>

#include <kernels/cuda/cast_body.h>
#include <kernels/cuda/shared_body.h>

namespace tutti::emulation {

using kernels::Combine;
using kernels::cuda::CastArguments;
using kernels::cuda::ReduceArguments;
using kernels::cuda::SharedArguments;

void reduce(DataType type, Combine op, const Grid& grid, const ReduceArguments& arguments);
void cast(DataType from, DataType to, const Grid& grid, const CastArguments& arguments);
// Adds the kernel of one rank; `arguments`, which are the exchange's, must live until run().
void add_exchange(Emulator& emulator, const SharedExchange& exchange, const Grid& grid, const SharedArguments& arguments);
Combine combine_of(ReduceOp op);
// For TwinDevice::make_kernel: two blocks of 16 threads, which run for so many turns at a time.
std::function<bool()> emulated_kernel(const SharedExchange& exchange, std::uint64_t seed, std::uint64_t turns);

}  // namespace tutti::emulation
