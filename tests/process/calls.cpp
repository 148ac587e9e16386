// Calls: buffers with guards, and what each collective puts where.
#include "tests/process/calls.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace tutti::test {
namespace {

constexpr std::size_t kGuard = 128;
constexpr auto kUntouched = std::byte(0xc3);

// Bytes at a chosen misalignment, with guards.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t shift, bool allocated)
      : bytes_(bytes), own_(allocated ? 0 : bytes + 3 * kGuard + shift) {
    memory_ = own_;
    if (allocated)
      memory_ = {static_cast<std::byte*>(allocate(bytes + 3 * kGuard + shift).value()), bytes + 3 * kGuard + shift};
    std::fill(memory_.begin(), memory_.end(), kUntouched);
    at_ = kGuard + (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64) % 64 + shift;
  }
  ~Guarded() {
    if (own_.empty()) deallocate(memory_.data());
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::byte* data() { return memory_.data() + at_; }
  bool intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if ((i < at_ || i >= at_ + bytes_) && memory_[i] != kUntouched) return false;
    return true;
  }

 private:
  std::size_t bytes_;
  std::vector<std::byte> own_;
  std::span<std::byte> memory_;
  std::size_t at_ = 0;
};

using Origin = std::function<std::optional<Source>(std::size_t)>;

struct Blocks {
  std::vector<std::size_t> counts, offsets;
  std::size_t span = 0;
  // Which block holds element i, and where in it.
  std::optional<std::pair<int, std::size_t>> find(std::size_t i) const {
    for (std::size_t b = 0; b < counts.size(); ++b)
      if (i >= offsets[b] && i < offsets[b] + counts[b]) return std::pair{int(b), i - offsets[b]};
    return std::nullopt;
  }
};

Blocks laid_out(std::vector<std::size_t> counts, bool gaps) {
  Blocks blocks{std::move(counts), {}, 0};
  blocks.offsets.resize(blocks.counts.size());
  for (std::size_t k = 0; k < blocks.counts.size(); ++k) {
    const std::size_t b = gaps ? blocks.counts.size() - 1 - k : k;
    if (gaps) blocks.span += 3 + b;
    blocks.offsets[b] = blocks.span;
    blocks.span += blocks.counts[b];
  }
  return blocks;
}

// Block sizes for the v forms: different, some empty.
std::size_t block_count(std::size_t count, int from, int to) {
  return (from * 2 + to) % 4 == 1 ? 0 : count + std::size_t((from * 5 + to * 3) % 7);
}

// One rank's part in one call: its buffers, what was put in and what must come out.
class Attempt {
 public:
  Attempt(Communicator& comm, const Case& test)
      : comm_(comm), test_(test), rank_(comm.rank()), n_(comm.rank_count()), size_(size_of(test.filling.type)) {}

  std::string run() {
    Work work = start();
    if (const Status status = work.wait(); !status.ok()) return status.to_string();
    return judge();
  }

 private:
  std::size_t at_rank(std::size_t count) const { return count * std::size_t(rank_); }

  // Buffers of so many elements. In place, one of them is the whole and the other lies in it at the element `place`.
  void make(std::size_t inputs, std::size_t outputs, std::size_t place, bool in_place, Origin origin) {
    inputs_ = inputs, outputs_ = outputs, in_place_ = in_place, origin_ = std::move(origin);
    if (in_place) {
      first_ = std::make_unique<Guarded>(std::max(inputs, outputs) * size_, test_.shift, test_.allocated);
      input_ = first_->data() + (inputs < outputs ? place * size_ : 0);
      output_ = first_->data() + (outputs < inputs ? place * size_ : 0);
    } else {
      first_ = std::make_unique<Guarded>(inputs * size_, test_.shift, test_.allocated);
      second_ = std::make_unique<Guarded>(outputs * size_, test_.shift ? test_.shift + size_ : 0, test_.allocated);
      input_ = first_->data();
      output_ = second_->data();
    }
    for (std::size_t i = 0; i < inputs; ++i) store(input_ + i * size_, size_, test_.filling.bits(rank_, i));
  }

