// Norms of whole parameters, and of a second quantity of the same shape, for the layer-wise
// learning rates of LAMB and LARS.
#pragma once

#include <array>
#include <cmath>
#include <mutex>
#include <span>
#include <vector>

#include "training/optimizers/exact_sum.h"
#include "training/optimizers/norm_reducer.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training {

class LayerNorms {
 public:
  // Creates norms of `parameters` parameters, all 0. Throws Error(invalid_argument) if the index of
  // a piece's parameter is not below `parameters`.
  LayerNorms(int parameters, std::span<const OwnedPiece> pieces) {
    for (const OwnedPiece& owned : pieces) {
      check_option(owned.piece.parameter < parameters, "number of parameters", parameters,
                   "as in the model's table");
    }
    sums_.resize(index(parameters));
    norms_.resize(index(parameters));
  }
  // Adds a part of a parameter that starts at an aligned block, and the same part of the second
  // quantity. Thread-safe.
  void add(const OwnedPiece& owned, std::span<const float> values, std::span<const float> others) {
    if (owned.copy) return;
    const size_t at = index(owned.piece.parameter);
    std::array<ExactSum, 2> parts;
    add_squares(values, parts[0]);
    add_squares(others, parts[1]);
    const std::lock_guard lock(adding_);
    sums_[at].add(parts[0]);
    sums_[at + 1].add(parts[1]);
  }
  // Collective. Computes the norms over the parts of all owners. Before this call, and for
  // parameters of which no part was added, the norms are 0.
  void reduce(NormReducer& reducer) {
    sum_over_owners(sums_, reducer);
    for (size_t i = 0; i < sums_.size(); ++i) norms_[i] = std::sqrt(sums_[i].value());
  }
  double of_values(int parameter) const { return norms_[index(parameter)]; }
  double of_others(int parameter) const { return norms_[index(parameter) + 1]; }

 private:
  static size_t index(int parameter) { return 2 * static_cast<size_t>(parameter); }

  std::mutex adding_;
  std::vector<ExactSum> sums_;
  std::vector<double> norms_;
};

}  // namespace tutti::training
