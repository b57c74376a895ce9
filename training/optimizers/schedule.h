// Computes the learning rate from the step and from the batch size.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace tutti::training {

// A schedule of learning rates. The rate rises linearly from peak / warmup_steps to `peak`, which
// it reaches at step max(1, warmup_steps) (Goyal et al.: Accurate, large minibatch SGD, 2017). It
// then falls linearly or as half a cosine (Loshchilov, Hutter: SGDR, 2017) to final_fraction *
// peak, which it reaches at total_steps and keeps. With `constant` it stays at `peak`.
struct LearningRateSchedule {
  enum class Decay { constant, linear, cosine };

  Decay decay = Decay::cosine;
  double peak = 1e-3;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double final_fraction = 0.1;

  // Returns the rate of a step; steps count from 1.
  double at(int64_t step) const {
    const int64_t top = std::max<int64_t>(1, warmup_steps);
    if (step <= top) return peak * static_cast<double>(step) / static_cast<double>(top);
    if (decay == Decay::constant) return peak;
    const double progress = step >= total_steps ? 1
                                                : static_cast<double>(step - top) /
                                                      static_cast<double>(total_steps - top);
    const double left =
        decay == Decay::linear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
    return peak * (final_fraction + (1 - final_fraction) * left);
  }
};

// How the learning rate grows with the batch size: linearly (Goyal et al. 2017), or with its square
// root, which preserves the variance of an update (Krizhevsky: One weird trick for parallelizing
// convolutional neural networks, 2014).
enum class BatchScaling { none, linear, sqrt };

// Returns the rate for `batch` samples per step, given the rate `rate` for `base_batch` samples.
// Both numbers of samples must be above 0.
inline double scaled_rate(double rate, double batch, double base_batch, BatchScaling scaling) {
  switch (scaling) {
    case BatchScaling::linear:
      return rate * (batch / base_batch);
    case BatchScaling::sqrt:
      return rate * std::sqrt(batch / base_batch);
    case BatchScaling::none:
      break;
  }
  return rate;
}

}  // namespace tutti::training
