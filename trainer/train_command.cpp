#include "trainer/train_command.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <tutti/elastic.h>

#include "trainer/bpe.h"
#include "trainer/cores.h"
#include "trainer/cuda/cuda_backend.h"
#include "trainer/failure.h"
#include "trainer/gemm.h"
#include "trainer/host_backend.h"
#include "trainer/run.h"
#include "trainer/text.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kGeneratedBytes = 1 << 20;

struct Flags {
  ModelFlags model;
  Options options;
  std::string schedule = "cosine", on_nan = "stop", dtype = "f32", wire = "f32", device = "cpu";
  double bucket_mb = 4;
};

// "cpu": -1; "cuda": kEachItsOwn; "cuda:N": N.
constexpr int kEachItsOwn = 1 << 20;
int gpu_named(const std::string& device) {
  if (device == "cpu") return -1;
  if (device == "cuda") return kEachItsOwn;
  int number = -1;
  const char* end = device.data() + device.size();
  if (device.starts_with("cuda:")) {
    const auto read = std::from_chars(device.data() + 5, end, number);
    if (read.ec == std::errc() && read.ptr == end && number >= 0 && number < kEachItsOwn) return number;
  }
  refuse(fmt::format("--device {}: want cpu, cuda (ranks of a host take its GPUs in turn) or cuda:N", device));
}

// The processor's memory and threads, or a GPU.
std::unique_ptr<Backend<float>> backend_for(const Options& o, const Communicator& communicator, Threads& threads) {
  if (o.gpu < 0) return std::make_unique<HostBackend<float>>(threads);
  return open_gpu(o.gpu == kEachItsOwn ? communicator.local_rank() % std::max(1, gpu_count()) : o.gpu);
}

Options resolve(const Flags& flags) {
  Options o = flags.options;
  o.model = flags.model.resolve();
  o.schedule.kind = *schedule_from(flags.schedule);
  o.schedule.steps = o.steps;
  o.on_nan = flags.on_nan == "skip" ? OnNan::skip : OnNan::stop;
  o.precision = *precision_from(flags.dtype);
  o.narrow_wire = flags.wire == "bf16";
  if (o.narrow_wire && o.deterministic) refuse("--wire bf16 rounds partial sums by how ranks share them; --deterministic needs --wire f32");
  o.gpu = gpu_named(flags.device);
  if (o.gpu >= 0 && o.deterministic) refuse("--deterministic fixes how a BLAS of the processor adds; leave out --device");
  if (o.gpu < 0 && o.offload) refuse("--offload takes the optimizer's state out of a GPU's memory: give --device cuda");
  o.bucket_bytes = std::size_t(flags.bucket_mb * 1e6);
  if (o.resume == "auto" && o.run.empty()) refuse("--resume auto looks for checkpoints in the folder that --run names; give one");
  return o;
}

Tokens open_data(const Options& options) {
  Tokens tokens = options.data.empty() ? Tokens::of_text(generated_text(kGeneratedBytes)) : require(Tokens::open(options.data));
  if (options.tokenizer.empty()) return tokens;
  if (!tokens.is_text()) refuse(options.data + " holds tokens already: leave out --tokenizer");
  const Bpe bpe = require(Bpe::open(options.tokenizer));
  if (bpe.vocabulary() > options.model.vocabulary) {
    refuse(fmt::format("the tokenizer {} has {} tokens, the model's vocabulary is {}: give --vocabulary {}", options.tokenizer, bpe.vocabulary(),
                       options.model.vocabulary, bpe.vocabulary()));
  }
  return Tokens::of_tokens(tokens.name(), bpe.encode(tokens.text(tokens.count())));
}

