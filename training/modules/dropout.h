// Dropout (Srivastava et al. 2014) whose random numbers depend on the sample's number and the
// element's place in it, not on the rank, the micro-batch or what was drawn before: every layout
// drops the same elements. No mask is kept; backward draws it again.
#pragma once

#include <cstdint>

#include "training/kernels/elementwise.h"
#include "training/pass.h"

namespace tutti::training {

class Dropout {
 public:
  // Streams tell the dropouts of one model apart.
  Dropout(double p, uint64_t stream) : p_(p), stream_(stream) {}

  // In place, on a tensor with the micro-batch's samples one after the other.
  void forward(const Pass& pass, Tensor values) const { apply(pass, values); }
  void backward(const Pass& pass, Tensor gradient) const { apply(pass, gradient); }
  bool active(const Pass& pass) const { return pass.training && p_ > 0; }

 private:
  void apply(const Pass& pass, Tensor values) const {
    if (!active(pass) || values.empty()) return;
    const auto per_sample = static_cast<uint64_t>(values.size() / pass.batch->samples);
    dropout(values, values, p_, {pass.seed, stream_, pass.batch->first_sample * per_sample});
  }

  double p_;
  uint64_t stream_;
};

}  // namespace tutti::training
