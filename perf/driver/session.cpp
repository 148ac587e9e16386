#include "perf/driver/session.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>

#include <fmt/format.h>

#include "perf/driver/timing.h"

namespace tutti::perf {
namespace {

constexpr std::byte kFiller{0x9d};  // in outputs before an operation
constexpr std::size_t kClocksShow =
    64u << 10;  // up to this size a clock reading an iteration would be seen in the mean

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

bool has_barriers(Blocking blocking) {
  return blocking == Blocking::barrier_each || blocking == Blocking::barrier_outer;
}

}  // namespace

Session::~Session() {
  for (gpu_mark mark : marks_) gpu_release_mark(mark);
}

struct Session::Trial {
  Recipe recipe;  // without seed
  bool in_place = false;
  Shape shape;
  std::size_t count = 0, input_bytes = 0, output_bytes = 0;  // of one slot; in place output_bytes holds both
  std::vector<Call> calls;                                   // one a slot, options.aggregate of them

  std::byte* input_at(const Buffer& input, const Buffer& output, std::size_t slot) const {
    if (!in_place) return input.data() + slot * input_bytes;
    return output.data() + slot * output_bytes + shape.input_at * size_of(recipe.type);
  }
  std::byte* output_at(const Buffer& output, std::size_t slot) const {
    return output.data() + slot * output_bytes + (in_place ? shape.output_at * size_of(recipe.type) : 0);
  }
};

Session::Trial Session::make_trial(DataType type, ReduceOp op, int root, std::size_t count, bool in_place) const {
  const std::size_t size = size_of(type);
  Trial t;
  t.recipe = {.type = type, .rank_count = ranks_.rank_count(), .check = options_.check};
  if (benchmark_.reduces) t.recipe.op = op;
  t.in_place = in_place;
  t.count = count;
  t.shape = benchmark_.shape(count, ranks_.rank(), ranks_.rank_count(), root);
  t.input_bytes = t.shape.input * size;
  t.output_bytes = t.shape.output * size;
  if (in_place) t.output_bytes = std::max(t.shape.input_at + t.shape.input, t.shape.output_at + t.shape.output) * size;
  const Buffer& in = in_place ? output_ : input_;
  for (std::size_t slot = 0; slot < std::size_t(options_.aggregate); ++slot)
    t.calls.push_back({.input = t.shape.input ? in.there(t.input_at(input_, output_, slot)) : nullptr,
                       .output = t.shape.output ? output_.there(t.output_at(output_, slot)) : nullptr,
                       .count = count,
                       .type = type,
                       .op = op,
                       .root = root,
                       .factor = factor_of(ranks_.rank()),
                       .stream = stream_});
  return t;
}

Status Session::prepare_buffers() {
  const int n = ranks_.rank_count(), rank = ranks_.rank();
  const std::size_t slots = std::size_t(options_.aggregate);
  std::size_t input = 0, output = 0;
  for (DataType type : options_.types) {
    const std::size_t size = size_of(type), count = benchmark_.count(sizes_of(options_).back() / size, size, n);
    for (int root : {rank, (rank + 1) % n}) {  // a root's buffers and those of another rank
      const Shape s = benchmark_.shape(count, rank, n, root);
      const std::size_t both = std::max(s.input_at + s.input, s.output_at + s.output);
      input = std::max(input, s.input * size * slots);
      output = std::max(output, (benchmark_.in_place ? both : s.output) * size * slots);
    }
  }
  const std::size_t shift = std::size_t(options_.unalign) * sizeof(double);  // of the largest type
  buffer_bytes_ = input + output + 2 * shift;
  const std::size_t wanted = buffer_bytes_ * std::size_t(std::max(1, world_.local_rank_count()));
  if (const std::size_t there = available_memory(); there && wanted > there)
    return {Code::out_of_resources,
            fmt::format("the ranks of this host need {} MiB for buffers, {} MiB are free: lower -e, -m or "
                        "the number of ranks",
                        wanted >> 20, there >> 20)};
  for (auto [buffer, bytes] : {std::pair(&input_, input), std::pair(&output_, output)}) {
    Result<Buffer> made = Buffer::make(bytes, shift, options_.memory);
    if (!made.ok()) return made.status();
    *buffer = std::move(made).value();
  }
  return {};
}

// Ranks take the GPUs of their host in turn. Nothing is allocated once others may be at work on the same one: it could wait for
// them.
Status Session::take_gpu(const Watcher& watcher) {
  gpu_use(world_.local_rank() % gpu_count());
  stream_ = gpu_make_stream();
  if (Status s = prepare_buffers(); !s.ok()) return s;
  if (Status s = wait(world_.barrier()); !s.ok()) return s;
  const Result<std::string> how = ranks_.use_gpu();
  if (!how.ok()) return how.status();
  if (watcher.remark)
    watcher.remark(fmt::format("{} x {}: {}", gpu_count(), gpu_name(), how.value()));
  return {};
}

Status Session::run(Run& into, const Watcher& watcher) {
  if (const int n = ranks_.rank_count(); options_.root >= n)
    return {Code::invalid_argument, fmt::format("-r {}: there are {} ranks", options_.root, n)};
  if (Status s = options_.memory == Memory::cuda ? take_gpu(watcher) : prepare_buffers(); !s.ok()) return s;
  std::vector<int> roots{benchmark_.rooted ? options_.root : 0};
  if (benchmark_.rooted && options_.all_roots)
    for (int root = 1; root < ranks_.rank_count(); ++root) roots.push_back(root);
  const std::vector<ReduceOp> ops = benchmark_.reduces ? options_.ops : std::vector{ReduceOp::sum};
  all_ = sizes_of(options_).size() * options_.types.size() * ops.size() * roots.size() *
         std::size_t(std::max(1, options_.cycles));
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
    if (cycle > 0 && watcher.cycle) watcher.cycle(cycle);
    if (options_.cycles == 0) done_ = 0;
    for (DataType type : options_.types)
      for (ReduceOp op : ops)
        for (int root : roots)
          if (Status s = sweep(into, watcher, type, op, root, cycle); !s.ok()) return s;
    if (options_.cycles == 0) into.rows.clear();  // nobody will ask for them, and memory ends
  }
  std::vector<double> sums{out_of_bounds_, double(buffer_bytes_), double(ranks_.memory_bytes())};
  if (Status s = all_reduce(sums, ReduceOp::sum); !s.ok()) return s;
  into.out_of_bounds = sums[0];
  into.buffer_bytes = sums[1];
  into.library_bytes = sums[2];
  return wait(world_.barrier());
}

