#pragma once
// Element types, reductions and collectives, with the names that people and files use for them.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class DataType : std::uint8_t { i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2 };
inline constexpr int kDataTypeCount = 12;

// premul_sum: each rank's input is multiplied by that rank's factor, then
// summed. avg: the sum divided by the rank count.
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg, premul_sum };
inline constexpr int kReduceOpCount = 6;

enum class Collective : std::uint8_t {
  all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all, barrier, send, recv
};
inline constexpr int kCollectiveCount = 11;

// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::i32: case DataType::u32: case DataType::f32: return 4;
    case DataType::i64: case DataType::u64: case DataType::f64: return 8;
    case DataType::f16: case DataType::bf16: return 2;
    case DataType::i8: case DataType::u8: case DataType::f8e4m3: case DataType::f8e5m2: return 1;
  }
  return 0;
}

constexpr bool is_floating(DataType type) {
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f32 || type == DataType::f64 ||
         type == DataType::f8e4m3 || type == DataType::f8e5m2;
}

// Floats that are accumulated in f32 and rounded once: f16, bf16, f8e4m3, f8e5m2.
constexpr bool is_narrow_float(DataType type) { return is_floating(type) && size_of(type) < 4; }

std::string_view name_of(DataType type);      // "f32"
std::string_view name_of(ReduceOp op);        // "sum"
std::string_view name_of(Collective what);    // "all_reduce"

// The exact names above, and nccl-tests' spellings (float, half, bfloat16,
// int8, uint64, f8e4m3 ...). Empty when unknown.
std::optional<DataType> data_type_from(std::string_view name);
std::optional<ReduceOp> reduce_op_from(std::string_view name);
std::optional<Collective> collective_from(std::string_view name);

}  // namespace tutti
