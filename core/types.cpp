#include <tutti/types.h>

#include <array>
#include <utility>

namespace tutti {
namespace {

constexpr std::array<std::string_view, kDataTypeCount> kTypes{"i8", "u8", "i32", "u32", "i64", "u64",
                                                              "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"};
constexpr std::array<std::string_view, kDataTypeCount> kTypesLong{"int8",  "uint8",  "int32",       "uint32",
                                                                  "int64", "uint64", "half",        "bfloat16",
                                                                  "float", "double", "float8_e4m3", "float8_e5m2"};
constexpr std::array<std::string_view, kReduceOpCount> kOps{"sum", "prod", "min", "max", "avg", "premul_sum"};
constexpr std::array<std::string_view, kCollectiveCount> kCollectives{
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
    "scatter",    "all_to_all",     "barrier",    "send",      "recv"};

template <class Enum, std::size_t N>
std::optional<Enum> find(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return Enum(i);
  return std::nullopt;
}

}  // namespace

std::string_view name_of(DataType type) { return kTypes.at(std::size_t(type)); }
std::string_view name_of(ReduceOp op) { return kOps.at(std::size_t(op)); }
std::string_view name_of(Collective what) { return kCollectives.at(std::size_t(what)); }

std::optional<DataType> data_type_from(std::string_view name) {
  if (auto type = find<DataType>(kTypes, name)) return type;
  return find<DataType>(kTypesLong, name);
}
std::optional<ReduceOp> reduce_op_from(std::string_view name) {
  if (name == "mulsum") return ReduceOp::premul_sum;   // nccl-tests' spelling
  return find<ReduceOp>(kOps, name);
}
std::optional<Collective> collective_from(std::string_view name) { return find<Collective>(kCollectives, name); }

}  // namespace tutti
