// Bruck's algorithms: exactly ceil(log2 p) rounds of one message each at any rank count p, paid for with local copies
// that rotate or pack blocks. For many small blocks.
#include "algorithms/families.h"
#include "algorithms/rounds.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {
namespace {

// The run of `count` blocks [rank, rank + count) around p, in two copies at most; scratch place i is block rank + i.
template <class Append>
void for_both_sides(int rank, int p, Append&& append) {
  append(0, rank, p - rank);   // scratch place, block, count
  if (rank > 0) append(p - rank, 0, rank);
}

void rotated_scratch(int rank, int p, Schedule& out) {
  for (int i = 0; i < p; ++i) out.scratch.push_back(std::uint32_t(wrap(rank + i, p)));
}

void bruck_all_gather(int rank, int p, Schedule& out) {
  rotated_scratch(rank, p, out);
  for (int distance = 1; distance < p; distance *= 2) {
    const int count = std::min(distance, p - distance);
    out.steps.push_back(send(distance == 1 ? input(0) : scratch(0, count), wrap(rank - distance, p)));
    out.steps.push_back(recv(scratch(distance, count), wrap(rank + distance, p)));
    if (distance == 1) out.steps.push_back(copy(scratch(0), input(0)));
  }
  for_both_sides(rank, p, [&](int at, int block, int count) {
    out.steps.push_back(copy(output(block, count), scratch(at, count)));
  });
}

void bruck_reduce_scatter(int rank, int p, Schedule& out) {
  rotated_scratch(rank, p, out);
  for_both_sides(rank, p, [&](int at, int block, int count) {
    out.steps.push_back(copy(scratch(at, count), input(block, count)));
  });
  for (int distance = 1 << (log2_ceil(p) - 1); distance >= 1; distance /= 2) {
    const int count = std::min(distance, p - distance);
    const bool last = distance == 1;
    out.steps.push_back(send(scratch(distance, count), wrap(rank + distance, p)));
    out.steps.push_back(
        recv_reduce(last ? output(0) : scratch(0, count), scratch(0, count), {wrap(rank - distance, p)}, last));
  }
}

// The block for the rank i further on travels the set bits of i, lowest first. In the round of bit k each rank sends,
// packed, what has that bit; `at[i]` is where the traveller i lies meanwhile. Everything of the input is packed before
// anything lands.
class Travel {
 public:
  Travel(int rank, int p, Schedule& out) : rank_(rank), p_(p), out_(out), at_(std::size_t(p)) {
    for (int bit = 1; bit < p; bit *= 2) {
      packed_.push_back(int(out.scratch.size()));
      reserve(bit, bit - 1);   // who is packed has not travelled this bit yet
      landed_.push_back(int(out.scratch.size()));
      reserve(bit, 2 * bit - 1);
    }
  }

  void pack_input() {
    for (std::size_t k = 0; k < packed_.size(); ++k) {
      each(1 << k, [&](int i, int place) {
        if ((i & ((1 << k) - 1)) == 0)
          out_.steps.push_back(copy(scratch(packed_[k] + place), input(wrap(rank_ + i, p_))));
      });
    }
  }

  void round(int k) {
    const int bit = 1 << k;
    int count = 0;
    each(bit, [&](int i, int place) {
      if ((i & (bit - 1)) != 0)
        out_.steps.push_back(copy(scratch(packed_[std::size_t(k)] + place), scratch(at_[std::size_t(i)])));
      at_[std::size_t(i)] = landed_[std::size_t(k)] + place;
      ++count;
    });
    out_.steps.push_back(send(scratch(packed_[std::size_t(k)], count), wrap(rank_ + bit, p_)));
    out_.steps.push_back(recv(scratch(landed_[std::size_t(k)], count), wrap(rank_ - bit, p_)));
    each(bit, [&](int i, int place) {
      if (i < 2 * bit)
        out_.steps.push_back(copy(output(wrap(rank_ - i, p_)), scratch(landed_[std::size_t(k)] + place)));
    });
  }

