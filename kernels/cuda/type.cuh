// All kernels of one element type. Compiled once a type, by files that CMake writes: #define TUTTI_TYPE, and this. One
// file for all types would compile for minutes on one core.
#include <kernels/cuda/cast_body.h>
#include <kernels/cuda/shared_body.h>
#include <kernels/cuda/launch.cuh>

namespace tutti::kernels::cuda {
namespace {

constexpr DataType kType = DataType::TUTTI_TYPE;

template <Combine kOp, int... kInputs>
void fill_reduce(TypeTable& table, std::integer_sequence<int, kInputs...>) {
  ((table.reduce[kOp][kInputs] = launch<Reduce<kType, kOp, (kInputs < kKnownInputs ? kInputs + 1 : 0)>>), ...);
  table.one_shot[kOp] = launch<OneShot<kType, kOp>>;
  table.two_shot[kOp] = launch<TwoShot<kType, kOp>>;
}

template <int... kTo>
void fill_cast(TypeTable& table, std::integer_sequence<int, kTo...>) {
  ((table.cast[kTo] = launch<Cast<kType, DataType(kTo)>>), ...);
}

TypeTable filled() {
  TypeTable table{};
  const auto inputs = std::make_integer_sequence<int, kPassInputs>();
  fill_reduce<kSum>(table, inputs);
  fill_reduce<kProd>(table, inputs);
  fill_reduce<kMin>(table, inputs);
  fill_reduce<kMax>(table, inputs);
  fill_cast(table, std::make_integer_sequence<int, kTypes>());
  return table;
}

}  // namespace

#define TUTTI_TABLE_NAME_(type) type##_table
#define TUTTI_TABLE_NAME(type) TUTTI_TABLE_NAME_(type)
const TypeTable& TUTTI_TABLE_NAME(TUTTI_TYPE)() {
  static const TypeTable table = filled();
  return table;
}

}  // namespace tutti::kernels::cuda
