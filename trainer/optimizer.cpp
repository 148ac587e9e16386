#include "trainer/optimizer.h"

#include <algorithm>
#include <cmath>

#include "trainer/numbers.h"

namespace tutti::trainer {
namespace {

struct Factors {
  float b1, b2, epsilon, scale, keep, rate1, root2;
};

// By value and without overlap, so that the loop becomes vector code.
void change(std::size_t n, Factors f, const float* __restrict gradient, float* __restrict m, float* __restrict v, float* __restrict weights) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * f.scale;
    m[i] = f.b1 * m[i] + (1 - f.b1) * g;
    v[i] = f.b2 * v[i] + (1 - f.b2) * g * g;
    weights[i] = f.keep * weights[i] - f.rate1 * m[i] / (std::sqrt(v[i]) * f.root2 + f.epsilon);
  }
}

}  // namespace

Optimizer::Optimizer(const Layout& layout, const Shares& shares, const AdamW& settings, Threads& threads)
    : shares_(shares), settings_(settings), threads_(threads), runs_(layout.units().size()) {
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    first_.emplace_back(shares.mine(unit).count);
    second_.emplace_back(shares.mine(unit).count);
  }
  for (const Tensor& tensor : layout.tensors()) {
    const Share share = shares.mine(tensor.unit);
    const std::size_t begin = std::max(tensor.offset, share.begin), end = std::min(tensor.offset + tensor.count(), share.begin + share.count);
    if (begin < end) runs_[tensor.unit].push_back({begin - share.begin, end - share.begin, tensor.decays});
  }
}

void Optimizer::step(std::size_t unit, float* weights, const float* gradient, double rate, double scale, long step) {
  Factors f{float(settings_.beta1), float(settings_.beta2), float(settings_.epsilon), float(scale), 1,
            float(rate / (1 - std::pow(settings_.beta1, double(step)))),
            float(1 / std::sqrt(1 - std::pow(settings_.beta2, double(step))))};
  for (const Run& run : runs_[unit]) {
    f.keep = run.decays ? float(1 - rate * settings_.decay) : 1.0f;
    threads_.ranges(run.end - run.begin, 1 << 13, [&](std::size_t begin, std::size_t end) {
      const std::size_t at = run.begin + begin;
      change(end - begin, f, gradient + at, first_[unit].data() + at, second_[unit].data() + at, weights + at);
    });
  }
}

void sum_squares(const Layout& layout, const Shares& shares, Threads& threads, std::size_t unit, const float* gradient,
                 std::vector<double>& squares) {
  const Share share = shares.mine(unit);
  const std::size_t first = (layout.units()[unit].offset + share.begin) / kBlock;
  threads.ranges(share.count / kBlock, 8, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      const float* x = gradient + block * kBlock;
      squares[first + block] = sum_of<double>(kBlock, [&](std::size_t i) { return double(x[i]) * double(x[i]); });
    }
  });
}

}  // namespace tutti::trainer
