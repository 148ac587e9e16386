// The kernels from the naive loop to the best SIMD level, each rung checked against the naive one before it is timed.
// Figures are bytes read and written per second; memcpy of the same output is the ceiling. No other layer is measured
// here.
//   kernel_ladder --benchmark_filter='reduce/f32/sum/2/.*'
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <core/copy.h>
#include <core/crc32c.h>
#include <kernels/convert.h>
#include <kernels/kernels.h>

namespace tutti::kernels {
namespace {

constexpr DataType kTypes[] = {DataType::f32,    DataType::f64,    DataType::f16, DataType::bf16,
                               DataType::f8e4m3, DataType::f8e5m2, DataType::i32, DataType::i8,
                               DataType::u32,    DataType::u8,     DataType::i64, DataType::u64};

std::vector<std::byte> random_bytes(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> result(bytes);
  for (std::byte& b : result) b = std::byte(random());
  return result;
}

// Floats between 1/2 and 2, so that no product is denormal, which takes a processor a hundred times as long.
std::vector<std::byte> random_elements(DataType type, std::size_t bytes, unsigned seed) {
  if (!is_floating(type)) return random_bytes(bytes, seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> some(0.5, 2);
  std::vector<std::byte> result(bytes);
  std::vector<double> values(bytes / size_of(type));
  for (double& value : values) value = some(random);
  cast(type, result.data(), DataType::f64, reinterpret_cast<const std::byte*>(values.data()), values.size());
  return result;
}

struct Buffers {
  std::vector<std::vector<std::byte>> storage;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte> out;
  Buffers(DataType type, std::size_t n, std::size_t bytes) : out(bytes) {
    for (std::size_t k = 0; k < n; ++k) storage.push_back(random_elements(type, bytes, unsigned(k)));
    for (const auto& input : storage) inputs.push_back(input.data());
  }
};

void count_bytes(benchmark::State& state, std::size_t bytes_per_round) {
  state.SetBytesProcessed(std::int64_t(state.iterations()) * std::int64_t(bytes_per_round));
}

// The first rung: one element at a time through convert.h, sums from the left (for two and three inputs that is the
// tree).
template <class T, class Widen, class Round>
void naive_sum(std::byte* out, const std::vector<const std::byte*>& inputs, std::size_t count, Widen wide,
               Round rounded) {
  for (std::size_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, inputs[0] + i * sizeof(T), sizeof(T));
    auto sum = wide(element);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      std::memcpy(&element, inputs[k] + i * sizeof(T), sizeof(T));
      sum = static_cast<decltype(sum)>(sum + wide(element));
    }
    element = rounded(sum);
    std::memcpy(out + i * sizeof(T), &element, sizeof(T));
  }
}
template <class Number>
void naive_wide(std::byte* out, const std::vector<const std::byte*>& inputs, std::size_t count) {
  const auto same = [](Number value) { return value; };
  naive_sum<Number>(out, inputs, count, same, same);
}
template <class Format>
void naive_narrow(std::byte* out, const std::vector<const std::byte*>& inputs, std::size_t count) {
  using Bits = typename Format::Bits;
  naive_sum<Bits>(
      out, inputs, count, [](Bits bits) { return to_f32<Format>(bits); },
      [](float sum) { return from_f32<Format>(sum); });
}
void naive(DataType type, std::byte* out, const std::vector<const std::byte*>& inputs, std::size_t count) {
  switch (type) {
    case DataType::i8:
    case DataType::u8: return naive_wide<std::uint8_t>(out, inputs, count);
    case DataType::i32:
    case DataType::u32: return naive_wide<std::uint32_t>(out, inputs, count);
    case DataType::i64:
    case DataType::u64: return naive_wide<std::uint64_t>(out, inputs, count);
    case DataType::f32: return naive_wide<float>(out, inputs, count);
    case DataType::f64: return naive_wide<double>(out, inputs, count);
    case DataType::f16: return naive_narrow<F16>(out, inputs, count);
    case DataType::bf16: return naive_narrow<Bf16>(out, inputs, count);
    case DataType::f8e4m3: return naive_narrow<F8e4m3>(out, inputs, count);
    case DataType::f8e5m2: return naive_narrow<F8e5m2>(out, inputs, count);
  }
}

void run_naive(benchmark::State& state, DataType type, std::size_t n, std::size_t bytes) {
  Buffers buffers(type, n, bytes);
  for (auto _ : state) {
    naive(type, buffers.out.data(), buffers.inputs, bytes / size_of(type));
    benchmark::ClobberMemory();
  }
  count_bytes(state, (n + 1) * bytes);
}

void run_reduce(benchmark::State& state, SimdLevel level, DataType type, ReduceOp op, std::size_t n,
                std::size_t bytes) {
  Buffers buffers(type, n, bytes);
  set_simd_level(level);
  const std::size_t count = bytes / size_of(type);
  const Finish finish{op == ReduceOp::avg ? std::uint32_t(n) : 1};
  if (op == ReduceOp::sum && n <= 3) {
    std::vector<std::byte> expected(bytes);
    naive(type, expected.data(), buffers.inputs, count);
    reduce(type, op, buffers.out.data(), buffers.inputs, count);
    if (expected != buffers.out) return state.SkipWithError("differs from the naive loop");
  }
  for (auto _ : state) {
    reduce(type, op, buffers.out.data(), buffers.inputs, count, finish);
    benchmark::ClobberMemory();
  }
  count_bytes(state, (n + 1) * bytes);
}

void run_scale(benchmark::State& state, SimdLevel level, DataType type, std::size_t bytes) {
  Buffers buffers(type, 1, bytes);
  set_simd_level(level);
  for (auto _ : state) {
    scale(type, buffers.out.data(), buffers.inputs[0], bytes / size_of(type), 0.5);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2 * bytes);
}

void run_cast(benchmark::State& state, SimdLevel level, DataType to, DataType from, std::size_t count) {
  Buffers buffers(from, 1, count * size_of(from));
  buffers.out.resize(count * size_of(to));
  set_simd_level(level);
  for (auto _ : state) {
    cast(to, buffers.out.data(), from, buffers.inputs[0], count);
    benchmark::ClobberMemory();
  }
  count_bytes(state, count * (size_of(from) + size_of(to)));
}

template <class F>
void run_copy(benchmark::State& state, std::size_t bytes, F function) {
  Buffers buffers(DataType::u8, 1, bytes);
  for (auto _ : state) {
    function(buffers.out.data(), buffers.inputs[0], bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2 * bytes);
}

template <class F>
void run_crc(benchmark::State& state, std::size_t bytes, F function) {
  const std::vector<std::byte> data = random_bytes(bytes, 1);
  std::uint32_t crc = 0;
  for (auto _ : state) benchmark::DoNotOptimize(crc = function(data.data(), bytes, crc));
  count_bytes(state, bytes);
}

template <class... Args>
void add(const std::string& name, Args... args) {
  benchmark::RegisterBenchmark(name.c_str(), args...);
}

void add_reductions(DataType type, std::size_t bytes) {
  const auto name = [=](ReduceOp op, std::size_t n, const char* rung) {
    return fmt::format("reduce/{}/{}/{}/{}/{}", tutti::name_of(type), tutti::name_of(op), n, rung, bytes);
  };
  for (const std::size_t n : {2, 3, 4, 8, 16, 64}) {
    if (n <= 3) add(name(ReduceOp::sum, n, "naive"), run_naive, type, n, bytes);
    for (const SimdLevel level : simd_levels())
      add(name(ReduceOp::sum, n, name_of(level)), run_reduce, level, type, ReduceOp::sum, n, bytes);
  }
  for (const ReduceOp op : {ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg})
    for (const SimdLevel level : simd_levels())
      add(name(op, 2, name_of(level)), run_reduce, level, type, op, std::size_t(2), bytes);
  // What premul_sum does to each input before the sum.
  for (const SimdLevel level : simd_levels())
    add(fmt::format("scale/{}/{}/{}", tutti::name_of(type), name_of(level), bytes), run_scale, level, type, bytes);
}

void add_copies_and_casts(std::size_t bytes) {
  const auto plain = [](std::byte* out, const std::byte* in, std::size_t n) { std::memcpy(out, in, n); };
  add(fmt::format("memcpy/{}", bytes), run_copy<decltype(plain)>, bytes, plain);
  add(fmt::format("copy/{}", bytes), run_copy<decltype(&copy_bytes)>, bytes, &copy_bytes);
  for (const DataType narrow : {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2})
    for (const SimdLevel level : simd_levels()) {
      const auto kind = tutti::name_of(narrow);
      add(fmt::format("cast/f32/{}/{}/{}", kind, name_of(level), bytes), run_cast, level, narrow, DataType::f32,
          bytes / 4);
      add(fmt::format("cast/{}/f32/{}/{}", kind, name_of(level), bytes), run_cast, level, DataType::f32, narrow,
          bytes / 4);
    }
}

void add_crc(std::size_t bytes) {
  for (const CrcWay& way : crc32c_ways())
    add(fmt::format("crc32c/{}/{}", way.name, bytes), run_crc<decltype(way.function)>, bytes, way.function);
}

}  // namespace

void add_ladder() {
  for (const std::size_t bytes :
       {std::size_t(64), std::size_t(4) << 10, std::size_t(128) << 10, std::size_t(32) << 20}) {
    add_copies_and_casts(bytes);
    add_crc(bytes);
    for (const DataType type : kTypes) add_reductions(type, bytes);
  }
}

}  // namespace tutti::kernels

int main(int argc, char** argv) {
  tutti::kernels::add_ladder();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
