// The public Communicator: checks arguments, then hands over to its Member.
#include <tutti/communicator.h>

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "comm/join.h"
#include "comm/member.h"

namespace tutti {
namespace {

Status empty() { return Status(Code::invalid_state, "the communicator is empty or was destroyed"); }

bool is_here(const std::shared_ptr<comm::Member>& member) { return member && member->engine()->origin().here(); }
// Why a call on it is refused, where it is not here.
Status absent(const std::shared_ptr<comm::Member>& member) { return member ? member->engine()->origin().elsewhere("the communicator") : empty(); }

template <class Call>
Work run(const std::shared_ptr<comm::Member>& member, const Call& call) {
  if (!is_here(member)) return Work(absent(member));
  if constexpr (requires { call.stream; })
    if (call.stream.given) return member->start_on(call.stream.handle, call);
  auto prepared = comm::prepare(call, member->self());
  if (!prepared) return member->refuse(prepared.status());
  return member->start(std::move(*prepared));
}

template <class Call>
Work run_pair(const std::shared_ptr<comm::Member>& member, Collective what, const Call& call) {
  if (!is_here(member)) return Work(absent(member));
  if (call.stream.given) return member->start_on(call.stream.handle, call);
  auto prepared = comm::prepare(call, member->self());
  if (!prepared) return member->refuse(prepared.status());
  return member->start_pair(what, std::move(*prepared), call.peer);
}

}  // namespace

Communicator::Communicator() = default;
Communicator::Communicator(std::shared_ptr<comm::Member> member) : member_(std::move(member)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this == &other) return *this;
  destroy();
  member_ = std::move(other.member_);
  return *this;
}
Communicator::~Communicator() { destroy(); }

Result<Communicator> Communicator::from_environment(const Options& options) {
  auto member = comm::join_from_environment(options);
  if (!member) return member.status();
  return Communicator(std::move(*member));
}

Result<Communicator> Communicator::create(int rank, int rank_count, const std::string& address, const Options& options) {
  auto member = comm::join_at(rank, rank_count, address, options);
  if (!member) return member.status();
  return Communicator(std::move(*member));
}

Result<Communicator> Communicator::create(int rank, int rank_count, const UniqueId& id, const Options& options) {
  auto member = comm::join_by_id(rank, rank_count, id, options);
  if (!member) return member.status();
  return Communicator(std::move(*member));
}

Result<UniqueId> Communicator::make_unique_id() { return comm::make_unique_id(); }

Result<Communicator> Communicator::split(int color, int key) { return is_here(member_) ? member_->split(color, key) : Result<Communicator>(absent(member_)); }

Result<Communicator> Communicator::shrink(std::chrono::milliseconds limit, const std::vector<int>& without) {
  if (!is_here(member_)) return absent(member_);
  for (const int r : without)
    if (r < 0 || r >= rank_count() || r == rank())
      return Status(Code::invalid_argument, fmt::format("shrink: without rank {}, wanted one of 0 to {} that is not the caller's {}", r, rank_count() - 1, rank()));
  if (const Status status = member_->begin_shrink(limit, without).wait(); !status.ok()) return status;
  return member_->take_survivors();
}

Result<Communicator> Communicator::grow(int rank_count, const UniqueId& id, const Options& options) {
  if (!is_here(member_)) return absent(member_);
  struct Wish {
    std::uint64_t rank_count;
    std::array<std::byte, sizeof(UniqueId)> id;
  } wish{std::uint64_t(rank_count), {}};
  static_assert(std::is_trivially_copyable_v<UniqueId>);
  std::memcpy(wish.id.data(), &id, sizeof id);
  if (rank_count <= member_->rank_count())
    return Status(Code::invalid_argument, fmt::format("grow to {} ranks: there are {} already", rank_count, member_->rank_count()));
  if (const Status status = broadcast({&wish, &wish, sizeof wish, DataType::u8, 0}).wait(); !status.ok()) return status;
  if (wish.rank_count != std::uint64_t(rank_count))
    return Status(Code::invalid_argument, fmt::format("rank {} wants to grow to {} ranks, rank 0 to {}", rank(), rank_count, wish.rank_count));
  UniqueId agreed;
  std::memcpy(&agreed, wish.id.data(), sizeof agreed);
  return create(rank(), rank_count, agreed, options);
}

Status Communicator::status() const { return is_here(member_) ? member_->status() : absent(member_); }

int Communicator::rank() const { return member_ ? member_->rank() : -1; }
int Communicator::rank_count() const { return member_ ? member_->rank_count() : 0; }
int Communicator::local_rank() const { return member_ ? member_->local_rank() : -1; }
int Communicator::local_rank_count() const { return member_ ? member_->local_rank_count() : 0; }

Work Communicator::all_reduce(const AllReduce& call) { return run(member_, call); }
Work Communicator::reduce_scatter(const ReduceScatter& call) { return run(member_, call); }
Work Communicator::all_gather(const AllGather& call) { return run(member_, call); }
Work Communicator::broadcast(const Broadcast& call) { return run(member_, call); }
Work Communicator::reduce(const Reduce& call) { return run(member_, call); }
Work Communicator::gather(const Gather& call) { return run(member_, call); }
Work Communicator::scatter(const Scatter& call) { return run(member_, call); }
Work Communicator::all_to_all(const AllToAll& call) { return run(member_, call); }
Work Communicator::all_gather_v(const AllGatherV& call) { return run(member_, call); }
Work Communicator::reduce_scatter_v(const ReduceScatterV& call) { return run(member_, call); }
Work Communicator::all_to_all_v(const AllToAllV& call) { return run(member_, call); }
Work Communicator::send(const Send& call) { return run_pair(member_, Collective::send, call); }
Work Communicator::recv(const Recv& call) { return run_pair(member_, Collective::recv, call); }

Work Communicator::barrier(DeviceStream stream) { return is_here(member_) ? member_->barrier(stream) : Work(absent(member_)); }

Result<std::string> Communicator::use_gpu() { return is_here(member_) ? member_->use_gpu() : Result<std::string>(absent(member_)); }

void Communicator::begin_group() {
  if (is_here(member_)) member_->begin_group();
}
Work Communicator::end_group() { return is_here(member_) ? member_->end_group() : Work(absent(member_)); }

Result<Choice> Communicator::explain(Collective what, std::size_t count, DataType type, ReduceOp op) const {
  if (!is_here(member_)) return absent(member_);
  return member_->choose(what, count, type, op);
}

std::size_t Communicator::memory_bytes() const { return is_here(member_) ? member_->engine()->memory() : 0; }

void Communicator::abort(const std::string& reason) {
  if (is_here(member_)) member_->abort(reason);
}

void Communicator::destroy(std::chrono::milliseconds limit) {
  if (!member_) return;
  if (!is_here(member_)) return abandon(std::move(member_));
  member_->destroy(limit);
  member_.reset();
}

}  // namespace tutti
