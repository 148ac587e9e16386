#include "trainer/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/failure.h"
#include "trainer/gemm.h"
#include "trainer/shard_sum.h"
#include "trainer/whole_sum.h"

namespace tutti::trainer {
namespace {

using Time = Trace::Time;
Time now() { return Trace::Clock::now(); }
double seconds(Time begin, Time end) { return std::chrono::duration<double>(end - begin).count(); }

MicroBatches own_micro_batches(const Options& options, const Communicator& communicator) {
  const int ranks = communicator.rank_count();
  if (std::size_t(ranks) > options.micro_batches) {
    refuse(fmt::format("{} ranks share {} micro-batches of {} samples: give --micro-batches {} or fewer ranks", ranks,
                       options.micro_batches, options.batch, ranks));
  }
  return micro_batches_of(options.micro_batches, ranks, communicator.rank());
}

std::unique_ptr<GradientSum> gradient_sum(const Options& options, const Layout& layout, const Shares& shares, Wire& wire, Backend<float>& backend,
                                          Threads& threads) {
  if (options.deterministic) return std::make_unique<TreeSum>(layout, shares, options.micro_batches, wire, threads);
  EmbeddingRows rows(options.model, {options.batch, options.model.context}, wire, backend);
  if (options.zero >= 2) return std::make_unique<ShardSum>(layout, shares, wire, backend, std::move(rows), options.narrow_wire);
  return std::make_unique<WholeSum>(layout, shares, wire, backend, std::move(rows), options.bucket_bytes, options.narrow_wire);
}

std::uint64_t hash_of(const std::vector<float>& values) {
  std::uint64_t hash = values.size();
  for (const float x : values) hash = (hash ^ std::bit_cast<std::uint32_t>(x)) * 0x100000001b3u;
  return hash;
}

std::unique_ptr<SharedWeights> shared_weights(const Options& options, const Layout& layout, const Shares& shares, Wire& wire, Device& device) {
  if (options.zero == 3) return std::make_unique<ShardedWeights>(layout, shares, wire, device);
  return std::make_unique<ResidentWeights>(layout, shares, wire, device);
}

}  // namespace

Training::Training(const Options& options, Tokens tokens, Communicator& communicator, Backend<float>& backend, Threads& threads, Trace& trace)
    : options_(options), tokens_(std::move(tokens)), trace_(trace), backend_(backend), layout_(options.model), wire_(communicator, trace, backend),
      shares_(layout_, options.zero == 0 ? 1 : communicator.rank_count(), communicator.rank()),
      own_(own_micro_batches(options, communicator)),
      rounds_(options.zero < 2 ? own_.end - own_.begin
                               : (options.micro_batches + std::size_t(communicator.rank_count()) - 1) / std::size_t(communicator.rank_count())),
      sampler_(options.seed, tokens_.count(), options.model.context, options.samples(), options.drop_last),
      weights_(shared_weights(options, layout_, shares_, wire_, backend)),
      gradients_(gradient_sum(options, layout_, shares_, wire_, backend, threads)),
      optimizer_(layout_, shares_, options.adamw, options.offload ? host_.emplace(threads) : backend, options.offload ? &backend : nullptr),
      model_(options.model, {options.batch, options.model.context}, options.recompute, backend, options.precision),
      inputs_(options.batch * options.model.context), targets_(inputs_.size()), there_inputs_(backend, inputs_.size()),
      there_targets_(backend, inputs_.size()), squares_(layout_.count() / kBlock), there_squares_(backend, squares_.size()),
      scaler_(options.precision == Precision::f16) {
  if (sampler_.samples() < std::size_t(wire_.rank_count())) {
    refuse(fmt::format("{} has {} samples of {} tokens for {} ranks: give more data, fewer ranks or a smaller --context", tokens_.name(),
                       sampler_.samples(), options.model.context, wire_.rank_count()));
  }
  const Token largest = tokens_.largest();
  if (std::size_t(largest) >= options.model.vocabulary) {
    refuse(fmt::format("{} has token {}, but the vocabulary is {}: give --vocabulary {} or other data", tokens_.name(), largest,
                       options.model.vocabulary, largest + 1));
  }
}

void Training::compare_blas() {
  std::uint64_t blas = 0;
  for (const char c : blas_name()) blas = mix(blas, std::uint64_t(static_cast<unsigned char>(c)));
  for (const std::uint64_t other : wire_.gather_now({blas})) {
    if (other != blas && options_.deterministic) {
      refuse(fmt::format("--deterministic needs the same BLAS on all ranks; rank {} has {}, others another", wire_.rank(), blas_name()));
    }
  }
}

void Training::start() {
  for (std::size_t unit = 0; unit < layout_.units().size(); ++unit) {
    UnitState state;
    state.weights.resize(layout_.units()[unit].count);
    if (wire_.rank() == 0) start_weights(layout_, options_.seed, unit, state.weights.data());
    set_unit(unit, state);
  }
  compare_ranks();
}

void Training::set_unit(std::size_t unit, UnitState& there, int source) {
  const std::size_t count = layout_.units()[unit].count;
  for (std::vector<float>* part : {&there.weights, &there.first, &there.second}) {
    part->resize(count);
    Exchange exchange = wire_.broadcast("broadcast of state", part->data(), count * sizeof(float), source);
    wire_.wait(exchange);
  }
  const Share share = shares_.mine(unit);
  weights_->set(unit, there.weights.data());
  optimizer_.write(unit, there.first.data() + share.begin, there.second.data() + share.begin);
}

UnitState Training::unit(std::size_t unit, Contents contents) {
  const Share share = shares_.mine(unit);
  UnitState state;
  std::vector<std::vector<float>*> parts = {&state.weights};
  if (contents == Contents::all) parts.insert(parts.end(), {&state.first, &state.second});
  for (std::vector<float>* part : parts) part->resize(layout_.units()[unit].count);
  backend_.download(state.weights.data() + share.begin, weights_->owned(unit), share.count * sizeof(float));
  if (contents == Contents::all) optimizer_.read(unit, state.first.data() + share.begin, state.second.data() + share.begin);
  if (shares_.owners() == 1) return state;
  for (std::vector<float>* part : parts) {
    Exchange exchange = wire_.gather_host_blocks("gather of state", part->data(), shares_.counts(unit));
    wire_.wait(exchange);
  }
  return state;
}

std::vector<float> Training::on_host(const float* at, std::size_t count) {
  std::vector<float> host(count);
  backend_.download(host.data(), at, count * sizeof(float));
  return host;
}

std::vector<float> Training::weights_of(const Tensor& tensor) {
  const auto values = on_host(weights_->weights(tensor.unit, tensor.unit) + tensor.offset, tensor.count());
  weights_->release(tensor.unit);
  return values;
}

Digest Training::weights_hash() {
  Sha256 hash;
  for (const Tensor& tensor : layout_.tensors()) hash.add(weights_of(tensor).data(), tensor.count() * sizeof(float));
  return hash.end();
}

void Training::compare_ranks() {
  std::vector<std::uint64_t> hashes;
  for (const Tensor& tensor : layout_.tensors()) hashes.push_back(hash_of(weights_of(tensor)));
  const auto all = wire_.gather_now(hashes);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == all[i % hashes.size()]) continue;
    const int rank = int(i / hashes.size());
    throw Failure(Status(Code::mismatch, fmt::format("after step {} the weights {} of rank {} differ from those of rank 0", steps_,
                                                     layout_.tensors()[i % hashes.size()].name, rank), rank));
  }
}

