#include "tests/algorithms/interpreter.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace tutti::algorithms::test {
namespace {

constexpr std::uint64_t kAverage = 0x9E3779B97F4A7C15;   // what `completes` multiplies by: an odd number stands for 1/p

std::uint64_t add(std::uint64_t a, std::uint64_t b, Addition how) {
  return how == Addition::sum ? a + b : (a + b) * 0xD6E8FEB86659FD93 + (a ^ b) * (a | b);
}

std::uint64_t add_all(const std::vector<std::uint64_t>& words, std::size_t low, std::size_t high, Addition how) {
  if (high - low == 1) return words[low];
  std::size_t left = 1;
  while (left * 2 < high - low) left *= 2;
  return add(add_all(words, low, low + left, how), add_all(words, low + left, high, how), how);
}

struct Extent {
  std::size_t at, words;
};

// The words of one rank. Chunks of different blocks have different lengths, so that a wrong chunk shows as a wrong
// length.
struct Memory {
  std::vector<std::uint64_t> words;
  std::vector<Extent> spaces[3];
};

class Machine {
 public:
  Machine(const Request& request, const std::vector<Schedule>& schedules, const std::vector<bool>& in_place,
          std::uint64_t seed, Addition addition)
      : request_(request),
        schedules_(schedules),
        in_place_(in_place),
        addition_(addition),
        random_(seed),
        ranks_(request.rank_count),
        memories_(schedules.size()),
        done_(schedules.size()),
        before_(schedules.size()) {}

  Outcome run();

 private:
  bool vector_collective() const {
    return request_.collective == Collective::all_reduce || request_.collective == Collective::reduce ||
           request_.collective == Collective::broadcast;
  }
  bool reduces() const {
    return request_.collective == Collective::all_reduce || request_.collective == Collective::reduce ||
           request_.collective == Collective::reduce_scatter;
  }
  bool at_root(int rank) const { return rank == request_.root; }
  std::size_t length(int shape) const;
  std::vector<int> input_shapes(int rank) const;
  std::vector<int> output_shapes(int rank) const;
  void build(int rank);
  bool sane(int rank, const Step& step);
  bool known(int rank, const Chunks& chunks);
  std::vector<Extent> extents(int rank, const Chunks& chunks) const;
  bool conflict(int rank, const Step& a, const Step& b) const;
  bool ready(int rank, std::size_t step) const;
  bool gather_exchange(int rank, std::size_t step, std::set<std::pair<int, std::size_t>>& together) const;
  bool join(int rank, int peer, bool sends, std::set<std::pair<int, std::size_t>>& together,
            std::vector<std::pair<int, std::size_t>>& open) const;
  bool fire(const std::set<std::pair<int, std::size_t>>& together);
  std::vector<std::uint64_t> read(int rank, const Chunks& chunks) const;
  bool store(int rank, const Step& step, std::map<int, std::vector<std::uint64_t>> operands);
  void compare();
  std::vector<std::uint64_t> meant(int rank, int shape) const;

