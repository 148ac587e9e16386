// Recursive doubling and halving. The all_reduce works at any rank count and always adds aligned blocks of ranks, 2^k
// and 2^k, so that every element has the canonical tree. Its twins for blocks need a power of two.
#include "algorithms/families.h"
#include "algorithms/rounds.h"
#include "algorithms/steps.h"

namespace tutti::algorithms {
namespace {

bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

// One meeting of the left block [base, base + half) with the right one, which the rank count may cut short.
struct Meeting {
  int sender = 0;
  std::vector<int> receivers;
};

// What `rank` does at level k; no sender when its right block is empty. A short right block of s ranks serves all of
// the left: its rank j sends to the left ranks j, j+s, j+2s, ...
bool meet(int rank, int rank_count, int level, Meeting& out) {
  const int half = 1 << level, base = rank & ~(2 * half - 1), middle = base + half;
  const int size = std::min(half, rank_count - middle);
  out.receivers.clear();
  if (size <= 0) return false;
  if (rank < middle) {
    const int offset = rank - base;
    out.sender = middle + offset % size;
    if (offset < size) out.receivers.push_back(middle + offset);
  } else {
    const int offset = rank - middle;
    out.sender = base + offset;
    for (int left = offset; left < half; left += size) out.receivers.push_back(base + left);
  }
  return true;
}

std::vector<Meeting> meetings(int rank, int rank_count) {
  std::vector<Meeting> all;
  Meeting next;
  for (int level = 0; level < log2_ceil(rank_count); ++level) {
    if (meet(rank, rank_count, level, next)) all.push_back(next);
  }
  return all;
}

// Each sum is sent while the next one is written, so they alternate between places and end in output.
Schedule doubling_all_reduce(const Request& request, int rank) {
  const std::vector<Meeting> all = meetings(rank, request.rank_count);
  const std::size_t rounds = all.size();
  Schedule out;
  Chunks sum = input(0);
  for (std::size_t i = 0; i < rounds; ++i) {
    const bool last = i + 1 == rounds;
    Chunks next = (rounds - 1 - i) % 2 == 0 ? output(0) : scratch(0);
    if (request.in_place && i == 0 && next.space == Space::output) next = scratch(1);   // the input is being sent
    if (next.space == Space::scratch && out.scratch.size() <= next.first) out.scratch.resize(next.first + 1, 0);
    if (!all[i].receivers.empty()) out.steps.push_back(send(sum, all[i].receivers));
    out.steps.push_back(recv_reduce(next, sum, {all[i].sender}, last));
    sum = next;
  }
  if (sum.space != Space::output) out.steps.push_back(copy(output(0), sum));
  return out;
}

Schedule doubling_all_gather(const Request& request, int rank) {
  Schedule out;
  for (int distance = 1; distance < request.rank_count; distance *= 2) {
    const int peer = rank ^ distance;
    const auto held = [&](int of) { return output(of & ~(distance - 1), distance); };
    out.steps.push_back(send(distance == 1 ? input(0) : held(rank), peer));
    out.steps.push_back(recv(held(peer), peer));
    if (distance == 1 && !request.in_place) out.steps.push_back(copy(output(rank), input(0)));
  }
  return out;
}

// The half of the blocks that is not this rank's goes away, largest distance first. Scratch holds the own half of all.
Schedule halving_reduce_scatter(const Request& request, int rank) {
  const int half = request.rank_count / 2, first = rank & ~(half - 1);
  Schedule out;
  for (int distance = half; distance >= 1; distance /= 2) {
    const int peer = rank ^ distance, mine = rank & ~(distance - 1), theirs = peer & ~(distance - 1);
    const bool start = distance == half, last = distance == 1;
    const Chunks leaves = start ? input(theirs, distance) : scratch(theirs - first, distance);
    const Chunks stays = start ? input(mine, distance) : scratch(mine - first, distance);
    out.steps.push_back(send(leaves, peer));
    out.steps.push_back(recv_reduce(last ? output(0) : scratch(mine - first, distance), stays, {peer}, last));
  }
  for (int i = 0; half > 1 && i < half; ++i) out.scratch.push_back(std::uint32_t(first + i));
  return out;
}

// Sums are one place; blocks are placed by their distance from the own one, as a mask.
Rounds rounds_of(const Request& request) {
  const int p = request.rank_count;
  Rounds rounds;
  if (request.collective == Collective::all_reduce) {
    for (int level = 0; level < log2_ceil(p); ++level) {
      const auto to = [=](int rank, std::vector<int>& out) {
        Meeting meeting;
        if (meet(rank, p, level, meeting)) out = std::move(meeting.receivers);
      };
      rounds.add(to, 1, 0, 0, 1);
    }
    return rounds;
  }
  const bool gathers = request.collective == Collective::all_gather;
  for (int i = 0; i < log2_ceil(p); ++i) {
    const int distance = gathers ? 1 << i : p >> (i + 1);
    const auto to = [=](int rank, std::vector<int>& out) { out.push_back(rank ^ distance); };
    rounds.add(to, double(distance) / p, gathers ? 0 : distance, gathers ? distance : 0, distance);
  }
  return rounds;
}

class RecursiveDoubling final : public Family {
 public:
  std::string_view name() const override { return "recursive_doubling"; }
  std::string_view source() const override {
    return "Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH (2005), 4; "
           "the blocks of odd sizes are our own";
  }
  std::string_view best_when() const override {
    return "small vectors among many ranks: the fewest rounds, the canonical tree";
  }
  bool canonical(const Request& request) const override {
    return request.collective != Collective::reduce_scatter || request.rank_count == 2;
  }

  Cost cost(const Request& request) const override {
    const int p = request.rank_count, rounds = log2_ceil(p);
    const double part = double(p - 1) / p;
    if (request.collective == Collective::all_gather) return {rounds, part, part, 0, rounds};
    if (request.collective == Collective::reduce_scatter) return {rounds, part, part, 2 * part, rounds};
    // Rank 0 meets somebody in every round. The busiest sender serves a left block from a short right one.
    int messages = 0;
    for (int rank = 0; rank < p; ++rank) {
      int sent = 0;
      for (const Meeting& meeting : meetings(rank, p)) sent += int(meeting.receivers.size());
      messages = std::max(messages, sent);
    }
    return {rounds, double(messages), double(rounds), 2.0 * rounds, messages};
  }

  std::vector<Border> borders(const Request& request) const override { return rounds_of(request).borders(request); }

  Schedule generate(const Request& request, int rank) const override {
    if (request.collective == Collective::all_reduce) return doubling_all_reduce(request, rank);
    Schedule out = request.collective == Collective::all_gather ? doubling_all_gather(request, rank)
                                                                : halving_reduce_scatter(request, rank);
    out.blocks = std::uint32_t(request.rank_count);
    return out;
  }

 private:
  std::string_view refuses(const Request& request) const override {
    switch (request.collective) {
      case Collective::all_reduce: return {};
      case Collective::all_gather:
      case Collective::reduce_scatter:
        return is_power_of_two(request.rank_count) ? "" : "needs a rank count that is a power of two";
      default: return "serves all_reduce, all_gather and reduce_scatter";
    }
  }
};

}  // namespace

const Generator& recursive_doubling() {
  static const RecursiveDoubling generator;
  return generator;
}

}  // namespace tutti::algorithms