double Training::compute(std::size_t number, bool counts, bool last, StepResult& result) {
  const Time begin = now();
  const std::size_t context = options_.model.context, first = (counts ? number : own_.begin) * options_.batch;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const std::size_t at = sampler_.token_at(std::size_t(steps_), first + i / context) + i % context;
    inputs_[i] = tokens_.at(at);
    targets_[i] = tokens_.at(at + 1);
  }
  const Time loaded = now();
  result.data_seconds += seconds(begin, loaded);
  const Dropout dropout{options_.dropout, mix(mix(options_.seed, 0x64726f70), std::uint64_t(steps_)), first};
  gradients_->begin(number, counts, last);
  backend_.upload(there_inputs_.data(), inputs_.data(), there_inputs_.bytes());
  backend_.upload(there_targets_.data(), targets_.data(), there_targets_.bytes());
  const double loss = model_.forward(*weights_, there_inputs_.data(), there_targets_.data(), dropout);
  const Time middle = now();
  model_.backward(*weights_, *gradients_, there_inputs_.data(), there_targets_.data(), dropout,
                  counts ? float(scaler_.scale()) / float(options_.micro_batches) : 0.0f);
  const Time end = now();
  result.backward_seconds += seconds(middle, end);
  trace_.add(Trace::Kind::compute, "forward", loaded, middle);
  trace_.add(Trace::Kind::compute, "backward", middle, end);
  gradients_->end();
  return loss;
}

