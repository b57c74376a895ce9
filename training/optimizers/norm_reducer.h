// Interface for sums over the ranks that own parts of the same parameters. Norms need these sums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "training/optimizers/exact_sum.h"

namespace tutti::training {

// Sums over the owners; subclasses use all-reduce. Collective: every owner makes the same calls.
class NormReducer {
 public:
  virtual ~NormReducer() = default;
  // Replaces each number by its sum over all owners. The default, which changes nothing, is for a
  // single owner.
  virtual void sum(std::span<int64_t> /*limbs*/) {}
};

// Replaces each of `sums` by its sum over the owners, in one call.
inline void sum_over_owners(std::span<ExactSum> sums, NormReducer& reducer) {
  std::vector<int64_t> limbs;
  limbs.reserve(sums.size() * ExactSum::kLimbs);
  for (ExactSum& sum : sums) limbs.insert(limbs.end(), sum.limbs().begin(), sum.limbs().end());
  reducer.sum(limbs);
  auto next = limbs.begin();
  for (ExactSum& sum : sums) {
    std::copy_n(next, ExactSum::kLimbs, sum.limbs().begin());
    next += ExactSum::kLimbs;
  }
}

}  // namespace tutti::training
