#include "trainer/wire.h"

#include <algorithm>
#include <numeric>

#include "trainer/failure.h"

namespace tutti::trainer {
namespace {

std::size_t before(const std::vector<std::size_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t(0));
}

void* block_at(void* data, const std::vector<std::size_t>& counts, int rank, DataType type) {
  return static_cast<std::byte*>(data) + before(counts, rank) * size_of(type);
}

}  // namespace

Exchange Wire::started(const std::string& name, std::size_t bytes, Work work, bool in_stream) {
  ++count_.operations;
  count_.bytes += bytes;
  const Trace::Time begin = Trace::Clock::now();
  flight_->begin(begin);
  if (trace_.wanted()) {
    work.then([this, flight = flight_, name, bytes, begin](const Status&) {
      flight->end(Trace::Clock::now());
      trace_.add(Trace::Kind::exchange, name, begin, Trace::Clock::now(), bytes);
    });
  } else {
    work.then([flight = flight_](const Status&) { flight->end(Trace::Clock::now()); });
  }
  return {std::move(work), in_stream ? device_.mark() : nullptr};
}

Exchange Wire::sum(const std::string& name, void* data, std::size_t count, DataType type) {
  if (rank_count() == 1) return {};
  const DeviceStream stream = device_.exchange_stream();
  return started(name, count * size_of(type),
                 communicator_.all_reduce({.input = data, .output = data, .count = count, .type = type, .stream = stream}), stream.given);
}

Exchange Wire::sum_blocks(const std::string& name, void* data, const std::vector<std::size_t>& counts, DataType type) {
  if (rank_count() == 1) return {};
  ReduceScatterV call;
  call.input = data, call.output = block_at(data, counts, rank(), type), call.counts = counts, call.type = type;
  call.stream = device_.exchange_stream();
  return started(name, before(counts, rank_count()) * size_of(type), communicator_.reduce_scatter_v(call), call.stream.given);
}

Exchange Wire::gather_blocks(const std::string& name, void* data, const std::vector<std::size_t>& counts, DataType type) {
  return gather(name, data, counts, type, device_.exchange_stream());
}

Exchange Wire::gather_host_blocks(const std::string& name, float* data, const std::vector<std::size_t>& counts) {
  return gather(name, data, counts, DataType::f32, {});
}

Exchange Wire::gather(const std::string& name, void* data, const std::vector<std::size_t>& counts, DataType type, DeviceStream stream) {
  if (rank_count() == 1) return {};
  AllGatherV call;
  call.input = block_at(data, counts, rank(), type), call.output = data, call.counts = counts, call.type = type, call.stream = stream;
  return started(name, before(counts, rank_count()) * size_of(type), communicator_.all_gather_v(call), stream.given);
}

Exchange Wire::broadcast(const std::string& name, void* data, std::size_t bytes, int root) {
  if (rank_count() == 1) return {};
  return started(name, bytes,
                 communicator_.broadcast({.input = data, .output = data, .count = bytes, .type = DataType::u8, .root = root}));
}

Exchange Wire::swap(const std::string& name, const float* input, const std::vector<std::size_t>& sends, float* output,
                    const std::vector<std::size_t>& receives) {
  AllToAllV call;
  call.input = input, call.output = output, call.send_counts = sends, call.recv_counts = receives;
  return started(name, std::max(before(sends, rank_count()), before(receives, rank_count())) * sizeof(float),
                 communicator_.all_to_all_v(call));
}

void Wire::sum_now(std::vector<double>& values) {
  if (rank_count() == 1) return;
  Exchange exchange = started("sum of figures", values.size() * sizeof(double),
                      communicator_.all_reduce({.input = values.data(), .output = values.data(), .count = values.size(), .type = DataType::f64}));
  wait(exchange);
}

std::vector<std::uint64_t> Wire::gather_now(const std::vector<std::uint64_t>& values) {
  if (rank_count() == 1) return values;
  std::vector<std::uint64_t> all(values.size() * std::size_t(rank_count()));
  Exchange exchange = started("gather of figures", all.size() * sizeof(std::uint64_t),
                      communicator_.all_gather({.input = values.data(), .output = all.data(), .count = values.size(), .type = DataType::u64}));
  wait(exchange);
  return all;
}

void Wire::wait(Exchange& exchange) {
  if (exchange.mark) return device_.await(exchange.mark);
  const auto begin = std::chrono::steady_clock::now();
  const Status status = exchange.work.wait();
  count_.exposed_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  require(status);
}

WireCount Wire::take_count() {
  count_.exposed_seconds += device_.take_waited();
  count_.seconds = flight_->take(Trace::Clock::now());
  return std::exchange(count_, WireCount());
}

void Wire::Flight::begin(Trace::Time now) {
  const std::lock_guard lock(mutex_);
  if (under_way_++ == 0) since_ = now;
}

void Wire::Flight::end(Trace::Time now) {
  const std::lock_guard lock(mutex_);
  if (--under_way_ == 0) seconds_ += std::chrono::duration<double>(now - since_).count();
}

double Wire::Flight::take(Trace::Time now) {
  const std::lock_guard lock(mutex_);
  if (under_way_ > 0) {
    seconds_ += std::chrono::duration<double>(now - since_).count();
    since_ = now;
  }
  return std::exchange(seconds_, 0);
}

}  // namespace tutti::trainer