  const Request& request_;
  const std::vector<Schedule>& schedules_;
  const std::vector<bool>& in_place_;
  Addition addition_;
  std::mt19937_64 random_;
  int ranks_;
  std::vector<Memory> memories_;
  std::vector<std::vector<bool>> done_;
  std::vector<std::vector<std::vector<std::size_t>>> before_;
  std::map<std::pair<int, int>, std::vector<std::uint64_t>> given_;   // by rank and shape: its input
  Outcome outcome_;
};

std::size_t Machine::length(int shape) const {
  if (request_.collective == Collective::all_to_all) {   // (a, b) and (b, a) share a place when in place
    const int block = shape / int(schedules_[0].slices), a = block / ranks_, b = block % ranks_;
    return 1 + std::size_t((a + b) * 7 + a * b) % 3;
  }
  return 1 + std::size_t(shape * 5 + shape / 3) % 4;
}

std::vector<int> Machine::input_shapes(int rank) const {
  const int slices = int(schedules_[0].slices), blocks = int(schedules_[0].blocks);
  std::vector<int> out;
  const auto whole = [&] {
    for (int i = 0; i < blocks * slices; ++i) out.push_back(i);
  };
  switch (request_.collective) {
    case Collective::broadcast:
    case Collective::scatter:
      if (at_root(rank)) whole();
      break;
    case Collective::all_gather:
    case Collective::gather:
      for (int s = 0; s < slices; ++s) out.push_back(rank * slices + s);
      break;
    case Collective::all_to_all:
      for (int i = 0; i < ranks_ * slices; ++i) out.push_back(rank * ranks_ * slices + i);
      break;
    default: whole(); break;
  }
  return out;
}

std::vector<int> Machine::output_shapes(int rank) const {
  const int slices = int(schedules_[0].slices), blocks = int(schedules_[0].blocks);
  std::vector<int> out;
  const auto whole = [&] {
    for (int i = 0; i < blocks * slices; ++i) out.push_back(i);
  };
  switch (request_.collective) {
    case Collective::reduce:
    case Collective::gather:
      if (at_root(rank)) whole();
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      for (int s = 0; s < slices; ++s) out.push_back(rank * slices + s);
      break;
    case Collective::all_to_all:
      for (int from = 0; from < ranks_; ++from) {
        for (int s = 0; s < slices; ++s) out.push_back((from * ranks_ + rank) * slices + s);
      }
      break;
    default: whole(); break;
  }
  return out;
}

// Lays out input, output and scratch. In place, the smaller of input and output lies inside the larger one.
void Machine::build(int rank) {
  Memory& memory = memories_[std::size_t(rank)];
  const auto append = [&](Space space, int shape) {
    memory.spaces[int(space)].push_back({memory.words.size(), length(shape)});
    for (std::size_t i = 0; i < length(shape); ++i) memory.words.push_back(random_());
  };
  const std::vector<int> in = input_shapes(rank), out = output_shapes(rank);
  for (int shape : in) {
    append(Space::input, shape);
    const Extent& at = memory.spaces[int(Space::input)].back();
    given_[{rank, shape}].assign(memory.words.begin() + long(at.at), memory.words.begin() + long(at.at + at.words));
  }
  const bool together = in_place_[std::size_t(rank)] && !in.empty() && !out.empty();
  for (std::size_t i = 0; i < out.size(); ++i) {
    // The shape decides which chunk of the input is the same place; in an all_to_all it is the same index.
    std::size_t same = request_.collective == Collective::all_to_all ? i : in.size();
    for (std::size_t j = 0; same == in.size() && j < in.size(); ++j) {
      if (in[j] == out[i]) same = j;
    }
    if (together && same < in.size())
      memory.spaces[int(Space::output)].push_back(memory.spaces[int(Space::input)][same]);
    else append(Space::output, out[i]);
  }
  for (std::uint32_t shape : schedules_[std::size_t(rank)].scratch) append(Space::scratch, int(shape));
}

bool Machine::known(int rank, const Chunks& chunks) {
  return chunks.count == 0 ||
         std::size_t(chunks.first) + chunks.count <= memories_[std::size_t(rank)].spaces[int(chunks.space)].size();
}

bool Machine::sane(int rank, const Step& step) {
  for (int peer : step.peers) {
    if (peer < 0 || peer >= ranks_ || peer == rank) return false;
  }
  if (std::set<int>(step.peers.begin(), step.peers.end()).size() != step.peers.size()) return false;
  const bool local = step.kind == StepKind::copy || step.kind == StepKind::reduce;
  return known(rank, step.source) && known(rank, step.target) && local == step.peers.empty() &&
         (step.kind != StepKind::recv || step.peers.size() == 1);
}

std::vector<Extent> Machine::extents(int rank, const Chunks& chunks) const {
  std::vector<Extent> out;
  for (std::uint32_t i = 0; i < chunks.count; ++i)
    out.push_back(memories_[std::size_t(rank)].spaces[int(chunks.space)][chunks.first + i]);
  return out;
}

bool Machine::conflict(int rank, const Step& a, const Step& b) const {
  const bool a_sends = a.kind == StepKind::send, b_sends = b.kind == StepKind::send;
  for (int peer : a.peers) {
    if (a_sends == b_sends && std::count(b.peers.begin(), b.peers.end(), peer) > 0) return true;   // one lane
  }
  const auto meet = [&](const Chunks& x, const Chunks& y) {
    for (const Extent& e : extents(rank, x)) {
      for (const Extent& f : extents(rank, y)) {
        if (e.at < f.at + f.words && f.at < e.at + e.words) return true;
      }
    }
    return false;
  };
  return meet(a.target, b.target) || meet(a.target, b.source) || meet(a.source, b.target);
}

bool Machine::ready(int rank, std::size_t step) const {
  if (done_[std::size_t(rank)][step]) return false;
  for (std::size_t earlier : before_[std::size_t(rank)][step]) {
    if (!done_[std::size_t(rank)][earlier]) return false;
  }
  return true;
}

// Adds the step at `peer` that is first in the lane and meets a step of `rank`.
bool Machine::join(int rank, int peer, bool sends, std::set<std::pair<int, std::size_t>>& together,
                   std::vector<std::pair<int, std::size_t>>& open) const {
  const auto& steps = schedules_[std::size_t(peer)].steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool same_lane = std::count(steps[i].peers.begin(), steps[i].peers.end(), rank) > 0;
    if (done_[std::size_t(peer)][i] || !same_lane || (steps[i].kind == StepKind::send) == sends) continue;
    if (together.insert({peer, i}).second) open.push_back({peer, i});
    return true;
  }
  return false;
}