 private:
  template <class Visit>
  void each(int bit, Visit&& visit) {
    int place = 0;
    for (int i = bit; i < p_; ++i) {
      if (i & bit) visit(i, place++);
    }
  }
  void reserve(int bit, int travelled) {
    each(bit, [&](int i, int) {
      const int origin = wrap(rank_ - (i & travelled), p_);
      out_.scratch.push_back(std::uint32_t(origin) * std::uint32_t(p_) + std::uint32_t(wrap(origin + i, p_)));
    });
  }

  int rank_, p_;
  Schedule& out_;
  std::vector<int> packed_, landed_, at_;
};

void bruck_all_to_all(const Request& request, int rank, Schedule& out) {
  const int p = request.rank_count;
  out.blocks = std::uint32_t(p) * std::uint32_t(p);
  Travel travel(rank, p, out);
  travel.pack_input();
  for (int k = 0; k < log2_ceil(p); ++k) travel.round(k);
  if (!request.in_place) out.steps.push_back(copy(output(rank), input(rank)));
}

Rounds rounds_of(const Request& request) {
  const int p = request.rank_count;
  Rounds rounds;
  for (int i = 0; i < log2_ceil(p); ++i) {
    const bool adds = request.collective == Collective::reduce_scatter;
    const int distance = 1 << (adds ? log2_ceil(p) - 1 - i : i), count = std::min(distance, p - distance);
    if (request.collective == Collective::all_gather) {
      rounds.add(around_by(-distance, p), double(count) / p, 0, distance, count);
    } else if (adds) {
      rounds.add(around_by(distance, p), double(count) / p, distance, 0, count);
    } else {
      int travellers = 0;
      std::uint64_t earlier = 0;   // the bit that a traveller took last: there is one with these two alone
      for (int k = distance; k < p; ++k) travellers += (k & distance) != 0;
      for (int j = 0; j < i; ++j) earlier |= std::uint64_t(distance + (1 << j) < p) << j;
      rounds.add(around_by(distance, p), double(travellers) / p, 0, 0, 0);
      rounds.needs(earlier);
    }
  }
  return rounds;
}

class Bruck final : public Family {
 public:
  std::string_view name() const override { return "bruck"; }
  std::string_view source() const override {
    return "Bruck et al.: Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems "
           "(1997)";
  }
  std::string_view best_when() const override { return "small blocks among many ranks: one message a round"; }
  bool canonical(const Request& request) const override {
    return Family::canonical(request) || request.rank_count == 2;
  }

  Cost cost(const Request& request) const override {
    const int p = request.rank_count, rounds = log2_ceil(p);
    double blocks = p - 1;
    if (request.collective == Collective::all_to_all) {
      blocks = 0;
      for (int i = 1; i < p; ++i) blocks += __builtin_popcount(unsigned(i));
    }
    const double reduced = request.collective == Collective::reduce_scatter ? 2 * blocks / p : 0;
    const bool adds = request.collective == Collective::reduce_scatter;
    return {adds ? rounds : doubling_chain(p), blocks / p, blocks / p, reduced, rounds};
  }

  std::vector<Border> borders(const Request& request) const override { return rounds_of(request).borders(request); }

  Schedule generate(const Request& request, int rank) const override {
    Schedule out;
    out.blocks = std::uint32_t(request.rank_count);
    switch (request.collective) {
      case Collective::all_gather: bruck_all_gather(rank, request.rank_count, out); break;
      case Collective::reduce_scatter: bruck_reduce_scatter(rank, request.rank_count, out); break;
      default: bruck_all_to_all(request, rank, out); break;
    }
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    switch (request.collective) {
      case Collective::all_gather:
      case Collective::reduce_scatter:
      case Collective::all_to_all: return {};
      default: return "serves all_gather, reduce_scatter and all_to_all";
    }
  }
};

}  // namespace

const Generator& bruck() {
  static const Bruck generator;
  return generator;
}

}  // namespace tutti::algorithms
