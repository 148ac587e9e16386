#include "trainer/run.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <tutti/elastic.h>
#include <utility>

#include "trainer/bpe.h"
#include "trainer/failure.h"
#include "trainer/handover.h"
#include "trainer/text.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kTextLooked = 1 << 22;      // characters of a text that its entropy is taken from

void print_heading(const Options& o, Training& training, const Communicator& communicator, const std::string& device, int threads) {
  fmt::print("model: {} layers, {} heads, width {}, vocabulary {}, context {}: {} parameters\n", o.model.layers, o.model.heads,
             o.model.width, o.model.vocabulary, o.model.context, training.layout().parameters());
  fmt::print("ranks: {}, {} thread{} each; {}{}\n", communicator.rank_count(), threads, threads == 1 ? "" : "s",
             o.zero == 0 ? std::string("data parallel") : fmt::format("ZeRO-{}", o.zero), o.deterministic ? ", deterministic" : "");
  fmt::print("BLAS: {}\n", device);
  if (o.precision != Precision::f32 && o.gpu < 0) fmt::print("products: {0} inputs, f32 sums, by f32 products of rounded blocks: no {0} product here\n", name_of(o.precision));
  fmt::print("a rank holds: {}\n", training.memory_text());
  fmt::print("data: {}\n", training.sampler().text());
  // A loss below it tells of more than which character follows which.
  if (training.tokens().is_text()) fmt::print("loss of a table of character pairs: {:.3f}\n", bigram_entropy(training.tokens().text(kTextLooked)));
}