Status Session::sweep(Run& into, const Watcher& watcher, DataType type, ReduceOp op, int root, int cycle) {
  for (const std::size_t bytes : sizes_of(options_)) {
    Row row;
    row.type = table_name(type);
    row.op = benchmark_.reduces ? table_name(op) : "none";
    row.root = benchmark_.rooted ? root : -1;
    if (watcher.progress) watcher.progress(fmt::format("{} {} {} bytes", row.type, row.op, bytes), done_, all_);
    if (Status s = measure_row(row, type, op, root, bytes, cycle); !s.ok())
      return {s.code(), fmt::format("{} bytes of {}, {}: {}", bytes, row.type, row.op, s.text()), s.culprit()};
    ++done_;
    if (watcher.row) watcher.row(row);
    into.rows.push_back(std::move(row));
  }
  return {};
}

Status Session::measure_row(Row& row, DataType type, ReduceOp op, int root, std::size_t bytes, int cycle) {
  const std::size_t size = size_of(type), count = benchmark_.count(bytes / size, size, ranks_.rank_count());
  // Sending knows no choice of algorithms; which wires there are, an operation among all pairs tells.
  const bool sends = benchmark_.what == Collective::send;
  const Result<Choice> choice = ranks_.explain(sends ? Collective::all_to_all : benchmark_.what, count, type, op);
  if (!choice.ok()) return choice.status();
  row.algorithm = sends ? "pairs" : choice.value().algorithm;
  row.transport = choice.value().transport;
  row.count = count;
  input_.set_shift(std::size_t(options_.unalign) * size);
  output_.set_shift(std::size_t(options_.unalign) * size);
  const Trial apart = make_trial(type, op, root, count, false);
  row.bytes = apart.shape.size * size;
  if (Status s = measure(row.out_of_place, apart, row.bytes, cycle); !s.ok()) return s;
  if (benchmark_.in_place) {
    row.in_place.emplace();
    if (Status s = measure(*row.in_place, make_trial(type, op, root, count, true), row.bytes, cycle); !s.ok()) return s;
  }
  row.timestamp = options_.timestamps ? time_of_day() : "";
  return {};
}

