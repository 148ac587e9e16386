#pragma once
// The kernels of one element type, as plain functions: filled by kernels/cuda/type.cuh, once a type, called by
// kernels/cuda/cuda_device.cpp. No CUDA header is seen here.
#include <kernels/table.h>

namespace tutti::kernels::cuda {

inline constexpr int kThreads = 256;  // of each block

// `arguments`: the body's. 0, or the cudaError_t with which the launch was refused.
using Launch = int (*)(int blocks, void* stream, const void* arguments);

struct TypeTable {
  Launch reduce[kCombineCount][8];  // by inputs - 1; from five on the same
  Launch one_shot[kCombineCount], two_shot[kCombineCount];
  Launch cast[kTypes];  // to that type; to itself: a copy
};

const TypeTable& i8_table();
const TypeTable& u8_table();
const TypeTable& i32_table();
const TypeTable& u32_table();
const TypeTable& i64_table();
const TypeTable& u64_table();
const TypeTable& f16_table();
const TypeTable& bf16_table();
const TypeTable& f32_table();
const TypeTable& f64_table();
const TypeTable& f8e4m3_table();
const TypeTable& f8e5m2_table();

}  // namespace tutti::kernels::cuda
