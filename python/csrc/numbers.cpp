#include "python/csrc/numbers.h"

#include <ATen/Functions.h>
#include <torch/version.h>

#include <optional>
#include <string>

#include "python/csrc/failure.h"

namespace tutti_torch {
namespace {

using tutti::DataType;
using Op = c10d::ReduceOp;

std::optional<DataType> type_of(at::ScalarType type) {
  switch (type) {
    case at::kChar: return DataType::i8;
    case at::kByte: return DataType::u8;
    case at::kInt: return DataType::i32;
    case at::kLong: return DataType::i64;
    case at::kHalf: return DataType::f16;
    case at::kBFloat16: return DataType::bf16;
    case at::kFloat: return DataType::f32;
    case at::kDouble: return DataType::f64;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    case at::ScalarType::Float8_e4m3fn: return DataType::f8e4m3;
    case at::ScalarType::Float8_e5m2: return DataType::f8e5m2;
    case at::ScalarType::UInt32: return DataType::u32;
    case at::ScalarType::UInt64: return DataType::u64;
#endif
    default: return std::nullopt;
  }
}

std::string name_of(Op::RedOpType op) {
  switch (op) {
    case Op::SUM: return "SUM";
    case Op::AVG: return "AVG";
    case Op::PRODUCT: return "PRODUCT";
    case Op::MIN: return "MIN";
    case Op::MAX: return "MAX";
    case Op::BAND: return "BAND";
    case Op::BOR: return "BOR";
    case Op::BXOR: return "BXOR";
    case Op::PREMUL_SUM: return "PREMUL_SUM";
    default: return "an unknown reduction";
  }
}

tutti::ReduceOp reduce_op(Op::RedOpType op) {
  switch (op) {
    case Op::PRODUCT: return tutti::ReduceOp::prod;
    case Op::MIN: return tutti::ReduceOp::min;
    case Op::MAX: return tutti::ReduceOp::max;
    case Op::AVG: return tutti::ReduceOp::avg;
    case Op::PREMUL_SUM: return tutti::ReduceOp::premul_sum;
    default: return tutti::ReduceOp::sum;
  }
}

double factor_of(const Op& op) {
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (!factor) refuse("PREMUL_SUM without its factor: make it with torch.distributed._make_nccl_premul_sum(factor)");
#if TORCH_VERSION_MAJOR >= 2
  return factor->tensor_factor.defined() ? factor->tensor_factor.item<double>() : factor->double_factor;
#else
  return factor->tensor_factors.empty() ? factor->double_factor : factor->tensor_factors[0].item<double>();
#endif
}

bool bitwise(Op::RedOpType op) { return op == Op::BAND || op == Op::BOR || op == Op::BXOR; }

// A bool is a byte that is 0 or 1: sum and or are the larger, product and and the smaller of two.
Reduction of_bools(Reduction r, Op::RedOpType op, const char* call) {
  r.numbers.type = DataType::u8;
  switch (op) {
    case Op::SUM: case Op::MAX: case Op::BOR: r.op = tutti::ReduceOp::max; return r;
    case Op::PRODUCT: case Op::MIN: case Op::BAND: r.op = tutti::ReduceOp::min; return r;
    case Op::BXOR: r.fold = true; return r;
    default: unsupported(std::string(call) + ": " + name_of(op) + " of bool means nothing; convert to a number first");
  }
}

}  // namespace

Numbers as_moved(const at::Tensor& tensor) {
  if (const auto type = type_of(tensor.scalar_type())) return {*type, 1};
  return {DataType::u8, std::size_t(tensor.element_size())};
}

Reduction reduction_of(at::ScalarType type, const Op& op, const char* call) {
  Reduction r{type};
  const std::string what = std::string(call) + ": " + name_of(op.op_) + " of " + at::toString(type);
  if (type == at::kBool) return of_bools(r, op.op_, call);
  if (bitwise(op.op_)) {
    if (!at::isIntegralType(type, false)) unsupported(what + " means nothing");
    r.fold = true;
    return r;
  }
  r.op = reduce_op(op.op_);
  if (op.op_ == Op::PREMUL_SUM) r.factor = factor_of(op);
  if (at::isComplexType(type)) {
    if (op.op_ == Op::MIN || op.op_ == Op::MAX) unsupported(what + " means nothing");
    if (op.op_ == Op::PRODUCT) unsupported(what + " is not there, as elsewhere in torch.distributed: gather the factors");
    r.numbers.per_element = 2;
    type = at::toRealValueType(type);
  } else if (type == at::kShort) {
    type = r.carrier = at::kInt;
  }
  const auto number = type_of(type);
  if (!number) unsupported(what + " is not there: convert it to another type first");
  r.numbers.type = *number;
  return r;
}

at::Tensor fold(const at::Tensor& rows, Op::RedOpType op) {
  at::Tensor out = rows[0].clone();
  for (int64_t i = 1; i < rows.size(0); ++i) {
    switch (op) {
      case Op::BAND: out.bitwise_and_(rows[i]); break;
      case Op::BOR: out.bitwise_or_(rows[i]); break;
      default: out.bitwise_xor_(rows[i]);
    }
  }
  return out;
}

}  // namespace tutti_torch