Status Session::measure(Figures& figures, const Trial& trial, std::size_t bytes, int cycle) {
  if (Status s = check(figures, trial, cycle); !s.ok()) return s;
  if (Status s = time(figures, trial); !s.ok()) return s;
  input_.download(stream()), output_.download(stream());
  const std::size_t damaged = input_.damaged() + output_.damaged();
  out_of_bounds_ += double(damaged);
  saw_wrong_ = saw_wrong_ || damaged || figures.wrong.value_or(0) > 0;
  if (Status s = combine(figures); !s.ok()) return s;
  saw_wrong_ = saw_wrong_ || figures.wrong.value_or(0) > 0;
  figures.algbw = figures.time_us > 0 ? double(bytes) / figures.time_us / 1e3 : 0;
  figures.busbw = figures.algbw * benchmark_.bus_factor(ranks_.rank_count());
  return {};
}

Checker& Session::checker_for(const Trial& trial, int seed) {
  Recipe recipe = trial.recipe;
  recipe.seed = std::uint64_t(seed);
  if (!checker_ || !(recipe_ == recipe)) checker_.emplace(recipe);
  recipe_ = recipe;
  return *checker_;
}

void Session::fill(const Trial& trial, Checker& checker) {
  input_.arm(trial.in_place ? 0 : trial.input_bytes * trial.calls.size(), kFiller);
  output_.arm(trial.output_bytes * trial.calls.size(), kFiller);
  for (std::size_t slot = 0; slot < trial.calls.size(); ++slot)
    checker.fill(trial.input_at(input_, output_, slot), ranks_.rank(), 0, trial.shape.input);
  input_.upload(stream()), output_.upload(stream());
}

Verdict Session::verify(const Trial& trial, Checker& checker) {
  input_.download(stream()), output_.download(stream());
  Verdict verdict;
  for (std::size_t slot = 0; slot < trial.calls.size(); ++slot) {
    if (trial.shape.output) verdict.add(checker.compare(trial.output_at(output_, slot), trial.shape));
    if (!trial.in_place)  // out of place, an input stays as it was
      verdict.add(checker.compare(trial.input_at(input_, output_, slot), ranks_.rank(), 0, trial.shape.input));
  }
  return verdict;
}

Status Session::check(Figures& figures, const Trial& trial, int cycle) {
  Verdict all;
  for (int i = 0; i < std::max(1, options_.checks); ++i) {
    Checker& checker = checker_for(trial, cycle * options_.checks + i);
    fill(trial, checker);
    if (options_.checks == 0) return {};
    if (Status s = iterate(trial); !s.ok()) return s;
    if (Status s = settle(); !s.ok()) return s;
    all.add(verify(trial, checker));
  }
  figures.wrong = double(all.wrong);
  if (options_.check == Check::random) figures.error_over_bound = all.error_over_bound;
  return {};
}

