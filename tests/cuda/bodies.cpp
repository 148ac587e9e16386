#include "tests/cuda/bodies.h"

#include <algorithm>

#include <kernels/cast.h>

namespace tutti::emulation {
namespace {

using namespace kernels;
using namespace kernels::cuda;

using Reducing = void (*)(const Grid&, const ReduceArguments&);
using Casting = void (*)(const Grid&, const CastArguments&);
using Sharing = void (*)(Emulator&, const Grid&, const SharedArguments&);

struct Table {
  Reducing reduce[kTypes][kCombineCount][kPassInputs];
  Casting cast[kTypes][kTypes];
  Sharing shared[2][kTypes][kCombineCount];
};

template <DataType kType, Combine kOp, int... kInputs>
void fill_op(Table& table, std::integer_sequence<int, kInputs...>) {
  ((table.reduce[int(kType)][kOp][kInputs] =
        [](const Grid& grid, const ReduceArguments& a) {
          emulate<Reduce<kType, kOp, (kInputs < kKnownInputs ? kInputs + 1 : 0)>>(grid, a);
        }),
   ...);
  table.shared[0][int(kType)][kOp] = [](Emulator& e, const Grid& grid, const SharedArguments& a) {
    e.launch<OneShot<kType, kOp>>(grid, a);
  };
  table.shared[1][int(kType)][kOp] = [](Emulator& e, const Grid& grid, const SharedArguments& a) {
    e.launch<TwoShot<kType, kOp>>(grid, a);
  };
}

template <DataType kType, int... kTo>
void fill_type(Table& table, std::integer_sequence<int, kTo...>) {
  constexpr auto inputs = std::make_integer_sequence<int, kPassInputs>();
  fill_op<kType, kSum>(table, inputs);
  fill_op<kType, kProd>(table, inputs);
  fill_op<kType, kMin>(table, inputs);
  fill_op<kType, kMax>(table, inputs);
  ((table.cast[int(kType)][kTo] = [](const Grid& grid,
                                     const CastArguments& a) { emulate<Cast<kType, DataType(kTo)>>(grid, a); }),
   ...);
}

template <int... kType>
Table filled(std::integer_sequence<int, kType...> types) {
  Table table{};
  (fill_type<DataType(kType)>(table, types), ...);
  return table;
}

const Table& table() {
  static const Table all = filled(std::make_integer_sequence<int, kTypes>());
  return all;
}

}  // namespace

void reduce(DataType type, Combine op, const Grid& grid, const ReduceArguments& arguments) {
  table().reduce[int(type)][op][arguments.n - 1](grid, arguments);
}
void cast(DataType from, DataType to, const Grid& grid, const CastArguments& arguments) {
  table().cast[int(from)][int(to)](grid, arguments);
}
void add_exchange(Emulator& emulator, const SharedExchange& e, const Grid& grid, const SharedArguments& arguments) {
  if (!e.reduces) return emulator.launch<Collect>(grid, arguments);
  table().shared[e.two_shot][int(e.type)][combine_of(e.op)](emulator, grid, arguments);
}

Combine combine_of(ReduceOp op) {
  return op == ReduceOp::prod ? kProd : op == ReduceOp::min ? kMin : op == ReduceOp::max ? kMax : kSum;
}

std::function<bool()> emulated_kernel(const SharedExchange& r, std::uint64_t seed, std::uint64_t turns) {
  struct Running {
    explicit Running(std::uint64_t with) : emulator(with) {}
    Emulator emulator;
    SharedArguments arguments;
  };
  const auto running = std::make_shared<Running>(seed);
  running->arguments = kernels::cuda::arguments_of(r, kernels::rounded_factor(r.type, r.factor));
  add_exchange(running->emulator, r, {std::min(r.blocks, 2), 16}, running->arguments);
  return [running, turns] { return running->emulator.run_for(turns); };
}

}  // namespace tutti::emulation
