#include "training/optimizers/gradient_norm.h"

#include <cmath>

#include "training/optimizers/exact_sum.h"

namespace tutti::training {

double gradient_norm(std::span<const OwnedPiece> pieces, NormReducer& reducer) {
  ExactSum sum;
  for (const OwnedPiece& owned : pieces) {
    if (!owned.copy) add_squares(owned.gradient, sum);
  }
  sum_over_owners({&sum, 1}, reducer);
  return std::sqrt(sum.value());
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

}  // namespace tutti::training