StepResult Training::step() {
  StepResult result;
  wire_.take_count();      // what went on between steps is not theirs
  const Time begin = now();
  std::vector<double> losses(options_.micro_batches);
  for (std::size_t round = 0; round < rounds_; ++round) {
    const std::size_t number = own_.begin + round;
    const bool counts = number < own_.end;
    const double loss = compute(number, counts, round + 1 == rounds_, result);
    if (counts) losses[number] = loss;
  }
  gradients_->finish();
  bool finite = true;
  result.norm = norm_and_loss(losses, result.loss, finite);
  result.step = steps_ + 1;
  result.loss_scale = scaler_.scale();
  result.rate = options_.schedule.at(result.step);
  if (!finite && std::isfinite(result.loss) && scaler_.can_fall()) {
    scaler_.overflowed();
    result.skipped = result.overflowed = true;
  } else if (!finite || !std::isfinite(result.loss)) {
    if (options_.on_nan == OnNan::stop) blame(result.step, result.loss);
    result.skipped = true;
  } else {
    update(result.rate, result.norm);
    scaler_.went_well();
  }
  ++steps_;
  if (options_.check_every > 0 && steps_ % options_.check_every == 0) compare_ranks();
  result.seconds = seconds(begin, now());
  const WireCount count = wire_.take_count();
  result.exposed_seconds = count.exposed_seconds;
  result.compute_seconds = result.seconds - result.exposed_seconds - result.data_seconds;
  result.exchange_seconds = count.seconds;
  result.operations = count.operations;
  result.bytes = count.bytes;
  return result;
}

// Each rank fills in what it knows and leaves 0 elsewhere, so that the sum over ranks is exact and the order of additions is that of
// the array on any number of ranks. Whether a gradient overflowed travels along: a rank alone may see it, all must leave the step out.
double Training::norm_and_loss(std::vector<double>& losses, double& loss, bool& finite) {
  for (std::size_t unit = 0; unit < layout_.units().size(); ++unit) {
    sum_squares(layout_, shares_, backend_, unit, gradients_->owned(unit), there_squares_.data());
  }
  backend_.download(squares_.data(), there_squares_.data(), there_squares_.bytes());      // 0 for what others own
  finite = std::all_of(squares_.begin(), squares_.end(), [](double square) { return std::isfinite(square); });
  losses.push_back(finite ? 0 : 1);
  if (shares_.owners() > 1) {
    losses.insert(losses.end(), squares_.begin(), squares_.end());
    wire_.sum_now(losses);
    squares_.assign(losses.begin() + std::ptrdiff_t(options_.micro_batches) + 1, losses.end());
  } else {
    wire_.sum_now(losses);
  }
  finite = losses[options_.micro_batches] == 0;
  losses.resize(options_.micro_batches);
  double sum = 0, square = 0;
  for (const double one : losses) sum += one;
  for (const double one : squares_) square += one;
  loss = sum / double(options_.micro_batches);
  return std::sqrt(square) / scaler_.scale();
}

void Training::blame(long step, double loss) {
  const std::size_t none = layout_.tensors().size();
  std::size_t first = none;
  for (std::size_t i = 0; i < none && first == none; ++i) {
    const Tensor& tensor = layout_.tensors()[i];
    const Share share = shares_.mine(tensor.unit);
    const std::size_t begin = std::max(tensor.offset, share.begin), end = std::min(tensor.offset + tensor.count(), share.begin + share.count);
    if (begin >= end) continue;
    const auto gradient = on_host(gradients_->owned(tensor.unit) + (begin - share.begin), end - begin);
    if (!std::all_of(gradient.begin(), gradient.end(), [](float g) { return std::isfinite(g); })) first = i;
  }
  for (const std::uint64_t other : wire_.gather_now({first})) first = std::min(first, std::size_t(other));
  throw Failure(Status(Code::invalid_state,
                       fmt::format("step {}: the loss is {} and {}; the weights are still those of step {}. A smaller --rate, a longer "
                                   "--warm-up or --clip may help; --on-nan skip leaves such steps out", step, loss,
                                   first == none ? std::string("all gradients are finite, their norm is not")
                                                 : fmt::format("the first gradient that is not finite is that of {}", layout_.tensors()[first].name),
                                   step - 1)));
}

void Training::update(double rate, double norm) {
  const Time begin = now();
  const double scale = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1.0;
  for (std::size_t unit = 0; unit < layout_.units().size(); ++unit) {
    optimizer_.step(unit, weights_->owned(unit), gradients_->owned(unit), rate, scale / scaler_.scale(), steps_ + 1);
  }
  trace_.add(Trace::Kind::compute, "optimizer", begin, now());
  weights_->publish();
}

std::string Training::memory_text() const {
  const auto mb = [](std::size_t bytes) { return double(bytes) / 1e6; };
  return fmt::format("weights {:.1f} MB, gradients {:.1f} MB, optimizer {:.1f} MB, activations {:.1f} MB", mb(weights_->bytes()),
                     mb(gradients_->bytes()), mb(optimizer_.bytes()), mb(model_.activation_bytes()));
}

}  // namespace tutti::trainer
