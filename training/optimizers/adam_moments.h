// The two moments of the gradient that AdamW and LAMB keep.
#pragma once

#include <cmath>

#include "training/core/schema.h"
#include "training/optimizers/optimizer.h"
#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {

struct AdamMoments {
  double beta1 = 0.9;     // in [0, 1)
  double beta2 = 0.999;   // in [0, 1)
  double epsilon = 1e-8;  // 0 or more; added to the square root, not under it
  // Step after which the mean of squared gradients stays constant (1-bit Adam); 0: never.
  int64_t frozen_after = 0;
};

// Default of beta2 for short runs: the second moment averages over about a hundred steps.
inline constexpr double kShortRunBeta2 = 0.99;

inline void describe(Schema& schema, AdamMoments& moments) {
  schema.add("beta1", moments.beta1, "decay rate of the mean gradient (first moment)");
  schema.add("beta2", moments.beta2, "decay rate of the mean squared gradient (second moment)");
  schema.add("eps", moments.epsilon, "term added to the denominator");
  schema.add("frozen_after", moments.frozen_after,
             "number of steps after which the second moment is frozen; 0: never");
}

inline void check_moments(const AdamMoments& moments) {
  const auto fraction = [](double beta) { return beta >= 0 && beta < 1; };
  check_option(fraction(moments.beta1), "beta1", moments.beta1, "in [0, 1)");
  check_option(fraction(moments.beta2), "beta2", moments.beta2, "in [0, 1)");
  check_option(moments.epsilon >= 0, "epsilon", moments.epsilon, "of at least 0");
  check_option(moments.frozen_after >= 0, "frozen_after", moments.frozen_after, "of at least 0");
}

// Returns the factor by which a moment that started at 0 is too small after `step` steps.
inline double bias_correction(double beta, int64_t step) {
  return 1 - std::pow(beta, static_cast<double>(step));
}

inline optimizer_loops::MomentFactors moment_factors(const AdamMoments& moments,
                                                     const StepOptions& options) {
  const bool frozen = moments.frozen_after > 0 && options.step > moments.frozen_after;
  // Number of steps that have updated the mean of squared gradients.
  const int64_t squared = frozen ? moments.frozen_after : options.step;
  return {
      .gradient = static_cast<float>(options.gradient_factor),
      .one_minus_beta1 = static_cast<float>(1 - moments.beta1),
      .beta2 = static_cast<float>(frozen ? 1 : moments.beta2),
      .one_minus_beta2 = static_cast<float>(frozen ? 0 : 1 - moments.beta2),
      .correction1 = static_cast<float>(bias_correction(moments.beta1, options.step)),
      .root_correction2 = static_cast<float>(std::sqrt(bias_correction(moments.beta2, squared))),
      .epsilon = static_cast<float>(moments.epsilon)};
}

}  // namespace tutti::training
