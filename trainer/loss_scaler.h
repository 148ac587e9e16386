#pragma once
// The factor that keeps f16's small gradients above zero: the loss is multiplied by it before backward, the gradient divided by it
// before it is used. It halves when a gradient overflowed (that step is left out) and doubles after kCalm steps without (Micikevicius
// et al. 2018). Always a power of two, so that it changes no bit of what does not overflow or vanish. A value: ranks that
// hear the same verdicts hold the same one.

namespace tutti::trainer {

class LossScaler {
 public:
  static constexpr double kStart = 65536, kMost = 16777216;
  static constexpr long kCalm = 1000;
  // Without scaling the factor is 1 for ever and overflow is no excuse.
  explicit LossScaler(bool scales) : scales_(scales), scale_(scales ? kStart : 1) {}
  double scale() const { return scale_; }
  long calm() const { return calm_; }
  void set(double scale, long calm) {
    if (scales_ && scale >= 1) scale_ = scale, calm_ = calm;
  }
  // Whether a smaller factor may help against a gradient that is not finite.
  bool can_fall() const { return scales_ && scale_ > 1; }
  void overflowed() {
    scale_ /= 2;
    calm_ = 0;
  }
  void went_well() {
    if (!scales_ || ++calm_ < kCalm) return;
    calm_ = 0;
    if (scale_ < kMost) scale_ *= 2;
  }

 private:
  const bool scales_;
  double scale_;
  long calm_ = 0;           // steps since the last change
};

}  // namespace tutti::trainer