Status Session::time(Figures& figures, const Trial& trial) {
  double one_us = 0;
  if (Status s = warm_up(trial, one_us); !s.ok()) return s;
  int iterations = options_.iterations;
  if (!options_.iterations_said) {
    std::vector<double> slowest{one_us};  // all ranks must run the same number
    if (Status s = all_reduce(slowest, ReduceOp::max); !s.ok()) return s;
    iterations = iterations_for(slowest[0], options_.iterations);
  }
  const bool small = trial.shape.size * size_of(trial.recipe.type) <= kClocksShow;
  const bool clocks_show = (small || stream_.given) && !has_barriers(options_.blocking);
  if (clocks_show)
    if (Status s = time_batch(figures, trial, iterations); !s.ok()) return s;
  return time_each(figures, trial, iterations, !clocks_show);
}

Status Session::warm_up(const Trial& trial, double& one_us) {
  one_us = std::numeric_limits<double>::infinity();
  const int iterations =
      options_.warmup == 0 && !options_.iterations_said ? 1 : options_.warmup;  // one, to know how many
  for (int i = 0; i < iterations; ++i) {
    const Clock::time_point start = Clock::now();
    if (Status s = iterate(trial); !s.ok()) return s;
    if (Status s = settle(); !s.ok()) return s;
    one_us = std::min(one_us, microseconds(Clock::now() - start));
  }
  return {};
}

Status Session::time_batch(Figures& figures, const Trial& trial, int iterations) {
  if (Status s = wait(world_.barrier()); !s.ok()) return s;
  const double cpu = process_cpu_us();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < iterations; ++i)
    if (Status s = iterate(trial); !s.ok()) return s;
  if (Status s = settle(); !s.ok()) return s;
  const double each = double(iterations) * options_.aggregate;
  figures.time_us = microseconds(settled_ - start) / each;
  figures.cpu_us = (process_cpu_us() - cpu) / each / options_.threads;
  return {};
}

Status Session::time_each(Figures& figures, const Trial& trial, int iterations, bool mean_too) {
  const bool by_stream = stream_.given && options_.blocking == Blocking::none;
  std::vector<double> times;
  times.reserve(std::size_t(iterations));
  if (Status s = wait(world_.barrier()); !s.ok()) return s;
  const double cpu = process_cpu_us();
  const Status sampled = by_stream ? sample_stream(times, trial, iterations) : sample_clock(times, trial, iterations);
  if (!sampled.ok()) return sampled;
  add_samples(figures, times, options_.aggregate, options_.skip);
  if (!mean_too) return {};
  double sum = 0;
  for (double time_us : times) sum += time_us;
  const double each = double(iterations) * options_.aggregate;
  figures.time_us = sum / each;
  figures.cpu_us = (process_cpu_us() - cpu) / each / options_.threads;
  return {};
}

Status Session::sample_clock(std::vector<double>& times_us, const Trial& trial, int iterations) {
  Clock::time_point start = Clock::now();
  for (int i = 0; i < iterations; ++i) {
    if (Status s = iterate(trial); !s.ok()) return s;
    const Clock::time_point end = Clock::now();
    times_us.push_back(microseconds(end - start));
    start = end;
    if (!has_barriers(options_.blocking)) continue;
    if (Status s = wait(world_.barrier()); !s.ok()) return s;
    start = Clock::now();  // a barrier is waited for, not measured
  }
  return {};
}

Status Session::sample_stream(std::vector<double>& times_us, const Trial& trial, int iterations) {
  while (marks_.size() <= std::size_t(iterations)) marks_.push_back(gpu_make_mark());
  gpu_set_mark(marks_[0], stream());
  for (int i = 0; i < iterations; ++i) {
    if (Status s = iterate(trial); !s.ok()) return s;
    gpu_set_mark(marks_[std::size_t(i) + 1], stream());
  }
  if (Status s = settle(); !s.ok()) return s;
  for (std::size_t i = 0; i < std::size_t(iterations); ++i) times_us.push_back(gpu_between(marks_[i], marks_[i + 1]));
  return {};
}

