#include "trainer/optimizer.h"

#include <algorithm>
#include <cmath>

#include "trainer/numbers.h"

namespace tutti::trainer {

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
  const auto b1 = float(settings_.beta1), b2 = float(settings_.beta2), epsilon = float(settings_.epsilon), s = float(scale);
  const auto rate1 = float(rate / (1 - std::pow(settings_.beta1, double(step))));
  const auto root2 = float(1 / std::sqrt(1 - std::pow(settings_.beta2, double(step))));
  float *m = first_[unit].data(), *v = second_[unit].data();
  for (const Run& run : runs_[unit]) {
    const float keep = run.decays ? float(1 - rate * settings_.decay) : 1.0f;
    threads_.ranges(run.end - run.begin, 1 << 13, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = run.begin + begin; i < run.begin + end; ++i) {
        const float g = gradient[i] * s;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        weights[i] = keep * weights[i] - rate1 * m[i] / (std::sqrt(v[i]) * root2 + epsilon);
      }
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