  Work start() {
    switch (test_.kind) {
      case Kind::all_reduce:
      case Kind::broadcast:
      case Kind::reduce: return start_vector();
      case Kind::reduce_scatter:
      case Kind::all_gather:
      case Kind::gather:
      case Kind::scatter: return start_block();
      case Kind::all_to_all: {
        const std::size_t count = test_.count, all = count * std::size_t(n_);
        make(all, all, 0, test_.in_place, [=, this](std::size_t i) {
          return Source{int(i / count), at_rank(count) + i % count};
        });
        return comm_.all_to_all({input_, output_, count, test_.filling.type});
      }
      default: return start_v();
    }
  }

  Work start_vector() {
    const Filling& f = test_.filling;
    const bool root = rank_ == test_.root;
    const std::size_t count = test_.count;
    const auto reduced = [](std::size_t i) { return Source{kEveryRank, i}; };
    if (test_.kind == Kind::all_reduce) {
      make(count, count, 0, test_.in_place, reduced);
      return comm_.all_reduce({input_, output_, count, f.type, f.op, f.factor(rank_)});
    }
    if (test_.kind == Kind::reduce) {
      make(count, root ? count : 0, 0, test_.in_place && root, reduced);
      return comm_.reduce({input_, root ? output_ : nullptr, count, f.type, f.op, test_.root, f.factor(rank_)});
    }
    make(root ? count : 0, count, 0, test_.in_place && root, [=, this](std::size_t i) {
      return Source{test_.root, i};
    });
    return comm_.broadcast({root ? input_ : nullptr, output_, count, f.type, test_.root});
  }

  Work start_block() {
    const Filling& f = test_.filling;
    const bool root = rank_ == test_.root;
    const std::size_t count = test_.count, all = count * std::size_t(n_), place = at_rank(count);
    const auto gathered = [=](std::size_t i) { return Source{int(i / count), i % count}; };
    switch (test_.kind) {
      case Kind::reduce_scatter:
        make(all, count, place, test_.in_place, [=](std::size_t i) { return Source{kEveryRank, place + i}; });
        return comm_.reduce_scatter({input_, output_, count, f.type, f.op, f.factor(rank_)});
      case Kind::all_gather:
        make(count, all, place, test_.in_place, gathered);
        return comm_.all_gather({input_, output_, count, f.type});
      case Kind::gather:
        make(count, root ? all : 0, place, test_.in_place && root, gathered);
        return comm_.gather({input_, root ? output_ : nullptr, count, f.type, test_.root});
      default:
        make(root ? all : 0, count, place, test_.in_place && root, [=, this](std::size_t i) {
          return Source{test_.root, place + i};
        });
        return comm_.scatter({root ? input_ : nullptr, output_, count, f.type, test_.root});
    }
  }

  Work start_v() {
    const Filling& f = test_.filling;
    if (test_.kind == Kind::all_to_all_v) return start_all_to_all_v();
    std::vector<std::size_t> counts;
    for (int r = 0; r < n_; ++r) counts.push_back(block_count(test_.count, r, 0));
    const Blocks blocks = laid_out(counts, test_.gaps);
    const auto offsets = test_.gaps ? blocks.offsets : std::vector<std::size_t>{};
    const std::size_t own = counts[std::size_t(rank_)], place = blocks.offsets[std::size_t(rank_)];
    if (test_.kind == Kind::reduce_scatter_v) {
      make(blocks.span, own, place, test_.in_place, [=](std::size_t i) { return Source{kEveryRank, place + i}; });
      return comm_.reduce_scatter_v({input_, output_, counts, offsets, f.type, f.op, f.factor(rank_)});
    }
    make(own, blocks.span, place, test_.in_place, [=](std::size_t i) -> std::optional<Source> {
      const auto found = blocks.find(i);
      return found ? std::optional(Source{found->first, found->second}) : std::nullopt;
    });
    return comm_.all_gather_v({input_, output_, counts, offsets, f.type});
  }