Status Session::iterate(const Trial& trial) {
  if (Status s = start_all(trial); !s.ok()) return s;
  return stream_.given && options_.blocking != Blocking::none ? settle() : Status();
}

Status Session::start_all(const Trial& trial) {
  const bool one_by_one = options_.blocking == Blocking::barrier_each || options_.blocking == Blocking::wait_each;
  if (trial.calls.size() == 1) return go_on(benchmark_.start(ranks_, trial.calls[0]));
  if (one_by_one) {
    for (const Call& call : trial.calls) {
      if (Status s = go_on(benchmark_.start(ranks_, call)); !s.ok()) return s;
      if (Status s = settle(); !s.ok()) return s;
    }
    return {};
  }
  if (benchmark_.what != Collective::send) {
    ranks_.begin_group();
    for (const Call& call : trial.calls) (void)benchmark_.start(ranks_, call);
    return go_on(ranks_.end_group());
  }
  std::vector<Work> works;  // these are groups already, and groups do not nest
  for (const Call& call : trial.calls) works.push_back(benchmark_.start(ranks_, call));
  for (const Work& work : works)
    if (Status s = go_on(work); !s.ok()) return s;
  return {};
}

Status Session::go_on(Work work) {
  if (!stream_.given) return wait(std::move(work));
  last_ = std::move(work);
  return last_.test() ? last_.status() : Status();
}

// The clock is read when the stream has passed: that the library has heard of it, too, is not measured.
Status Session::settle() {
  if (!stream_.given) return settled_ = Clock::now(), Status();
  if (options_.timeout_s > 0)
    if (Status s = wait(last_); !s.ok()) return s;
  gpu_synchronize(stream());
  settled_ = Clock::now();
  return wait(last_);
}

Status Session::wait(Work work) {
  if (options_.timeout_s == 0) return work.wait();
  const auto limit = std::chrono::duration<double>(options_.timeout_s);
  if (work.wait_for(std::chrono::duration_cast<std::chrono::nanoseconds>(limit))) return work.status();
  const Status status{Code::timeout, fmt::format("an operation did not end within -T {} s", options_.timeout_s)};
  world_.abort(status.text());
  return status;
}

Status Session::all_reduce(std::vector<double>& values, ReduceOp op) {
  return wait(world_.all_reduce(
      {.input = values.data(), .output = values.data(), .count = values.size(), .type = DataType::f64, .op = op}));
}

Status Session::combine(Figures& figures) {
  const std::array<double*, 8> fields{&figures.time_us, &figures.p50_us, &figures.p95_us, &figures.p99_us,
                                      &figures.min_us,  &figures.max_us, &figures.spread, &figures.cpu_us};
  const bool silent = options_.average == Average::rank0 && world_.rank() != 0;
  std::vector<double> times;
  for (const double* field : fields) times.push_back(silent ? 0 : *field);
  const ReduceOp op = options_.average == Average::min   ? ReduceOp::min
                      : options_.average == Average::max ? ReduceOp::max
                                                         : ReduceOp::sum;
  if (Status s = all_reduce(times, op); !s.ok()) return s;
  const double divisor = options_.average == Average::mean ? world_.rank_count() : 1;
  for (std::size_t i = 0; i < fields.size(); ++i) *fields[i] = times[i] / divisor;
  if (figures.wrong) {
    std::vector<double> wrong{*figures.wrong};
    if (Status s = all_reduce(wrong, ReduceOp::sum); !s.ok()) return s;
    figures.wrong = wrong[0];
  }
  if (figures.error_over_bound) {
    std::vector<double> ratio{*figures.error_over_bound};
    if (Status s = all_reduce(ratio, ReduceOp::max); !s.ok()) return s;
    figures.error_over_bound = ratio[0];
  }
  return {};
}

}  // namespace tutti::perf