int run(const Options& o) {
  // Before the communicator reads its settings: sums of ranks along the tree that the trainer continues.
  if (o.deterministic) setenv("TUTTI_ORDER", "canonical", 1);
  keep_blas_on_one_thread();
  auto elastic = Elastic::from_environment();
  if (elastic.status().code() == Code::aborted) return fmt::print(stderr, "train: {}\n", elastic.status().to_string()), 0;
  require(elastic.status());
  const int local_ranks = std::max(1, elastic->communicator()->local_rank_count());
  Threads crew(o.threads > 0 ? o.threads : std::max(1, usable_cores() / local_ranks), !o.deterministic);
  try {
    const auto backend = backend_for(o, *elastic->communicator(), crew);
    return Run(o, open_data(o), *elastic, *backend, crew).carry_out();
  } catch (const Failure& failure) {
    fmt::print(stderr, "train: {}\n", failure.what());      // each rank: who is stopped first is up to the launcher
    if (elastic->communicator()) elastic->communicator()->abort(failure.what());
    elastic->end(failure.what());
    return 1;
  }
}

void add_step_flags(CLI::App& app, Flags& f) {
  Options& o = f.options;
  app.add_option("--data", o.data, "text, or llm.c's token file; without it a generated text")->group("Data");
  app.add_option("--tokenizer", o.tokenizer, "BPE for a text: a folder (vocab.bpe and encoder.json, or merges.txt and vocab.json) or a tiktoken file")->group("Data");
  app.add_flag("--drop-last", o.drop_last, "leave out an epoch's samples that fill no whole step")->group("Data");
  app.add_option("--seed", o.seed, "of weights, order of samples and dropout")->capture_default_str()->group("Data");
  app.add_option("--batch", o.batch, "samples of a micro-batch")->capture_default_str()->check(CLI::Range(1, 1 << 16))->group("Step");
  app.add_option("--micro-batches", o.micro_batches, "of a step, shared out among the ranks")->capture_default_str()->check(CLI::Range(1, 1 << 16))->group("Step");
  app.add_option("--steps", o.steps)->capture_default_str()->check(CLI::Range(1l, 1l << 40))->group("Step");
  app.add_option("--dropout", o.dropout)->capture_default_str()->check(CLI::Range(0.0, 0.99))->group("Step");
  app.add_option("--dtype", f.dtype, "of matrix products and kept activations; weights and sums are f32. f16 scales its loss")->capture_default_str()->check(CLI::IsMember({"f32", "bf16", "f16"}))->group("Step");
  app.add_flag("--recompute", o.recompute, "keep less of the forward pass, compute it again")->group("Step");
  app.add_option("--rate", o.schedule.rate, "largest learning rate")->capture_default_str()->check(CLI::PositiveNumber)->group("Optimizer");
  app.add_option("--schedule", f.schedule)->capture_default_str()->check(CLI::IsMember({"constant", "linear", "cosine", "wsd"}))->group("Optimizer");
  app.add_option("--warm-up", o.schedule.warm_up, "steps in which the rate rises")->capture_default_str()->check(CLI::NonNegativeNumber)->group("Optimizer");
  app.add_option("--final-rate", o.schedule.final_share, "share of the rate at the end")->capture_default_str()->check(CLI::Range(0.0, 1.0))->group("Optimizer");
  app.add_option("--beta1", o.adamw.beta1)->capture_default_str()->check(CLI::Range(0.0, 0.999999))->group("Optimizer");
  app.add_option("--beta2", o.adamw.beta2)->capture_default_str()->check(CLI::Range(0.0, 0.999999))->group("Optimizer");
  app.add_option("--decay", o.adamw.decay, "weight decay")->capture_default_str()->check(CLI::NonNegativeNumber)->group("Optimizer");
  app.add_option("--clip", o.clip, "largest norm of the gradient; 0: none")->capture_default_str()->check(CLI::NonNegativeNumber)->group("Optimizer");
  app.add_option("--on-nan", f.on_nan, "when a loss or gradient is not a number")->capture_default_str()->check(CLI::IsMember({"stop", "skip"}))->group("Optimizer");
}

