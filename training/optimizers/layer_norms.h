// The norms of whole parameters, and of something else of the same shape, that LAMB and LARS make
// the layers' learning rates of.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "training/optimizers/exact_sum.h"
#include "training/optimizers/norm_reducer.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training {

class LayerNorms {
 public:
  // Throws Error(invalid_argument) if `parameters` leaves out one of the pieces' parameters.
  LayerNorms(int parameters, std::span<const OwnedPiece> pieces) {
    for (const OwnedPiece& owned : pieces) {
      check_option(owned.piece.parameter < parameters, "number of parameters", parameters,
                   "as in the model's table");
    }
    sums_.resize(2 * static_cast<size_t>(parameters));
  }
  // A part of a parameter that starts at an aligned block, and the same part of the other.
  void add(int parameter, std::span<const float> values, std::span<const float> others) {
    add_squares(values, sum(parameter, 0));
    add_squares(others, sum(parameter, 1));
  }
  void reduce(NormReducer& reducer) { sum_over_owners(sums_, reducer); }

  double value_norm(int parameter) const { return std::sqrt(sum(parameter, 0).value()); }
  double other_norm(int parameter) const { return std::sqrt(sum(parameter, 1).value()); }

 private:
  const ExactSum& sum(int parameter, int which) const {
    return sums_[2 * static_cast<size_t>(parameter) + static_cast<size_t>(which)];
  }
  ExactSum& sum(int parameter, int which) {
    return sums_[2 * static_cast<size_t>(parameter) + static_cast<size_t>(which)];
  }

  std::vector<ExactSum> sums_;
};

}  // namespace tutti::training
