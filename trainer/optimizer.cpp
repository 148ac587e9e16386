#include "trainer/optimizer.h"

#include <algorithm>
#include <cmath>

namespace tutti::trainer {

Optimizer::Optimizer(const Layout& layout, const Shares& shares, const AdamW& settings, Backend<float>& backend, Device* elsewhere)
    : shares_(shares), settings_(settings), backend_(backend), elsewhere_(elsewhere), runs_(layout.units().size()) {
  std::size_t largest = 0;
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    first_.emplace_back(backend, shares.mine(unit).count);
    second_.emplace_back(backend, shares.mine(unit).count);
    largest = std::max(largest, shares.mine(unit).count);
  }
  if (elsewhere) weights_ = Array<float>(backend, largest), gradient_ = Array<float>(backend, largest);
  for (const Tensor& tensor : layout.tensors()) {
    const Share share = shares.mine(tensor.unit);
    const std::size_t begin = std::max(tensor.offset, share.begin), end = std::min(tensor.offset + tensor.count(), share.begin + share.count);
    if (begin < end) runs_[tensor.unit].push_back({begin - share.begin, end - share.begin, tensor.decays});
  }
}

void Optimizer::step(std::size_t unit, float* weights, const float* gradient, double rate, double scale, long step) {
  const std::size_t bytes = first_[unit].bytes();
  float* const far = weights;
  if (elsewhere_) {
    elsewhere_->download(weights_.data(), weights, bytes);
    elsewhere_->download(gradient_.data(), gradient, bytes);
    weights = weights_.data(), gradient = gradient_.data();
  }
  AdamWStep f{float(settings_.beta1), float(settings_.beta2), float(settings_.epsilon), float(scale), 1,
              float(rate / (1 - std::pow(settings_.beta1, double(step)))),
              float(1 / std::sqrt(1 - std::pow(settings_.beta2, double(step))))};
  for (const Run& run : runs_[unit]) {
    f.keep = run.decays ? float(1 - rate * settings_.decay) : 1.0f;
    const std::size_t at = run.begin;
    backend_.adamw(run.end - at, f, gradient + at, first_[unit].data() + at, second_[unit].data() + at, weights + at);
  }
  if (elsewhere_) elsewhere_->upload(far, weights, bytes);
}

void Optimizer::read(std::size_t unit, float* first, float* second) {
  backend_.download(first, first_[unit].data(), first_[unit].bytes());
  backend_.download(second, second_[unit].data(), second_[unit].bytes());
}

void Optimizer::write(std::size_t unit, const float* first, const float* second) {
  backend_.upload(first_[unit].data(), first, first_[unit].bytes());
  backend_.upload(second_[unit].data(), second, second_[unit].bytes());
}

void sum_squares(const Layout& layout, const Shares& shares, Backend<float>& backend, std::size_t unit, const float* gradient, double* squares) {
  const Share share = shares.mine(unit);
  backend.sum_squares(share.count / kBlock, gradient, squares + (layout.units()[unit].offset + share.begin) / kBlock);
}

}  // namespace tutti::trainer