  Work start_all_to_all_v() {
    const auto sends_of = [this](int rank) {
      std::vector<std::size_t> counts;
      for (int to = 0; to < n_; ++to) counts.push_back(block_count(test_.count, rank, to));
      return laid_out(counts, test_.gaps);
    };
    const Blocks sends = sends_of(rank_);
    std::vector<std::size_t> counts, starts;  // what comes, and where it lies in the sender's input
    for (int from = 0; from < n_; ++from) {
      const Blocks theirs = sends_of(from);
      counts.push_back(theirs.counts[std::size_t(rank_)]);
      starts.push_back(theirs.offsets[std::size_t(rank_)]);
    }
    const Blocks receives = laid_out(counts, test_.gaps);
    make(sends.span, receives.span, 0, false, [=](std::size_t i) -> std::optional<Source> {
      const auto found = receives.find(i);
      return found ? std::optional(Source{found->first, starts[std::size_t(found->first)] + found->second})
                   : std::nullopt;
    });
    AllToAllV call{input_, output_, sends.counts, receives.counts, {}, {}, test_.filling.type};
    if (test_.gaps) call.send_offsets = sends.offsets, call.recv_offsets = receives.offsets;
    return comm_.all_to_all_v(call);
  }

  std::string judge() {
    for (std::size_t i = 0; i < outputs_; ++i) {
      const auto source = origin_(i);
      const std::uint64_t got = load(output_ + i * size_, size_);
      std::uint64_t untouched = 0;
      for (std::size_t b = 0; b < size_; ++b) untouched = untouched << 8 | std::uint64_t(kUntouched);
      const std::string why = source             ? wrong(test_.filling, n_, *source, got)
                              : got == untouched ? ""
                                                 : "a gap was written";
      if (!why.empty()) return "element " + std::to_string(i) + ": " + why;
    }
    if (!first_->intact() || (second_ && !second_->intact())) return "bytes around a buffer were written";
    for (std::size_t i = 0; !in_place_ && i < inputs_; ++i)
      if (load(input_ + i * size_, size_) != test_.filling.bits(rank_, i))
        return "input element " + std::to_string(i) + " was changed";
    return "";
  }

  Communicator& comm_;
  const Case& test_;
  int rank_, n_;
  std::size_t size_;
  std::unique_ptr<Guarded> first_, second_;
  std::byte *input_ = nullptr, *output_ = nullptr;
  std::size_t inputs_ = 0, outputs_ = 0;
  bool in_place_ = false;
  Origin origin_;
};

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"all_reduce",   "reduce_scatter",   "all_gather",  "broadcast",
                                    "reduce",       "gather",           "scatter",     "all_to_all",
                                    "all_gather_v", "reduce_scatter_v", "all_to_all_v"};
  return kNames[int(kind)];
}

bool reduces(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter ||
         kind == Kind::reduce_scatter_v;
}

std::string Case::text() const {
  std::string out = std::string(test::name_of(kind)) + " of " + std::to_string(count) + " " +
                    std::string(tutti::name_of(filling.type));
  if (reduces(kind)) out += " " + std::string(tutti::name_of(filling.op));
  out += " root " + std::to_string(root) + " shift " + std::to_string(shift);
  return out + (in_place ? " in place" : "") + (allocated ? " allocated" : "") + (gaps ? " with gaps" : "");
}

std::string tried(Communicator& comm, const Case& test) {
  std::string why = Attempt(comm, test).run();
  if (!why.empty())
    why = "rank " + std::to_string(comm.rank()) + " of " + std::to_string(comm.rank_count()) + ", " + test.text() +
          ": " + why;
  return why;
}

}  // namespace tutti::test