void add_rank_flags(CLI::App& app, Flags& f) {
  Options& o = f.options;
  app.add_option("--zero", o.zero, "ZeRO's stage; 0: plain data parallelism")->capture_default_str()->check(CLI::Range(0, 3))->group("Ranks");
  app.add_flag("--deterministic", o.deterministic, "the same bits on any number of ranks")->group("Ranks");
  app.add_option("--bucket-mb", f.bucket_mb, "gradients that are exchanged at a time, in MB")->capture_default_str()->check(CLI::NonNegativeNumber)->group("Ranks");
  app.add_option("--wire", f.wire, "what gradients travel as; sums are f32")->capture_default_str()->check(CLI::IsMember({"f32", "bf16"}))->group("Ranks");
  app.add_option("--device", f.device, "cpu; cuda: ranks of a host take its GPUs in turn; cuda:N: that one")->capture_default_str()->group("Ranks");
  app.add_flag("--offload", o.offload, "the optimizer's state in the host's memory, its step on the host's cores")->group("Ranks");
  app.add_option("--threads", o.threads, "of each rank; 0: the host's cores, shared out")->capture_default_str()->check(CLI::Range(0, 1024))->group("Ranks");
  app.add_option("--check-every", o.check_every, "steps between comparisons of all ranks' weights; 0: at the start only")->capture_default_str()->check(CLI::NonNegativeNumber)->group("Ranks");
  app.add_option("--run", o.run, "folder for the log and the checkpoints")->group("Output");
  app.add_option("--light-every", o.light_every, "steps between checkpoints of the weights alone; 0: none")->capture_default_str()->check(CLI::NonNegativeNumber)->group("Output");
  app.add_option("--checkpoint-every", o.checkpoint_every, "steps between those that --resume goes on from; the last step always has one; 0: only that")->capture_default_str()->check(CLI::NonNegativeNumber)->group("Output");
  app.add_option("--keep", o.keep, "newest checkpoints to keep, of either kind")->capture_default_str()->check(CLI::PositiveNumber)->group("Output");
  app.add_option("--resume", o.resume, "auto: the newest valid full checkpoint of --run, if any; or a checkpoint's folder")->group("Output");
  app.add_option("--trace", o.trace, "file for a trace that Chrome and Perfetto show; rank r adds .r")->group("Output");
  app.add_option("--expect-loss", o.expect_loss, "fail when the last step's loss is above")->check(CLI::PositiveNumber)->group("Output");
  app.add_flag("--hash", o.hash, "print the SHA-256 of the weights at the end")->group("Output");
}

}  // namespace

void ModelFlags::add(CLI::App& app) {
  app.add_option("--preset", preset)->capture_default_str()->check(CLI::IsMember(preset_names()))->group("Model");
  app.add_option("--layers", layers)->group("Model");
  app.add_option("--heads", heads)->group("Model");
  app.add_option("--kv-heads", kv_heads, "heads of keys and values; fewer than --heads share them")->group("Model");
  app.add_option("--width", width)->group("Model");
  app.add_option("--hidden", hidden, "units of an MLP; 4 times the width unless given")->group("Model");
  app.add_option("--vocabulary", vocabulary)->group("Model");
  app.add_option("--context", context, "tokens of a sample")->group("Model");
  app.add_option("--position", position)->check(CLI::IsMember({"learned", "rope"}))->group("Model");
  app.add_option("--norm", norm)->check(CLI::IsMember({"layer", "rms"}))->group("Model");
  app.add_option("--activation", activation)->check(CLI::IsMember({"gelu", "swiglu"}))->group("Model");
  app.add_flag("--no-bias", no_bias)->group("Model");
}

ModelConfig ModelFlags::resolve() const {
  ModelConfig c = *trainer::preset(preset);
  if (layers) c.layers = layers;
  if (heads) c.heads = c.kv_heads = heads;
  if (kv_heads) c.kv_heads = kv_heads;
  if (width) c.width = width, c.hidden = 4 * width;
  if (hidden) c.hidden = hidden;
  if (vocabulary) c.vocabulary = vocabulary;
  if (context) c.context = context;
  if (!position.empty()) c.position = position == "rope" ? PositionKind::rope : PositionKind::learned;
  if (!norm.empty()) c.norm = norm == "rms" ? NormKind::rms : NormKind::layer;
  if (!activation.empty()) c.activation = activation == "swiglu" ? ActivationKind::swiglu : ActivationKind::gelu;
  if (no_bias) c.bias = false;
  require(check(c));
  return c;
}

std::function<int()> add_train(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  flags->model.add(app);
  add_step_flags(app, *flags);
  add_rank_flags(app, *flags);
  return [flags] { return run(resolve(*flags)); };
}

}  // namespace tutti::trainer
