#include "nccl/call.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "kernels/kernels.h"

namespace tutti::nccl {
namespace {

constexpr DataType kTypes[ncclNumTypes] = {DataType::i8,  DataType::u8,   DataType::i32,    DataType::u32,
                                           DataType::i64, DataType::u64,  DataType::f16,    DataType::f32,
                                           DataType::f64, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2};
constexpr ReduceOp kOps[ncclNumOps] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};

bool has_root(Collective what) {
  return what == Collective::broadcast || what == Collective::reduce || what == Collective::gather ||
         what == Collective::scatter;
}
bool has_peer(Collective what) { return what == Collective::send || what == Collective::recv; }

Work start(Communicator& c, const comm::Form& form) {
  struct Starter {
    Communicator& c;
    Work operator()(const AllReduce& f) { return c.all_reduce(f); }
    Work operator()(const ReduceScatter& f) { return c.reduce_scatter(f); }
    Work operator()(const AllGather& f) { return c.all_gather(f); }
    Work operator()(const Broadcast& f) { return c.broadcast(f); }
    Work operator()(const Reduce& f) { return c.reduce(f); }
    Work operator()(const Gather& f) { return c.gather(f); }
    Work operator()(const Scatter& f) { return c.scatter(f); }
    Work operator()(const AllToAll& f) { return c.all_to_all(f); }
    Work operator()(const AllGatherV& f) { return c.all_gather_v(f); }
    Work operator()(const ReduceScatterV& f) { return c.reduce_scatter_v(f); }
    Work operator()(const comm::Barrier& f) { return c.barrier(f.stream); }
    Work operator()(const Send& f) { return c.send(f); }
    Work operator()(const Recv& f) { return c.recv(f); }
  };
  return std::visit(Starter{c}, form);
}

template <class Integer>
Outcome whole(const void* scalar, double& factor) {
  Integer value;
  std::memcpy(&value, scalar, sizeof value);
  factor = double(value);
  if (factor < 0x1p63 && Integer(factor) == value) return {};
  return {ncclInvalidArgument,
          fmt::format("the scalar is {}: integers beyond 2^53 are served only where a double holds them", value)};
}

}  // namespace

Outcome to_type(ncclDataType_t from, DataType& to) {
  if (int(from) < 0 || from >= ncclNumTypes)
    return {ncclInvalidArgument,
            fmt::format("datatype is {}, wanted one of ncclDataType_t, 0 to {}", int(from), ncclNumTypes - 1)};
  to = kTypes[from];
  return {};
}

Outcome to_op(ncclRedOp_t from, ncclDataType_t type, ncclComm& comm, Call& to) {
  if (int(from) >= 0 && from < ncclNumOps) return to.op = kOps[from], Outcome();
  const auto custom = comm.find(from);
  if (!custom)
    return {ncclInvalidArgument, fmt::format("op is {}, wanted one of ncclRedOp_t, 0 to {}, or one that "
                                             "ncclRedOpCreatePreMulSum made for this communicator",
                                             int(from), ncclNumOps - 1)};
  if (custom->type != type)
    return {ncclInvalidArgument,
            fmt::format("op was made for datatype {}, datatype is {}", int(custom->type), int(type))};
  to.op = ReduceOp::premul_sum;
  to.factor = custom->factor;
  to.scalar = custom->scalar;
  to.scalar_type = type;
  return {};
}

Outcome read_scalar(const void* scalar, ncclDataType_t type, double& factor) {
  if (!scalar) return {ncclInvalidArgument, "the scalar is NULL"};
  DataType ours;
  if (Outcome known = to_type(type, ours); !known.ok()) return known;
  switch (ours) {
    case DataType::i8: return whole<std::int8_t>(scalar, factor);
    case DataType::u8: return whole<std::uint8_t>(scalar, factor);
    case DataType::i32: return whole<std::int32_t>(scalar, factor);
    case DataType::u32: return whole<std::uint32_t>(scalar, factor);
    case DataType::i64: return whole<std::int64_t>(scalar, factor);
    case DataType::u64: return whole<std::uint64_t>(scalar, factor);
    case DataType::f64: return std::memcpy(&factor, scalar, sizeof factor), Outcome();
    default: break;
  }
  float value = 0;
  kernels::cast(DataType::f32, reinterpret_cast<std::byte*>(&value), ours, static_cast<const std::byte*>(scalar), 1);
  factor = value;
  return {};
}

Outcome check(const Call& call, ncclComm& comm) {
  const int ranks = comm.communicator().rank_count(), own = comm.communicator().rank();
  if ((has_root(call.what) || has_peer(call.what)) && (call.peer < 0 || call.peer >= ranks))
    return {ncclInvalidArgument, fmt::format("{} is {}, wanted a rank from 0 to {}",
                                             has_root(call.what) ? "root" : "peer", call.peer, ranks - 1)};
  const bool reads = call.what != Collective::recv &&
                     (own == call.peer || (call.what != Collective::broadcast && call.what != Collective::scatter));
  const bool writes = call.what != Collective::send &&
                      (own == call.peer || (call.what != Collective::reduce && call.what != Collective::gather));
  if (call.count > 0 && reads && !call.input)
    return {ncclInvalidArgument, fmt::format("sendbuff is NULL, wanted {} elements", call.count)};
  if (call.count > 0 && writes && !call.output)
    return {ncclInvalidArgument, fmt::format("recvbuff is NULL, wanted room for {} elements", call.count)};
  return outcome_of(comm::prepare(form_of(call), {own, ranks}).status());
}

comm::Form form_of(const Call& c) {
  const auto reduced = [&](auto form) {
    form.op = c.op;
    form.factor = c.factor;
    if (c.stream.given) form.factor_on_device = c.scalar;
    return form;
  };
  const auto rooted = [&](auto form) {
    form.root = c.peer;
    return form;
  };
  const auto form = [&](auto empty) {
    if constexpr (requires { empty.input; }) empty.input = c.input;
    if constexpr (requires { empty.output; }) empty.output = c.output;
    empty.count = c.count;
    empty.type = c.type;
    empty.stream = c.stream;
    return empty;
  };
  switch (c.what) {
    case Collective::reduce_scatter: return reduced(form(ReduceScatter()));
    case Collective::all_gather: return form(AllGather());
    case Collective::broadcast: return rooted(form(Broadcast()));
    case Collective::reduce: return rooted(reduced(form(Reduce())));
    case Collective::gather: return rooted(form(Gather()));
    case Collective::scatter: return rooted(form(Scatter()));
    case Collective::all_to_all: return form(AllToAll());
    case Collective::send:
    case Collective::recv: break;
    default: return reduced(form(AllReduce()));
  }
  if (c.what == Collective::send) return Send{c.input, c.count, c.type, c.peer, c.stream};
  return Recv{c.output, c.count, c.type, c.peer, c.stream};
}

Work start(ncclComm& comm, const Call& call) {
  if (call.behind.given)
    if (Status status = comm.gpu()->synchronize(call.behind.handle); !status.ok()) return Work(status);
  return start(comm.communicator(), form_of(call));
}

}  // namespace tutti::nccl
