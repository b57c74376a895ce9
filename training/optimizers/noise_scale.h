// Estimates the gradient noise scale: the batch size beyond which more samples per step help
// little.
#pragma once

#include <limits>

#include "training/optimizers/optimizer.h"

namespace tutti::training {

// McCandlish, Kaplan, Amodei et al.: An empirical model of large-batch training, 2018, appendix
// A.1. Two squared norms are measured: the norm of the gradient over a small batch (one
// micro-batch, or one rank's share), and the norm of the gradient over the big batch that contains
// the small one. The two norms yield unbiased estimates of |G|^2, the true gradient's squared norm,
// and of S, the trace of the gradient's covariance per sample. Both estimates are smoothed over
// steps before they are divided. Not thread-safe.
class NoiseScale {
 public:
  // Creates the estimator. `smoothing`: weight of the past in an average, in [0, 1); throws
  // Error(invalid_argument) for other values.
  explicit NoiseScale(double smoothing = 0.99) : smoothing_(smoothing) {
    check_option(smoothing >= 0 && smoothing < 1, "noise scale smoothing", smoothing, "in [0, 1)");
  }

  // Adds a step. Squared norms are of gradients of the mean loss; `small_square` may itself be a
  // mean over the small batches of a step. Throws Error(invalid_argument) unless 0 < small_batch <
  // big_batch.
  void add(double small_square, double small_batch, double big_square, double big_batch) {
    check_option(small_batch > 0 && small_batch < big_batch, "small batch", small_batch,
                 "above 0 and below the big batch");
    const double gradient_square =
        (big_batch * big_square - small_batch * small_square) / (big_batch - small_batch);
    const double noise = (small_square - big_square) / (1 / small_batch - 1 / big_batch);
    gradient_square_ = smoothing_ * gradient_square_ + (1 - smoothing_) * gradient_square;
    noise_ = smoothing_ * noise_ + (1 - smoothing_) * noise;
    weight_ = smoothing_ * weight_ + (1 - smoothing_);
  }

  // Return the averages over the steps so far, corrected for the bias of starting at 0; NaN before
  // the first step.
  double gradient_square() const { return gradient_square_ / weight_; }
  double noise() const { return noise_ / weight_; }
  // State for resuming.
  struct Averages {
    double gradient_square = 0;
    double noise = 0;
    double weight = 0;
  };
  Averages averages() const { return {gradient_square_, noise_, weight_}; }
  void go_on_from(const Averages& averages) {
    gradient_square_ = averages.gradient_square;
    noise_ = averages.noise;
    weight_ = averages.weight;
  }
  // Returns B_simple = S / |G|^2 in samples, or NaN while the estimate of |G|^2 is not above 0.
  double value() const {
    return gradient_square_ > 0 ? noise_ / gradient_square_
                                : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  double smoothing_;
  double gradient_square_ = 0;
  double noise_ = 0;
  double weight_ = 0;
};

}  // namespace tutti::training
