#include "tests/sim/exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tutti::sim {

namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t z = a + b * 0x9e3779b97f4a7c15ULL + c * 0xd1342543de82ef95ULL;
  z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9ULL;
  return z ^ (z >> 29);
}

bool reduces(Collective what) {
  return what == Collective::all_reduce || what == Collective::reduce || what == Collective::reduce_scatter;
}

// Small enough that eight of them, doubled, still are whole in bf16 and fit i8; products: powers of two.
double value(const Exchange& x, int rank, std::size_t i) {
  const std::uint64_t bits = mix(x.salt, static_cast<std::uint64_t>(rank), i) >> 20;
  return static_cast<double>(x.op == ReduceOp::prod ? 1 + bits % 2 : bits % 8);
}

double fold(const Exchange& x, std::size_t i) {
  double sum = value(x, 0, i) * x.factor(0);
  for (int r = 1; r < x.ranks; ++r) {
    const double next = value(x, r, i) * x.factor(r);
    switch (x.op) {
      case ReduceOp::prod: sum *= next; break;
      case ReduceOp::min: sum = std::min(sum, next); break;
      case ReduceOp::max: sum = std::max(sum, next); break;
      default: sum += next;
    }
  }
  return x.op == ReduceOp::avg ? sum / x.ranks : sum;
}

std::size_t before(const std::vector<std::size_t>& blocks, int index) {
  return std::accumulate(blocks.begin(), blocks.begin() + index, std::size_t{0});
}

std::size_t total(const std::vector<std::size_t>& blocks) { return before(blocks, static_cast<int>(blocks.size())); }

template <class T>
void put(std::vector<std::byte>& to, std::size_t at, T bits) {
  std::memcpy(to.data() + at * sizeof bits, &bits, sizeof bits);
}

void put_number(std::vector<std::byte>& to, DataType type, std::size_t at, double number) {
  const auto whole = static_cast<std::uint64_t>(static_cast<std::int64_t>(number));
  const auto single = static_cast<float>(number);
  std::uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  switch (type) {
    case DataType::f64: return put(to, at, number);
    case DataType::f32: return put(to, at, bits);
    case DataType::bf16: return put(to, at, static_cast<std::uint16_t>(bits >> 16));
    case DataType::f16:   // normal numbers and zero: the exponent's bias goes from 127 to 15
      return put(to, at, static_cast<std::uint16_t>(bits == 0 ? 0 : (bits >> 13) - ((127 - 15) << 10)));
    default: break;
  }
  if (size_of(type) == 8) return put(to, at, whole);
  if (size_of(type) == 4) return put(to, at, static_cast<std::uint32_t>(whole));
  put(to, at, static_cast<std::uint8_t>(whole));
}

}  // namespace

bool Exchange::in_place(int rank) const {
  if (ragged || what == Collective::send || what == Collective::barrier) return false;
  const bool rooted = what == Collective::broadcast || what == Collective::reduce || what == Collective::gather ||
                      what == Collective::scatter;
  return mix(salt, 77, 0) % 2 == 0 && (!rooted || rank == root);
}

std::size_t Exchange::block(int from, int to) const {
  if (!ragged) return count;
  if (what != Collective::all_to_all) from = 0;      // all say the same
  return mix(salt, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to) + 1000) % (count + 1);
}

std::vector<std::size_t> Exchange::blocks_from(int rank) const {
  std::vector<std::size_t> all;
  for (int to = 0; to < ranks; ++to) all.push_back(block(rank, to));
  return all;
}

std::vector<std::size_t> Exchange::blocks_to(int rank) const {
  std::vector<std::size_t> all;
  for (int from = 0; from < ranks; ++from) all.push_back(block(from, rank));
  return all;
}

std::vector<double> Exchange::input(int rank) const {
  std::size_t elements = count;
  switch (what) {
    case Collective::barrier: elements = 0; break;
    case Collective::broadcast: elements = rank == root ? count : 0; break;
    case Collective::scatter: elements = rank == root ? count * static_cast<std::size_t>(ranks) : 0; break;
    case Collective::reduce_scatter: case Collective::all_to_all: elements = total(blocks_from(rank)); break;
    case Collective::all_gather: elements = block(0, rank); break;
    default: break;
  }
  std::vector<double> numbers(elements);
  for (std::size_t i = 0; i < elements; ++i) numbers[i] = value(*this, rank, i);
  return numbers;
}

std::vector<double> Exchange::output(int rank) const {
  std::vector<double> numbers;
  const auto copy = [&](int from, std::size_t first, std::size_t elements) {
    for (std::size_t i = 0; i < elements; ++i) numbers.push_back(value(*this, from, first + i));
  };
  const auto reduced = [&](std::size_t first, std::size_t elements) {
    for (std::size_t i = 0; i < elements; ++i) numbers.push_back(fold(*this, first + i));
  };
  switch (what) {
    case Collective::all_reduce: reduced(0, count); break;
    case Collective::reduce: if (rank == root) reduced(0, count); break;
    case Collective::reduce_scatter: reduced(before(blocks_from(rank), rank), block(rank, rank)); break;
    case Collective::broadcast: copy(root, 0, count); break;
    case Collective::scatter: copy(root, count * static_cast<std::size_t>(rank), count); break;
    case Collective::send: copy((rank - root + ranks) % ranks, 0, count); break;
    case Collective::all_gather:
      for (int r = 0; r < ranks; ++r) copy(r, 0, block(0, r));
      break;
    case Collective::gather:
      for (int r = 0; r < ranks && rank == root; ++r) copy(r, 0, count);
      break;
    case Collective::all_to_all:
      for (int r = 0; r < ranks; ++r) copy(r, before(blocks_from(r), rank), block(r, rank));
      break;
    default: break;
  }
  return numbers;
}

