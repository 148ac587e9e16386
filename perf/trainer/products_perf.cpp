// The floor under a training step: the matrix products of its linear layers and its head, forward and backward, with the
// trainer's cuts, on arrays of their own, and nothing else. What a step takes beyond them is all else that it does. Attention's
// own products are left out: they lie between the rows of a softmax, and are below 1 % at short contexts.
//   products_perf --preset gpt2-124m --context 64 --batch 4 --threads 2 --rounds 5
// prints a line "SECONDS GFLOPS" for each round.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "trainer/failure.h"
#include "trainer/gemm.h"
#include "trainer/host_backend.h"
#include "trainer/random.h"
#include "trainer/train_command.h"

namespace {

using namespace tutti::trainer;

// One linear layer: y = x w, and for its backward pass d_w = x^T dy, dx = dy w^T.
struct Linear {
  Linear(Device& device, std::size_t rows_of_batch, std::size_t ins, std::size_t outs)
      : rows(rows_of_batch), inputs(ins), outputs(outs), x(device, rows * inputs), y(device, rows * outputs),
        w(device, inputs * outputs), d_w(device, inputs * outputs) {
    for (Array<float>* part : {&x, &y, &w}) {
      for (std::size_t i = 0; i < part->size(); ++i) part->data()[i] = float(uniform(part->size(), i)) - 0.5f;
    }
  }
  double flops() const { return 6.0 * double(rows) * double(inputs) * double(outputs); }
  std::size_t rows, inputs, outputs;
  Array<float> x, y, w, d_w;
};

// c[m][n] = a b + beta c.
void multiply(Backend<float>& backend, std::size_t m, std::size_t n, std::size_t k, Matrix<float> a, Matrix<float> b, float beta,
              float* c) {
  backend.product(m, n, k, 1, a, b, beta, c, n, Precision::f32);
}

void forward(Backend<float>& backend, Linear& l) {
  multiply(backend, l.rows, l.outputs, l.inputs, {l.x.data(), l.inputs}, {l.w.data(), l.outputs}, 1, l.y.data());
}
void backward(Backend<float>& backend, Linear& l, float* d_x) {
  const Matrix<float> d_y{l.y.data(), l.outputs};
  multiply(backend, l.inputs, l.outputs, l.rows, {l.x.data(), l.inputs, Form::transposed}, d_y, 0, l.d_w.data());
  multiply(backend, l.rows, l.inputs, l.outputs, d_y, {l.w.data(), l.outputs, Form::transposed}, 0, d_x);
}

// The head's weights lie as the embedding table does: a row for each token.
void head_forward(Backend<float>& backend, Linear& l) {
  const Matrix<float> table{l.w.data(), l.inputs, Form::transposed};
  multiply(backend, l.rows, l.outputs, l.inputs, {l.x.data(), l.inputs}, table, 0, l.y.data());
}
void head_backward(Backend<float>& backend, Linear& l, float* d_x) {
  const Matrix<float> x{l.x.data(), l.inputs}, table{l.w.data(), l.inputs};
  multiply(backend, l.outputs, l.inputs, l.rows, {l.y.data(), l.outputs, Form::transposed}, x, 0, l.d_w.data());
  multiply(backend, l.rows, l.inputs, l.outputs, {l.y.data(), l.outputs}, table, 0, d_x);
}

void measure(const ModelConfig& c, std::size_t rows, int threads, int rounds) {
  keep_blas_on_one_thread();
  Threads crew(threads);
  HostBackend<float> backend(crew);
  std::vector<Linear> layers;
  for (std::size_t i = 0; i < c.layers; ++i) {
    layers.emplace_back(backend, rows, c.width, c.qkv_width());
    layers.emplace_back(backend, rows, c.width, c.width);
    layers.emplace_back(backend, rows, c.width, c.hidden * inputs_of(c.activation));
    layers.emplace_back(backend, rows, c.hidden, c.width);
  }
  Linear head(backend, rows, c.width, c.vocabulary);
  Array<float> d_x(backend, rows * std::max(c.width, c.hidden));
  double flops = head.flops();
  for (const Linear& l : layers) flops += l.flops();
  for (int round = 0; round <= rounds; ++round) {      // the first warms up
    const auto begin = std::chrono::steady_clock::now();
    for (Linear& l : layers) forward(backend, l);
    head_forward(backend, head);
    head_backward(backend, head, d_x.data());
    for (auto l = layers.rbegin(); l != layers.rend(); ++l) backward(backend, *l, d_x.data());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (round > 0) fmt::print("{:.6f} {:.1f}\n", seconds, flops / seconds / 1e9);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times the matrix products of a training step, and nothing else", "products_perf");
  ModelFlags model;
  model.add(app);
  std::size_t batch = 4;
  int threads = 2, rounds = 5;
  app.add_option("--batch", batch, "samples")->capture_default_str()->check(CLI::Range(1, 1 << 16));
  app.add_option("--threads", threads)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--rounds", rounds)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  try {
    const ModelConfig config = model.resolve();
    measure(config, batch * config.context, threads, rounds);
    return 0;
  } catch (const Failure& failure) {
    fmt::print(stderr, "products_perf: {}\n", failure.what());
    return 1;
  }
}
