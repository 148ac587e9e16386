// The door to the loops: checks arguments, chooses the SIMD level once, looks up the loop. Computes nothing itself but
// the rounding of scale's factor.
#include <kernels/convert.h>
#include <kernels/kernels.h>
#include <kernels/table.h>

#include <array>
#include <atomic>
#include <cmath>

#include <core/check.h>
#include <core/copy.h>
#include <kernels/cast.h>

namespace tutti::kernels {
namespace {

static_assert(kMostInputs == kMaxInputs && kTypes == kDataTypeCount);

struct Levels {
  std::array<SimdLevel, 4> names{};
  std::array<const Table*, 4> tables{};
  std::size_t count = 0;

  void add(SimdLevel level, const Table* table, bool runs_here) {
    if (table == nullptr || !runs_here) return;
    names[count] = level;
    tables[count++] = table;
  }
  Levels() {
    add(SimdLevel::scalar, scalar_table(), true);
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    add(SimdLevel::avx2, avx2_table(), avx2);
    add(SimdLevel::avx512, avx512_table(), avx2 && avx512);
#endif
    add(SimdLevel::neon, neon_table(), true);
  }
};

const Levels& levels() {
  static const Levels found;
  return found;
}

// Index into levels(): the last added is the best.
std::atomic<std::size_t>& chosen() {
  static std::atomic<std::size_t> index{levels().count - 1};
  return index;
}

const Table& table() { return *levels().tables[chosen().load(std::memory_order_relaxed)]; }

constexpr Combine combine_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod: return kProd;
    case ReduceOp::min: return kMin;
    case ReduceOp::max: return kMax;
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum: return kSum;
  }
  return kSum;
}

}  // namespace

void reduce(DataType type, ReduceOp op, std::byte* out, std::span<const std::byte* const> inputs, std::size_t count,
            Finish finish) {
  TUTTI_CHECK(!inputs.empty() && inputs.size() <= kMaxInputs && finish.divide_by != 0);
  TUTTI_CHECK(std::size_t(type) < std::size_t(kTypes));
  table().reduce[std::size_t(type)][combine_of(op)](out, inputs.data(), inputs.size(), count, finish.divide_by);
}

void scale(DataType type, std::byte* out, const std::byte* in, std::size_t count, double factor) {
  TUTTI_CHECK(std::size_t(type) < std::size_t(kTypes));
  const std::uint64_t rounded = rounded_factor(type, factor);
  table().scale[std::size_t(type)](out, in, count, &rounded);
}

void cast(DataType to, std::byte* out, DataType from, const std::byte* in, std::size_t count) {
  constexpr auto narrow_row = [](DataType type) -> std::size_t {
    return type == DataType::f16 ? 0 : type == DataType::bf16 ? 1 : type == DataType::f8e4m3 ? 2 : 3;
  };
  if (to == from)
    copy_bytes(out, in, count * size_of(to));
  else if (to == DataType::f32 && is_narrow_float(from))
    table().to_f32[narrow_row(from)](out, in, count);
  else if (from == DataType::f32 && is_narrow_float(to))
    table().from_f32[narrow_row(to)](out, in, count);
  else
    cast_values(to, out, from, in, count);
}

SimdLevel simd_level() { return levels().names[chosen().load(std::memory_order_relaxed)]; }

const char* name_of(SimdLevel level) {
  switch (level) {
    case SimdLevel::scalar: return "scalar";
    case SimdLevel::avx2: return "avx2";
    case SimdLevel::avx512: return "avx512";
    case SimdLevel::neon: return "neon";
  }
  return "unknown";
}

std::span<const SimdLevel> simd_levels() { return {levels().names.data(), levels().count}; }

bool set_simd_level(SimdLevel level) {
  for (std::size_t i = 0; i < levels().count; ++i) {
    if (levels().names[i] != level) continue;
    chosen().store(i, std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace tutti::kernels