// All steps that happen with this one; false while one of them is not ready.
bool Machine::gather_exchange(int rank, std::size_t step, std::set<std::pair<int, std::size_t>>& together) const {
  std::vector<std::pair<int, std::size_t>> open{{rank, step}};
  together = {{rank, step}};
  while (!open.empty()) {
    const auto [at, number] = open.back();
    open.pop_back();
    if (!ready(at, number)) return false;
    const Step& s = schedules_[std::size_t(at)].steps[number];
    for (int peer : s.peers) {
      if (!join(at, peer, s.kind == StepKind::send, together, open)) return false;
    }
  }
  return true;
}

std::vector<std::uint64_t> Machine::read(int rank, const Chunks& chunks) const {
  std::vector<std::uint64_t> out;
  for (const Extent& e : extents(rank, chunks)) {
    const auto begin = memories_[std::size_t(rank)].words.begin() + long(e.at);
    out.insert(out.end(), begin, begin + long(e.words));
  }
  return out;
}

bool Machine::store(int rank, const Step& step, std::map<int, std::vector<std::uint64_t>> operands) {
  std::size_t word = 0;
  for (const Extent& e : extents(rank, step.target)) {
    for (std::size_t i = 0; i < e.words; ++i, ++word) {
      std::vector<std::uint64_t> values;
      for (const auto& [from, words] : operands) {
        if (word >= words.size()) return false;
        values.push_back(words[word]);
      }
      const std::uint64_t value = add_all(values, 0, values.size(), addition_);
      memories_[std::size_t(rank)].words[e.at + i] =
          step.completes && addition_ == Addition::sum ? value * kAverage : value;
    }
  }
  for (const auto& [from, words] : operands) {
    if (words.size() != word) return false;
  }
  return true;
}

bool Machine::fire(const std::set<std::pair<int, std::size_t>>& together) {
  std::map<std::pair<int, std::size_t>, std::map<int, std::vector<std::uint64_t>>> operands;
  for (const auto& [rank, number] : together) {
    const Step& s = schedules_[std::size_t(rank)].steps[number];
    auto& mine = operands[{rank, number}];
    if (s.kind != StepKind::send && s.source.count > 0) mine[rank] = read(rank, s.source);
    if (s.kind == StepKind::reduce) mine[-1] = read(rank, s.target);
    if (s.kind == StepKind::send) continue;
    for (int peer : s.peers) {
      for (const auto& [from, sent] : together) {
        const Step& other = schedules_[std::size_t(from)].steps[sent];
        if (from != peer || other.kind != StepKind::send ||
            std::count(other.peers.begin(), other.peers.end(), rank) == 0)
          continue;
        mine[peer] = read(peer, other.source);
      }
    }
  }
  for (const auto& [rank, number] : together) {
    const Step& s = schedules_[std::size_t(rank)].steps[number];
    done_[std::size_t(rank)][number] = true;
    if (s.kind != StepKind::send && !store(rank, s, operands[{rank, number}])) return false;
  }
  return true;
}