// Beside the checkpoints, for `train sample` and for who takes the weights elsewhere.
void keep_tokenizer(const Options& o) {
  if (o.tokenizer.empty() || o.run.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(o.run, error);      // what is wrong with it is said where something is written
  if (Bpe::saved_in(o.run).empty()) require(require(Bpe::open(o.tokenizer)).save(o.run));
}

std::string trace_file(const Options& o, int rank) { return rank == 0 ? o.trace : fmt::format("{}.{}", o.trace, rank); }

// Before the first step rather than behind the last one.
bool can_trace(const Options& o, int rank) {
  if (o.trace.empty()) return false;
  std::error_code error;
  if (!o.run.empty()) std::filesystem::create_directories(o.run, error);      // where it may lie
  const std::string path = trace_file(o, rank);
  if (!std::ofstream(path, std::ios::app)) refuse(fmt::format("--trace {}: cannot be written: {}", path, std::strerror(errno)));
  return true;
}

void write_trace(const Options& o, const Trace& trace, int rank) {
  if (o.trace.empty()) return;
  const std::string path = trace_file(o, rank);
  std::ofstream file(path);
  file << trace.text() << "\n";
  if (!file.flush()) refuse(fmt::format("{} cannot be written", path));
}

void say(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// A loss that jumps after resuming tells of state that was lost.
void compare_losses(double before, const StepResult& result) {
  if (result.loss <= 1.5 * before + 1) return;
  throw Failure(Status(Code::invalid_state, fmt::format("expected a loss of about {:.3f} in the first step after the checkpoint, got {:.3f}: "
                                                        "is the data the same?", before, result.loss)));
}

bool is_loss(const Status& status) {
  return status.code() == Code::peer_lost || status.code() == Code::timeout || status.code() == Code::network;
}

}  // namespace

Run::Run(const Options& options, Tokens tokens, Elastic& elastic, Backend<float>& backend, Threads& threads)
    : options_(options), tokens_(std::move(tokens)), elastic_(elastic), backend_(backend), threads_(threads),
      trace_(can_trace(options, elastic.communicator()->rank()), elastic.communicator()->rank()), peak_flops_(peak_flops(backend, options.precision)) {}

Run::~Run() = default;

Run::World::World(Run& run, std::shared_ptr<Communicator> of)
    : communicator(std::move(of)), training(run.options_, run.tokens_, *communicator, run.backend_, run.threads_, run.trace_),
      log(run.options_.run, communicator->rank()) {}

int Run::carry_out() {
  for (;;) {
    try {
      enter();
      if (!elastic_.enough()) return stop_early();
      if (!work()) continue;
      finish();
      return 0;
    } catch (const Failure& failure) {
      if (!elastic_.can_go_on() || !is_loss(failure.status())) throw;
      after_loss(failure.status());
    }
  }
}

void Run::enter() {
  now_ = std::make_unique<World>(*this, elastic_.communicator());
  World& world = *now_;
  const bool first_of_all = elastic_.worlds() <= 1 && !before_;
  if (world.first() && first_of_all) print_heading(options_, world.training, *world.communicator, backend_.describe(), threads_.count());
  world.training.compare_blas();
  const bool usable = before_ && (intact_ || options_.zero == 0);
  std::string told;
  if (hand_over(usable ? &before_->training : nullptr, world.training, loss_, told)) {
    if (world.first() && !options_.run.empty()) remove_torn_checkpoints(options_.run);
    if (!told.empty()) say(fmt::format("world {}: going on {}", elastic_.worlds(), told));
  } else {
    begin_anew(world);
  }
  before_.reset();
  world.has_state = true;
  if (world.first()) keep_tokenizer(options_);
  world.saver = std::make_unique<Saver>(options_, world.training);
  world.progress = std::make_unique<Progress>(world.first(), world.training.steps_done(), options_.steps);
}

// A later world of the job goes on from what an earlier one has saved, whatever the command line says of the first.
void Run::begin_anew(World& world) {
  world.training.start();
  Options options = options_;
  const bool later = elastic_.worlds() > 1;
  if (later && !options.run.empty() && (options.resume.empty() || has_checkpoints(options.run))) options.resume = "auto";
  std::string told;
  if (!options.run.empty() || !options.resume.empty()) told = resume(options, world.training, loss_before_);
  loss_ = loss_before_;
  if (later && told.empty() && world.first()) told = "the state of the run is lost with its ranks: starting anew\n";
  say(told);
}

bool Run::work() {
  World& world = *now_;
  const Options& o = options_;
  const StepWork work{double(o.samples() * o.model.context), double(o.samples() * o.model.context) * o.model.flops_per_token(),
                      peak_flops_ * world.communicator->rank_count()};
  for (std::size_t epoch = ~std::size_t(0); world.training.steps_done() < o.steps;) {
    if (const std::size_t now = world.training.sampler().epoch_of(std::size_t(world.training.steps_done())); now != epoch) {
      epoch = now;
      if (world.first()) world.progress->say(fmt::format("epoch {}: order {:016x}\n", epoch, world.training.sampler().order_hash(epoch)));
    }
    const StepResult result = world.training.step();
    loss_ = result.loss;
    if (loss_before_ > 0 && !result.skipped) compare_losses(std::exchange(loss_before_, 0), result);
    world.log.add(result, work);
    if (world.first()) world.progress->say(step_line(result, o.steps, work) + "\n");
    world.progress->say(world.saver->after(result));
    world.progress->show(result.step);
    if (!require(elastic_.take_in())) continue;
    world.progress->say(world.saver->finish());
    leave(true);
    return false;
  }
  return true;
}

void Run::finish() {
  World& world = *now_;
  world.progress->say(world.saver->finish());
  if (elastic_.can_go_on()) world.progress->say(world.saver->save(world.training.steps_done(), loss_));
  write_trace(options_, trace_, world.communicator->rank());
  if (options_.expect_loss > 0 && loss_ > options_.expect_loss) {
    throw Failure(Status(Code::invalid_state, fmt::format("the last loss is {:.4f}; at most {} was expected", loss_, options_.expect_loss)));
  }
  if (options_.hash) {
    const Digest digest = world.training.weights_hash();
    if (world.first()) world.progress->say(fmt::format("weights sha256 {}\n", to_hex(digest)));
  }
  Work all = world.communicator->barrier();      // nobody leaves while another still exchanges
  require(all.wait());
  elastic_.end(fmt::format("all {} steps are done", options_.steps));
}

int Run::stop_early() {
  World& world = *now_;
  const long done = world.training.steps_done();
  world.progress->say(world.saver->save(done, loss_));
  const std::string why = fmt::format("after step {} only {} of at least {} ranks are left", done, world.communicator->rank_count(), elastic_.least());
  elastic_.end(why);
  if (world.first()) {
    fmt::print(stderr, "train: {}: stopped; {} [TUTTI-E907]\n", why, options_.run.empty() ? "nothing is saved without --run" : "--resume auto goes on from here");
  }
  return kTooFewLeft;
}

void Run::after_loss(const Status& why) {
  leave(false);
  fmt::print(stderr, "train: {}; going on with those that are left\n", why.to_string());
  require(elastic_.go_on());
}

void Run::leave(bool intact) {
  if (now_) now_->saver.reset(), now_->progress.reset();
  if (now_ && now_->has_state) before_ = std::move(now_);
  now_.reset();
  intact_ = intact;
}

}  // namespace tutti::trainer