Exchange any_exchange(Dice& dice, int ranks, std::size_t most_bytes) {
  constexpr DataType kTypes[] = {DataType::i8, DataType::u8, DataType::i32, DataType::u32, DataType::i64,
                                 DataType::u64, DataType::f16, DataType::bf16, DataType::f32, DataType::f64};
  Exchange x;
  x.ranks = ranks;
  x.what = static_cast<Collective>(dice.below(static_cast<std::uint64_t>(Collective::send) + 1));
  x.type = kTypes[dice.below(std::size(kTypes))];
  x.op = static_cast<ReduceOp>(dice.below(kReduceOpCount));
  // An average of whole numbers is exact where it divides by a power of two.
  const bool wide = x.type == DataType::f32 || x.type == DataType::f64;
  if (!reduces(x.what) || (x.op == ReduceOp::avg && (!wide || (ranks & (ranks - 1)) != 0))) x.op = ReduceOp::sum;
  x.root = static_cast<int>(dice.below(static_cast<std::uint64_t>(ranks)));
  x.ragged = dice.chance(0.3) && (x.what == Collective::all_gather || x.what == Collective::reduce_scatter ||
                                  x.what == Collective::all_to_all);
  x.salt = dice.next();
  const bool whole = x.what == Collective::all_reduce || x.what == Collective::reduce ||
                     x.what == Collective::broadcast || x.what == Collective::send;
  const std::size_t most = most_bytes / size_of(x.type) / (whole ? 1 : static_cast<std::size_t>(ranks));
  unsigned magnitude = 0;
  while ((std::size_t{2} << magnitude) <= most) ++magnitude;
  x.count = std::min<std::size_t>(dice.below(std::uint64_t{2} << dice.below(magnitude + 1)), most);
  return x;
}

std::vector<std::byte> encode(DataType type, const std::vector<double>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * size_of(type));
  for (std::size_t i = 0; i < numbers.size(); ++i) put_number(bytes, type, i, numbers[i]);
  return bytes;
}

Share::Share(const Exchange& exchange, int rank)
    : exchange_(exchange), rank_(rank), in_(encode(exchange.type, exchange.input(rank))) {
  const std::size_t block = exchange.count * size_of(exchange.type) * static_cast<std::size_t>(rank);
  const std::size_t output_bytes = exchange.output(rank).size() * size_of(exchange.type);
  input_ = in_.data();
  if (!exchange.in_place(rank)) {
    out_.assign(output_bytes, std::byte{0xa5});
    output_ = out_.data();
  } else if (in_.size() > output_bytes) {            // reduce_scatter, scatter
    output_ = in_.data() + block;
  } else {
    const bool gathers = exchange.what == Collective::all_gather || exchange.what == Collective::gather;
    out_.assign(output_bytes, std::byte{0xa5});
    output_ = out_.data();
    input_ = output_ + (gathers ? block : 0);
    if (!in_.empty()) std::memcpy(input_, in_.data(), in_.size());
  }
}

Work Share::start(Communicator& to, DeviceStream stream) {
  const Exchange& x = exchange_;
  const void* in = input_;
  void* out = output_;
  switch (x.what) {
    case Collective::all_reduce: return to.all_reduce({in, out, x.count, x.type, x.op, x.factor(rank_), stream});
    case Collective::reduce: return to.reduce({in, out, x.count, x.type, x.op, x.root, x.factor(rank_), stream});
    case Collective::broadcast: return to.broadcast({in, out, x.count, x.type, x.root, stream});
    case Collective::gather: return to.gather({in, out, x.count, x.type, x.root, stream});
    case Collective::scatter: return to.scatter({in, out, x.count, x.type, x.root, stream});
    case Collective::reduce_scatter:
      if (x.ragged) return to.reduce_scatter_v({in, out, x.blocks_from(rank_), {}, x.type, x.op, x.factor(rank_)});
      return to.reduce_scatter({in, out, x.count, x.type, x.op, x.factor(rank_), stream});
    case Collective::all_gather:
      if (x.ragged) return to.all_gather_v({in, out, x.blocks_from(0), {}, x.type});
      return to.all_gather({in, out, x.count, x.type, stream});
    case Collective::all_to_all:
      if (x.ragged) return to.all_to_all_v({in, out, x.blocks_from(rank_), x.blocks_to(rank_), {}, {}, x.type});
      return to.all_to_all({in, out, x.count, x.type, stream});
    case Collective::send: {
      to.begin_group();
      Work sent = to.send({in, x.count, x.type, (rank_ + x.root) % x.ranks});
      Work received = to.recv({out, x.count, x.type, (rank_ - x.root + x.ranks) % x.ranks});
      return to.end_group();
    }
    default: return to.barrier();
  }
}

bool Share::right() const {
  const std::vector<std::byte> wanted = encode(exchange_.type, exchange_.output(rank_));
  return input_intact() && (wanted.empty() || std::memcmp(output_, wanted.data(), wanted.size()) == 0);
}

bool Share::input_intact() const {
  return exchange_.in_place(rank_) || in_ == encode(exchange_.type, exchange_.input(rank_));
}

}  // namespace tutti::sim