std::vector<std::uint64_t> Machine::meant(int rank, int shape) const {
  const int block = shape / int(schedules_[0].slices);
  switch (request_.collective) {
    case Collective::broadcast:
    case Collective::scatter: return given_.at({request_.root, shape});
    case Collective::all_gather:
    case Collective::gather: return given_.at({block, shape});
    case Collective::all_to_all: return given_.at({block / ranks_, shape});
    default: break;
  }
  std::vector<std::uint64_t> out(length(shape));
  for (std::size_t word = 0; word < out.size(); ++word) {
    std::vector<std::uint64_t> values;
    for (int from = 0; from < ranks_; ++from) values.push_back(given_.at({from, shape})[word]);
    out[word] = add_all(values, 0, values.size(), addition_);
    if (ranks_ > 1 && addition_ == Addition::sum) out[word] *= kAverage;
  }
  (void)rank;
  return out;
}

void Machine::compare() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::vector<int> in = input_shapes(rank), out = output_shapes(rank);
    const Memory& memory = memories_[std::size_t(rank)];
    std::set<std::size_t> written;
    outcome_.outputs.emplace_back();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto words = read(rank, {Space::output, std::uint32_t(i), 1});
      written.insert(memory.spaces[int(Space::output)][i].at);
      outcome_.outputs.back().insert(outcome_.outputs.back().end(), words.begin(), words.end());
      const bool compared = addition_ == Addition::sum || !reduces();
      if (compared && words != meant(rank, out[i])) outcome_.error = "wrong output at rank " + std::to_string(rank);
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (written.count(memory.spaces[int(Space::input)][i].at) > 0) continue;
      if (read(rank, {Space::input, std::uint32_t(i), 1}) != given_.at({rank, in[i]}))
        outcome_.error = "input was changed";
    }
  }
  if (addition_ != Addition::mixing || !reduces()) return;
  for (int shape = 0; shape < int(schedules_[0].blocks * schedules_[0].slices); ++shape) {
    const auto words = meant(0, shape);
    outcome_.canonical.insert(outcome_.canonical.end(), words.begin(), words.end());
  }
}

Outcome Machine::run() {
  std::size_t left = 0;
  for (int rank = 0; rank < ranks_; ++rank) build(rank);
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto& steps = schedules_[std::size_t(rank)].steps;
    left += steps.size();
    done_[std::size_t(rank)].assign(steps.size(), false);
    before_[std::size_t(rank)].resize(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!sane(rank, steps[i])) return {"malformed step", {}, {}};
      for (std::size_t j = 0; j < i; ++j) {
        if (conflict(rank, steps[j], steps[i])) before_[std::size_t(rank)][i].push_back(j);
      }
    }
  }
  while (left > 0) {
    std::vector<std::pair<int, std::size_t>> candidates;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (std::size_t i = 0; i < done_[std::size_t(rank)].size(); ++i) {
        if (ready(rank, i)) candidates.push_back({rank, i});
      }
    }
    std::shuffle(candidates.begin(), candidates.end(), random_);
    std::set<std::pair<int, std::size_t>> together;
    const auto go = std::find_if(candidates.begin(), candidates.end(),
                                 [&](const auto& c) { return gather_exchange(c.first, c.second, together); });
    if (go == candidates.end()) return {"deadlock", {}, {}};
    if (!fire(together)) return {"lengths differ", {}, {}};
    left -= together.size();
  }
  compare();
  return std::move(outcome_);
}

}  // namespace

Outcome interpret(const Request& request, const std::vector<Schedule>& schedules, const std::vector<bool>& in_place,
                  std::uint64_t seed, Addition addition) {
  return Machine(request, schedules, in_place, seed, addition).run();
}

}  // namespace tutti::algorithms::test
